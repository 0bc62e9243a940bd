//! Where a pacer charges: the store of this process, at once, or a shared one, by asking it.

use std::sync::Arc;

use tidegate_core::{Answer, Answers, Operation, Store, StoreError, Time, WallTime};
use tidegate_memory::MemoryStore;
use tidegate_memory::clock::{Clock as _, wall_now};

use crate::engine::Engine;
use crate::request::ask;

/// The store of a pacer and of its claims. Made from an [`Engine`], which stays the owner.
#[derive(Clone, Debug)]
pub struct Bank(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Local(Arc<MemoryStore>),
    Shared(Arc<dyn Store>),
}

impl Bank {
    /// The store of this process, if it is one.
    pub(super) fn local(&self) -> Option<&MemoryStore> {
        match &self.0 {
            Kind::Local(store) => Some(store),
            Kind::Shared(_) => None,
        }
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Kind::Local(one), Kind::Local(other)) => Arc::ptr_eq(one, other),
            (Kind::Shared(one), Kind::Shared(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Wall time for calendar windows.
    pub(super) fn wall_time(&self) -> WallTime {
        match &self.0 {
            Kind::Local(store) => store.wall_time(),
            Kind::Shared(store) => store.wall_time(),
        }
        .unwrap_or_else(wall_now)
    }

    /// Asks the store, whichever it is.
    pub(super) async fn ask(&self, operation: Operation<'_>) -> Result<Answer, StoreError> {
        match &self.0 {
            Kind::Local(store) => ask(&**store, operation).await,
            Kind::Shared(store) => ask(&**store, operation).await,
        }
    }

    /// Asks the store several things at once.
    pub(super) async fn submit(&self, operations: &[Operation<'_>], answers: &mut Answers) {
        match &self.0 {
            Kind::Local(store) => answers.extend(operations.iter().map(|one| store.execute(one))),
            Kind::Shared(store) => store.submit(operations, answers).await,
        }
    }
}

impl From<&Engine> for Bank {
    fn from(engine: &Engine) -> Self {
        Self(Kind::Local(engine.shared_store().clone()))
    }
}

impl From<&Engine<dyn Store>> for Bank {
    fn from(engine: &Engine<dyn Store>) -> Self {
        Self(Kind::Shared(engine.shared_store().clone()))
    }
}

/// The time by which a pacer waits, and what was told to an admission expires: that of a store in
/// this process, else one of its own. Waits are told by a store as spans, so the two need not
/// agree.
#[derive(Debug)]
pub(crate) enum StoreClock {
    Store(Arc<MemoryStore>),
    #[cfg(feature = "tokio")]
    Own(crate::clock::TokioClock),
    #[cfg(not(feature = "tokio"))]
    Own(tidegate_memory::clock::SystemClock),
}

impl StoreClock {
    pub(crate) fn of(bank: &Bank) -> Self {
        match &bank.0 {
            Kind::Local(store) => Self::Store(store.clone()),
            Kind::Shared(_) => Self::Own(Default::default()),
        }
    }

    pub(crate) fn now(&self) -> Time {
        match self {
            Self::Store(store) => store.now(),
            Self::Own(clock) => clock.now(),
        }
    }
}
