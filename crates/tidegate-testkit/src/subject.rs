//! The subject of a test: a store whose clock the test can set, and the contract that it implements.
//!
//! Independent of the kind of store. Futures run on a current-thread runtime, so that a store
//! behind a socket is tested with the same cases as one that answers immediately.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use serde::{Deserialize, Serialize};
use tidegate_core::{
    Decision, Operation, Store, StoreError, StoreResponse, StoreResponses, Submission, TakeOnly,
    TakeStore,
};

/// A boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The resolution of a store's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// Nanoseconds.
    #[default]
    Ns,
    /// Microseconds.
    Us,
    /// Milliseconds.
    Ms,
}

impl Resolution {
    /// The resolution in nanoseconds.
    #[must_use]
    pub const fn nanos(self) -> u64 {
        match self {
            Self::Ns => 1,
            Self::Us => 1_000,
            Self::Ms => 1_000_000,
        }
    }
}

/// The contract that a store implements. The greater one includes the smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contract {
    /// [`TakeStore`]: takes from and peeks at one token bucket.
    TakeStore,
    /// [`Store`]: every operation, on lists, under policies of every kind.
    Store,
}

/// A store under test.
pub trait Subject: Send + Sync {
    /// The store.
    fn store(&self) -> &dyn Store;

    /// The contract that the store implements; checks beyond it are left out.
    fn contract(&self) -> Contract {
        Contract::Store
    }

    /// The resolution of its clock.
    fn resolution(&self) -> Resolution;

    /// Sets the clock and the wall clock of the store, in nanoseconds since the Unix epoch. The
    /// value is a multiple of the resolution, and may be earlier than the previous one.
    fn set_time(&self, nanos: u64) -> BoxFuture<'_, ()>;
}

impl<S: Subject + ?Sized> Subject for Box<S> {
    fn store(&self) -> &dyn Store {
        (**self).store()
    }

    fn contract(&self) -> Contract {
        (**self).contract()
    }

    fn resolution(&self) -> Resolution {
        (**self).resolution()
    }

    fn set_time(&self, nanos: u64) -> BoxFuture<'_, ()> {
        (**self).set_time(nanos)
    }
}

/// An in-process store with nanosecond resolution, and a function that sets its clocks.
pub struct Clocked<S> {
    store: S,
    contract: Contract,
    set_time: Box<dyn Fn(u64) + Send + Sync>,
}

impl<S: Store> Clocked<S> {
    /// Wraps a store. `set_time` sets its clock and its wall clock.
    pub fn new(store: S, set_time: impl Fn(u64) + Send + Sync + 'static) -> Self {
        Self { store, contract: Contract::Store, set_time: Box::new(set_time) }
    }
}

impl<S: TakeStore> Clocked<TakeOnly<S>> {
    /// Wraps a store that takes only. `set_time` sets its clock.
    pub fn take_only(store: S, set_time: impl Fn(u64) + Send + Sync + 'static) -> Self {
        let set_time = Box::new(set_time);
        Self { store: TakeOnly(store), contract: Contract::TakeStore, set_time }
    }
}

impl<S: Store> Subject for Clocked<S> {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn contract(&self) -> Contract {
        self.contract
    }

    fn resolution(&self) -> Resolution {
        Resolution::Ns
    }

    fn set_time(&self, nanos: u64) -> BoxFuture<'_, ()> {
        (self.set_time)(nanos);
        Box::pin(std::future::ready(()))
    }
}

impl<S: fmt::Debug> fmt::Debug for Clocked<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clocked").field("store", &self.store).finish_non_exhaustive()
    }
}

/// Executes one operation.
///
/// # Errors
/// The error of the store.
///
/// # Panics
/// If the store does not return exactly one answer.
pub async fn execute(
    store: &dyn Store,
    operation: Operation<'_>,
) -> Result<StoreResponse, StoreError> {
    let operations = [operation];
    let mut answers = StoreResponses::new();
    store.submit(&operations, &mut answers).await;
    assert_eq!(answers.len(), 1, "one operation, one answer");
    answers.remove(0)
}

/// Executes one operation from a thread without a runtime. A runtime is created only if the store
/// does not answer immediately.
///
/// # Errors
/// The error of the store.
///
/// # Panics
/// If the store does not return exactly one answer.
pub fn execute_blocking(
    store: &dyn Store,
    operation: Operation<'_>,
) -> Result<StoreResponse, StoreError> {
    let operations = [operation];
    let mut answers = StoreResponses::new();
    match store.submit(&operations, &mut answers) {
        Submission::Ready => {}
        Submission::Pending(future) => block_on(future),
    }
    assert_eq!(answers.len(), 1, "one operation, one answer");
    answers.remove(0)
}

/// Executes an operation that must return a decision.
pub(crate) async fn decision(store: &dyn Store, operation: Operation<'_>) -> Decision {
    match execute(store, operation).await {
        Ok(StoreResponse::Decision(decision)) => decision,
        other => panic!("{other:?} is not a decision"),
    }
}

/// Polls all futures in turn until all are done.
pub(crate) async fn together<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut waiting: Vec<Pin<Box<_>>> = futures.into_iter().map(Box::pin).collect();
    let mut done = Vec::new();
    poll_fn(move |context| {
        waiting.retain_mut(|future| match future.as_mut().poll(context) {
            Poll::Ready(value) => {
                done.push(value);
                false
            }
            Poll::Pending => true,
        });
        if waiting.is_empty() { Poll::Ready(std::mem::take(&mut done)) } else { Poll::Pending }
    })
    .await
}

/// Runs a future to completion on a current-thread runtime.
///
/// # Panics
/// If the runtime cannot be created.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a current-thread runtime").block_on(future)
}
