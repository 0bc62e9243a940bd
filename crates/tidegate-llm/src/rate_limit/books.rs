//! Where limits are kept: the store of this process, or one that several share.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use tidegate::clock::TokioClock;
use tidegate::pacer::{Bank, Claim};
use tidegate::{
    CalendarError, Change, Engine, Key, KeyBuf, LimitError, Limiter, MemoryStore,
    MemoryStoreBuilder, Policy, Schedule, Store,
};
use tidegate_providers::name::short_hash;

/// The memory of small books, in bytes: the least that a store is made with.
const SMALL: usize = 1 << 20;

/// An engine of either kind. A pacer on the store of this process decides at once; on a shared one
/// it asks.
#[derive(Clone, Debug)]
pub enum Books {
    /// The store of this process.
    Local(Engine),
    /// A store that several processes share.
    Shared(Engine<dyn Store>),
}

impl Books {
    /// Books of their own, in this process, on tokio's time.
    #[must_use]
    pub fn own() -> Self {
        Self::in_store(MemoryStore::builder())
    }

    /// The same for one account of many, which has few limits: as little memory as a store can do
    /// with.
    #[must_use]
    pub fn small() -> Self {
        Self::in_store(MemoryStore::builder().max_memory(SMALL))
    }

    fn in_store(store: MemoryStoreBuilder) -> Self {
        let store = store.clock(TokioClock::new()).build();
        Self::Local(store.map_or_else(|_| Engine::new(), |store| Engine::on(Arc::new(store))))
    }

    pub(super) fn bank(&self) -> Bank {
        match self {
            Self::Local(engine) => engine.into(),
            Self::Shared(engine) => engine.into(),
        }
    }

    pub(super) const fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    /// A limit of this name and policy, known before or new.
    pub(super) fn bucket(&self, name: &str, policy: Policy) -> Result<Bucket, LimitError> {
        if let Some(known) = self.adopt(name, policy)? {
            return Ok(known);
        }
        Ok(match self {
            Self::Local(engine) => Bucket::local(engine.limiter(name, policy)?),
            Self::Shared(engine) => Bucket::shared(engine.limiter(name, policy)?),
        })
    }

    /// A quota by the calendar, known before or new. A known one keeps its schedule.
    pub(super) fn calendar(
        &self,
        name: &str,
        amount: u64,
        schedule: Schedule,
    ) -> Result<Bucket, CalendarError> {
        if let Some(known) = self.adopt(name, Policy::quota(amount)?)? {
            return Ok(known);
        }
        Ok(match self {
            Self::Local(engine) => Bucket::local(engine.calendar(name, amount, schedule)?),
            Self::Shared(engine) => Bucket::shared(engine.calendar(name, amount, schedule)?),
        })
    }

    /// A limit that the engine has already, from an account that was made before. It comes under
    /// the policy, and what was spent counts on.
    fn adopt(&self, name: &str, policy: Policy) -> Result<Option<Bucket>, LimitError> {
        let known = match self {
            Self::Local(engine) => engine.find(name).map(Bucket::local),
            Self::Shared(engine) => engine.find(name).map(Bucket::shared),
        };
        if let Some(bucket) = &known
            && bucket.limiter.policy() != policy
        {
            bucket.limiter.reconfigure(policy, Change::KeepTokens)?;
        }
        Ok(known)
    }
}

impl From<&Engine> for Books {
    fn from(engine: &Engine) -> Self {
        Self::Local(engine.clone())
    }
}

impl From<&Engine<dyn Store>> for Books {
    fn from(engine: &Engine<dyn Store>) -> Self {
        Self::Shared(engine.clone())
    }
}

/// One bucket of one limit.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    /// What claims are made of; they belong to the kind of store that they are made on.
    local: Option<Limiter>,
    limiter: Limiter<dyn Store>,
    key: KeyBuf,
}

impl Bucket {
    fn local(limiter: Limiter) -> Self {
        Self { local: Some(limiter.clone()), limiter: limiter.into(), key: key() }
    }

    fn shared(limiter: Limiter<dyn Store>) -> Self {
        Self { local: None, limiter, key: key() }
    }

    pub(super) const fn limiter(&self) -> &Limiter<dyn Store> {
        &self.limiter
    }

    pub(super) const fn key(&self) -> &KeyBuf {
        &self.key
    }

    pub(super) fn claim(&self, cost: u64) -> Claim {
        match &self.local {
            Some(limiter) => limiter.claim(&self.key, cost),
            None => self.limiter.claim(&self.key, cost),
        }
    }
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

/// Does something to a store that nobody waits for: at once on the store of this process, by a
/// task on a shared one. Outside of a runtime a shared store is not asked.
pub(super) fn detach(work: impl Future<Output = ()> + Send + 'static) {
    let mut work: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(work);
    let done = work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
    if done {
        return;
    }
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(work);
    }
}
