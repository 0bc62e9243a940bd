//! Admission: which requests are admitted, which are rejected, and what they are charged.

mod cost;
mod load;
mod pressure;
mod rules;
mod tiers;

use std::sync::Arc;

use tidegate::admission::{Admission, Caller, Rules, Tier};
use tidegate::clock::ManualClock;
use tidegate::{Engine, MemoryStore, Policy};

/// An admission on a store with a manual clock.
struct Fixture {
    admission: Admission,
    clock: ManualClock,
}

impl Fixture {
    fn with(rules: Rules) -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
        let admission = Admission::new(&Engine::on(Arc::new(store)), rules).unwrap();
        Self { admission, clock }
    }

    /// Whether a caller is admitted; its request ends at once.
    fn admits(&self, caller: Caller<'_>) -> bool {
        self.admission.admit(caller).now().unwrap().is_admitted()
    }

    /// The tier that rejects a caller, if any.
    fn rejecting_tier(&self, caller: Caller<'_>) -> Option<Tier> {
        self.admission.admit(caller).now().unwrap().rejected().map(|rejection| rejection.tier)
    }

    /// Tokens left in the bucket of a caller in a tier.
    fn remaining(&self, tier: Tier, caller: Caller<'_>) -> u64 {
        let key = self.admission.key(tier, caller).unwrap();
        self.admission.limiter(tier).unwrap().peek(&key).cost(0).now().unwrap().remaining()
    }
}

fn bucket(capacity: u64, rate: u64) -> Policy {
    Policy::per_second(rate).capacity(capacity).build().unwrap()
}

fn caller_of<'a>(organization: &'a str, client: &'a str) -> Caller<'a> {
    Caller::new().organization(organization).client(client)
}
