//! The subject of a test: a store whose clock the test can set.
//!
//! Independent of the kind of store. Futures run on a current-thread runtime, so that a store
//! behind a socket is tested with the same cases as one that answers immediately.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use serde::{Deserialize, Serialize};
use tidegate_core::{Operation, Store, StoreError, StoreResponse, StoreResponses, Submission};

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

/// A store under test.
pub trait Subject: Send + Sync {
    /// The store.
    fn store(&self) -> &dyn Store;

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
    set_time: Box<dyn Fn(u64) + Send + Sync>,
}

impl<S: Store> Clocked<S> {
    /// Wraps a store. `set_time` sets its clock and its wall clock.
    pub fn new(store: S, set_time: impl Fn(u64) + Send + Sync + 'static) -> Self {
        Self { store, set_time: Box::new(set_time) }
    }
}

impl<S: Store> Subject for Clocked<S> {
    fn store(&self) -> &dyn Store {
        &self.store
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

/// Runs a future to completion on a current-thread runtime.
///
/// # Panics
/// If the runtime cannot be created.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a current-thread runtime").block_on(future)
}
