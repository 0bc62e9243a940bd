//! Admission: who gets in, who does not, and what it costs whom.

mod load;
mod pressure;
mod rules;
mod tiers;

use std::sync::Arc;

use tidegate::admission::{Admission, Caller, Rules, Tier};
use tidegate::clock::ManualClock;
use tidegate::{Engine, MemoryStore, Policy};

/// An admission on a store whose clock a test moves.
struct Door {
    admission: Admission,
    clock: ManualClock,
}

impl Door {
    fn with(rules: Rules) -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
        let admission = Admission::new(&Engine::on(Arc::new(store)), rules).unwrap();
        Self { admission, clock }
    }

    /// Whether a caller gets in; its request is over at once.
    fn admits(&self, caller: Caller<'_>) -> bool {
        self.admission.admit(caller).now().unwrap().is_admitted()
    }

    /// The tier that rejects a caller, if any does.
    fn rejecting(&self, caller: Caller<'_>) -> Option<Tier> {
        self.admission.admit(caller).now().unwrap().rejected().map(|rejection| rejection.tier)
    }

    /// Tokens left in the bucket of a caller in a tier.
    fn left(&self, tier: Tier, caller: Caller<'_>) -> u64 {
        let key = self.admission.key(tier, caller).unwrap();
        self.admission.limiter(tier).unwrap().peek(&key).cost(0).now().unwrap().remaining()
    }
}

fn bucket(capacity: u64, rate: u64) -> Policy {
    Policy::per_second(rate).capacity(capacity).build().unwrap()
}

fn of<'a>(organization: &'a str, client: &'a str) -> Caller<'a> {
    Caller::new().organization(organization).client(client)
}
