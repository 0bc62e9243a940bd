//! One bucket of an account: a limit of the engine and the key that all calls are charged under.

use tidegate::clock::TokioClock;
use tidegate::{
    Charge, Engine, Key, KeyBuf, LimitError, Limiter, MemoryStore, Policy, PolicyChange, Schedule,
    StoreHandle,
};

use tidegate_providers::name::short_hash;

/// Creates an in-process engine on tokio's clock, as pacers use.
#[must_use]
pub fn local_engine() -> Engine {
    let store = MemoryStore::builder().clock(TokioClock::new()).build();
    store.map_or_else(|_| Engine::new(), Engine::on)
}

#[derive(Clone, Debug)]
pub(super) struct Bucket {
    limiter: Limiter,
    key: KeyBuf,
}

impl Bucket {
    /// Opens the bucket of the limit `name`, which may exist already.
    pub(super) fn new(engine: &Engine, name: &str, policy: Policy) -> Result<Self, LimitError> {
        let limiter = match adopted(engine, name, policy)? {
            Some(known) => known,
            None => engine.limiter(name, policy)?,
        };
        Ok(Self { limiter, key: key() })
    }

    /// Opens the bucket of a calendar quota. An existing one keeps its schedule.
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

/// Returns the limit if the engine has it already, from an account opened earlier, and applies
/// `policy` to it. Charges are kept.
fn adopted(engine: &Engine, name: &str, policy: Policy) -> Result<Option<Limiter>, LimitError> {
    let known = engine.find(name);
    if let Some(limiter) = known.as_ref().filter(|limiter| limiter.policy() != policy) {
        limiter.reconfigure(policy, PolicyChange::KeepTokens)?;
    }
    Ok(known)
}

/// All buckets are in one group, so that a clustered store can decide them together.
fn key() -> KeyBuf {
    Key::new("calls").in_group("llm").into()
}

/// Name of a limit of `scope`. Hashed, since scopes contain characters that limit names must not.
pub(crate) fn limit_name(what: &str, scope: &str) -> String {
    format!("llm.{what}.{}", short_hash(scope))
}
