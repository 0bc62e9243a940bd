//! A store that delays, fails or never responds, as the test requires.
//!
//! It wraps another store, which decides. A [`Behaviour`] determines when submissions are executed
//! and which operations fail; the test may change it at any time. The store counts submissions and
//! operations.

mod behaviour;
mod counts;

use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};

use tidegate_core::{Limit, LimitError, Operation, Probe, Store, StoreResponses, Submission};
use tokio::sync::Semaphore;
use tokio::time::Instant;

pub use self::behaviour::{Behaviour, OperationContext, Timing};
use self::counts::Counts;
pub use self::counts::OperationKind;

/// A store whose timing and errors the test controls.
///
/// ```
/// use tidegate_testkit::faulty_store::{Behaviour, FaultyStore, Timing};
/// # use tidegate_core::{Operation, Store, StoreError, StoreResponses, Submission};
/// # #[derive(Debug)]
/// # struct MyStore;
/// # impl Store for MyStore {
/// #     fn submit<'a>(&'a self, _: &'a [Operation<'a>], _: &'a mut StoreResponses) -> Submission<'a> {
/// #         Submission::Ready
/// #     }
/// # }
/// let store = FaultyStore::new(MyStore, Timing::Deferred);
/// store.set(Behaviour::from(Timing::AtOnce).failing(|| StoreError::TimedOut));
/// assert_eq!(store.submissions(), 0);
/// ```
pub struct FaultyStore<S> {
    store: S,
    behaviour: Mutex<Behaviour>,
    counts: Counts,
    /// Number of operations executed or failed so far.
    executed: AtomicUsize,
    nodes: AtomicU32,
    probes: Mutex<Vec<Instant>>,
    gate: Semaphore,
    /// Cloned by every submission that waits to be executed or answered; the count is the number of
    /// references.
    in_flight: Arc<()>,
}

impl<S: Store> FaultyStore<S> {
    /// Wraps `store`.
    #[must_use]
    pub fn new(store: S, behaviour: impl Into<Behaviour>) -> Arc<Self> {
        Arc::new(Self {
            store,
            behaviour: Mutex::new(behaviour.into()),
            counts: Counts::default(),
            executed: AtomicUsize::new(0),
            nodes: AtomicU32::new(0),
            probes: Mutex::default(),
            gate: Semaphore::new(0),
            in_flight: Arc::default(),
        })
    }

    /// Returns the wrapped store.
    pub const fn inner(&self) -> &S {
        &self.store
    }

    /// Changes the behaviour. A new timing applies to later submissions; which operations fail is
    /// determined when a submission is executed.
    pub fn set(&self, behaviour: impl Into<Behaviour>) {
        *self.behaviour.lock().unwrap_or_else(PoisonError::into_inner) = behaviour.into();
    }

    /// Lets this many submissions with [`Timing::Gated`] pass, now or later.
    pub fn open(&self, submissions: usize) {
        self.gate.add_permits(submissions);
    }

    /// Number of submissions that may still pass the gate without waiting.
    pub fn gate_permits(&self) -> usize {
        self.gate.available_permits()
    }

    /// Sets the number of nodes that the store reports; zero means unknown.
    pub fn set_nodes(&self, nodes: u32) {
        self.nodes.store(nodes, Ordering::SeqCst);
    }

    /// Number of submissions so far.
    pub fn submissions(&self) -> usize {
        self.counts.submissions()
    }

    /// Number of submissions that contained an operation of this kind.
    pub fn submissions_with(&self, kind: OperationKind) -> usize {
        self.counts.submissions_with(kind)
    }

    /// Number of operations in all submissions.
    pub fn operations(&self) -> usize {
        self.counts.operations()
    }

    /// Number of operations of this kind in all submissions.
    pub fn operations_by_kind(&self, kind: OperationKind) -> usize {
        self.counts.operations_by_kind(kind)
    }

    /// Number of submissions that wait to be executed or answered.
    pub fn in_flight(&self) -> usize {
        Arc::strong_count(&self.in_flight) - 1
    }

