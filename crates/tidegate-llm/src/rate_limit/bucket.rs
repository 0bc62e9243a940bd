//! One bucket of an account: a limit of the engine, and the key under which all calls are charged.

use tidegate::clock::TokioClock;
use tidegate::{
    Change, Charge, Engine, Key, KeyBuf, LimitError, Limiter, MemoryStore, Policy, Schedule,
    StoreHandle,
};

use tidegate_providers::name::short_hash;

/// An engine in this process, on tokio's time as pacers are.
#[must_use]
pub fn own_engine() -> Engine {
    let store = MemoryStore::builder().clock(TokioClock::new()).build();
    store.map_or_else(|_| Engine::new(), Engine::on)
}

/// One bucket of one limit.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    limiter: Limiter,
    key: KeyBuf,
}

impl Bucket {
    /// The bucket of a limit of this name and policy, known before or new.
    pub(super) fn new(engine: &Engine, name: &str, policy: Policy) -> Result<Self, LimitError> {
        let limiter = match adopted(engine, name, policy)? {
            Some(known) => known,
            None => engine.limiter(name, policy)?,
        };
        Ok(Self { limiter, key: key() })
    }

    /// The bucket of a calendar quota, known before or new. A known one keeps its schedule.
    pub(super) fn calendar(
        engine: &Engine,
        name: &str,
        amount: u64,
        schedule: Schedule,
    ) -> Result<Self, LimitError> {
        let limiter = match adopted(engine, name, Policy::quota(amount)?)? {
            Some(known) => known,
            None => engine.calendar(name, amount, schedule)?,
        };
        Ok(Self { limiter, key: key() })
    }

    pub(super) const fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    pub(super) const fn store(&self) -> &StoreHandle {
        self.limiter.engine().store()
    }

    pub(super) const fn key(&self) -> &KeyBuf {
        &self.key
    }

    pub(super) fn charge(&self, cost: u64) -> Charge<'_> {
        self.limiter.charge(&self.key, cost)
    }
}

/// A limit that the engine has already, from an account that was made before. It comes under the
/// policy, and what was spent counts on.
fn adopted(engine: &Engine, name: &str, policy: Policy) -> Result<Option<Limiter>, LimitError> {
    let known = engine.find(name);
    if let Some(limiter) = known.as_ref().filter(|limiter| limiter.policy() != policy) {
        limiter.reconfigure(policy, Change::KeepTokens)?;
    }
    Ok(known)
}

/// A limit has one bucket. All of them are in one group, so that a store of several machines can
/// decide them together.
fn key() -> KeyBuf {
    Key::new("calls").in_group("llm").into()
}

/// The name of a limit of a scope. Scopes have names that limits cannot have, so it is their hash.
pub(crate) fn limit_name(what: &str, scope: &str) -> String {
    format!("llm.{what}.{}", short_hash(scope))
}
