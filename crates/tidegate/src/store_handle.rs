//! The store of an engine: the in-process store, or a shared one.
//!
//! A local store is called directly and answers before the call returns. A shared store is a
//! [`Store`] behind a pointer, and has to be awaited.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use tidegate_core::{
    Limit, LimitError, Operation, Store, StoreError, StoreResponse, StoreResponses, Time, WallTime,
};
use tidegate_memory::MemoryStore;
use tidegate_memory::clock::{Clock as _, ClockWatcher, wall_now};

/// Where the buckets of an [`Engine`](crate::Engine) are stored. Cheap to clone; clones refer to
/// the same store.
///
/// ```
/// use std::sync::Arc;
/// use tidegate::{MemoryStore, StoreHandle};
/// assert!(StoreHandle::from(MemoryStore::new()).local().is_some());
/// assert!(StoreHandle::shared(Arc::new(MemoryStore::new())).local().is_none());
/// ```
#[derive(Clone, Debug)]
pub struct StoreHandle(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Local(Arc<MemoryStore>),
    Shared(Arc<dyn Store>),
}

impl StoreHandle {
    /// Wraps a store that has to be awaited: one that several processes share, or any other
    /// [`Store`].
    #[must_use]
    pub fn shared(store: Arc<dyn Store>) -> Self {
        Self(Kind::Shared(store))
    }

    /// The in-process store; `None` if the store is shared.
    #[must_use]
    #[inline]
    pub fn local(&self) -> Option<&MemoryStore> {
        match &self.0 {
            Kind::Local(store) => Some(store),
            Kind::Shared(_) => None,
        }
    }

    /// Whether both handles refer to the same store.
    #[must_use]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Kind::Local(one), Kind::Local(other)) => Arc::ptr_eq(one, other),
            (Kind::Shared(one), Kind::Shared(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Wall time from which calendar windows are computed: the store's, if it has one, else the
    /// machine's.
    pub(crate) fn wall_time(&self) -> WallTime {
        match &self.0 {
            Kind::Local(store) => store.wall_time(),
            Kind::Shared(store) => store.wall_time(),
        }
        .unwrap_or_else(wall_now)
    }

    /// Checks whether the store can decide a limit.
    pub(crate) fn check_limit(&self, limit: &Limit) -> Result<(), LimitError> {
        match &self.0 {
            Kind::Local(_) => Ok(()),
            Kind::Shared(store) => store.check_limit(limit),
        }
    }

    /// Runs one operation.
    pub(crate) async fn execute(
        &self,
        operation: Operation<'_>,
    ) -> Result<StoreResponse, StoreError> {
        match &self.0 {
            Kind::Local(store) => store.execute(&operation),
            Kind::Shared(store) => {
                let mut answers = StoreResponses::new();
                store.submit(&[operation], &mut answers).await;
                answers.pop().unwrap_or_else(|| Err(missing_response()))
            }
        }
    }

    /// Runs several operations; one answer is pushed for each.
    pub(crate) async fn submit(&self, operations: &[Operation<'_>], answers: &mut StoreResponses) {
        match &self.0 {
            Kind::Local(store) => store.submit(operations, answers).await,
            Kind::Shared(store) => store.submit(operations, answers).await,
        }
    }

    /// Runs work on this store in the background: on a local store it completes before this
    /// returns, on a shared store it runs in a task. Returns `false` if the work was dropped,
    /// because the store is shared and there is no tokio runtime to spawn the task on.
    ///
    /// The work must not await anything but this store.
    ///
    /// ```
    /// use tidegate::{Engine, Policy};
    /// let engine = Engine::new();
    /// let limiter = engine.limiter("api", Policy::per_second(1).capacity(5).build()?)?;
    /// let refund = limiter.clone();
    /// assert!(engine.store().detach(async move {
    ///     let _ = refund.settle("alice", -1, None).await;
    /// }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn detach(&self, work: impl Future<Output = ()> + Send + 'static) -> bool {
        if self.local().is_some() {
            return now_or_never(work).is_some();
        }
        #[cfg(feature = "tokio")]
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(work);
            return true;
        }
        false
    }
}

impl From<MemoryStore> for StoreHandle {
    fn from(store: MemoryStore) -> Self {
        Self::from(Arc::new(store))
    }
}

impl From<Arc<MemoryStore>> for StoreHandle {
    fn from(store: Arc<MemoryStore>) -> Self {
        Self(Kind::Local(store))
    }
}

#[cfg(feature = "tokio")]
impl From<crate::guard::GuardedStore> for StoreHandle {
    fn from(store: crate::guard::GuardedStore) -> Self {
        Self::shared(Arc::new(store))
    }
}

/// Polls a future once and returns its value if it is ready. Futures that await nothing but a
/// [local](StoreHandle::local) store always are. A pending future is dropped, and the result is
/// `None`.
///
/// ```
/// assert_eq!(tidegate::now_or_never(async { 1 }), Some(1));
/// assert_eq!(tidegate::now_or_never(std::future::pending::<()>()), None);
/// ```
#[inline]
pub fn now_or_never<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// The error of an operation for which the store returned no response.
pub(crate) fn missing_response() -> StoreError {
    StoreError::Unavailable("the store returned fewer responses than operations".into())
}

/// The clock for the waits of a pacer and for the expiry of a pending count: the clock of a local
/// store, else one of its own. A shared store reports waits as durations, so the two clocks need
/// not agree.
#[derive(Debug)]
pub(crate) enum StoreClock {
    Store(Arc<MemoryStore>),
    #[cfg(feature = "tokio")]
    Own(crate::clock::TokioClock),
    #[cfg(not(feature = "tokio"))]
    Own(tidegate_memory::clock::SystemClock),
}

impl StoreClock {
    pub(crate) fn of(store: &StoreHandle) -> Self {
        match &store.0 {
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

    /// Registers a watcher, if the time moves only when a program says so. Returns whether it does.
    pub(crate) fn watch(&self, watcher: Weak<dyn ClockWatcher>) -> bool {
        match self {
            Self::Store(store) => store.watch_clock(watcher),
            Self::Own(_) => false,
        }
    }
}