    /// The times at which the store was probed.
    pub fn probes(&self) -> Vec<Instant> {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn behaviour(&self) -> Behaviour {
        self.behaviour.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn run(
        &self,
        timing: Timing,
        operations: &[Operation<'_>],
        responses: &mut StoreResponses,
    ) {
        let _in_flight = self.in_flight.clone();
        match timing {
            Timing::AtOnce | Timing::WhenPolled => {}
            Timing::Deferred => tokio::task::yield_now().await,
            Timing::Gated => match self.gate.acquire().await {
                Ok(permit) => permit.forget(),
                Err(_) => unreachable!("the gate is never closed"),
            },
            Timing::After(span) => tokio::time::sleep(span).await,
            Timing::Never => std::future::pending::<()>().await,
            Timing::AnsweredLate => {
                let mut buffered = StoreResponses::new();
                self.execute(operations, &mut buffered).await;
                tokio::task::yield_now().await;
                responses.extend(buffered);
                return;
            }
            Timing::RoundTrip(span) => {
                let mut buffered = StoreResponses::new();
                tokio::time::sleep(span / 2).await;
                self.execute(operations, &mut buffered).await;
                tokio::time::sleep(span / 2).await;
                responses.extend(buffered);
                return;
            }
            Timing::Each(span) => {
                for operation in operations {
                    tokio::time::sleep(span).await;
                    self.execute(&[*operation], responses).await;
                }
                return;
            }
            Timing::Unanswered => {
                self.execute(operations, &mut StoreResponses::new()).await;
                std::future::pending::<()>().await;
            }
        }
        self.execute(operations, responses).await;
    }

    /// Executes the operations on the wrapped store, except those that fail.
    async fn execute(&self, operations: &[Operation<'_>], responses: &mut StoreResponses) {
        let behaviour = self.behaviour();
        let first = self.executed.fetch_add(operations.len(), Ordering::SeqCst);
        let operations = behaviour.answered(operations);
        if behaviour.is_exact() {
            return self.store.submit(operations, responses).await;
        }
        for (index, operation) in operations.iter().enumerate() {
            let context = OperationContext { operation, index, number: first + index };
            match behaviour.error(context) {
                Some(error) => responses.push(Err(error)),
                None => behaviour.decide(&self.store, operation, responses).await,
            }
        }
    }
}

impl<S: Store> Store for FaultyStore<S> {
    fn submit<'a>(
        &'a self,
        operations: &'a [Operation<'a>],
        responses: &'a mut StoreResponses,
    ) -> Submission<'a> {
        self.counts.count(operations);
        match self.behaviour().timing(operations) {
            Timing::AtOnce => {
                complete_at_once(self.execute(operations, responses));
                Submission::Ready
            }
            timing => Submission::Pending(Box::pin(self.run(timing, operations, responses))),
        }
    }

    fn nodes(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.nodes.load(Ordering::SeqCst))
    }

    fn check_limit(&self, limit: &Limit) -> Result<(), LimitError> {
        self.inner().check_limit(limit)
    }

    fn probe(&self) -> Probe<'_> {
        let number = {
            let mut probes = self.probes.lock().unwrap_or_else(PoisonError::into_inner);
            probes.push(Instant::now());
            probes.len() - 1
        };
        let behaviour = self.behaviour();
        let answer = behaviour.probe(number);
        Box::pin(async move {
            match behaviour.timing(&[]) {
                Timing::After(span) | Timing::Each(span) | Timing::RoundTrip(span) => {
                    tokio::time::sleep(span).await;
                }
                Timing::Never | Timing::Unanswered => std::future::pending().await,
                _ => {}
            }
            answer
        })
    }
}

impl<S: fmt::Debug> fmt::Debug for FaultyStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyStore").field("store", &self.store).finish_non_exhaustive()
    }
}

/// Completes a future that is ready on its first poll.
///
/// # Panics
/// If the future is pending.
fn complete_at_once(future: impl Future<Output = ()>) {
    let poll = pin!(future).poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll.is_ready(), "the inner store must answer immediately");
}
