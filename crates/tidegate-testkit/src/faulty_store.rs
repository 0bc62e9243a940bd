//! A store that answers late, fails or does not answer at all, as the test says.
//!
//! It stands in front of another store, which decides. A [`Behaviour`] says when submissions are
//! carried out and which operations fail; the test may change it at any time. The store counts what
//! it is asked.

mod behaviour;
mod counts;

use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};

use tidegate_core::{Answers, Operation, Probe, Store, Submission};
use tokio::sync::Semaphore;
use tokio::time::Instant;

pub use self::behaviour::{Asked, Behaviour, Timing};
use self::counts::Counts;
pub use self::counts::Verb;

/// A store that does what the test says.
///
/// ```
/// use tidegate_testkit::faulty_store::{Behaviour, FaultyStore, Timing};
/// # use tidegate_core::{Answers, Operation, Store, StoreError, Submission};
/// # #[derive(Debug)]
/// # struct MyStore;
/// # impl Store for MyStore {
/// #     fn submit<'a>(&'a self, _: &'a [Operation<'a>], _: &'a mut Answers) -> Submission<'a> {
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
    /// What has been carried out so far, in operations.
    carried_out: AtomicUsize,
    nodes: AtomicU32,
    probes: Mutex<Vec<Instant>>,
    gate: Semaphore,
    /// Held by every submission that waits to be carried out or answered.
    in_flight: Arc<()>,
}

impl<S: Store> FaultyStore<S> {
    /// A store in front of this one.
    #[must_use]
    pub fn new(store: S, behaviour: impl Into<Behaviour>) -> Arc<Self> {
        Arc::new(Self {
            store,
            behaviour: Mutex::new(behaviour.into()),
            counts: Counts::default(),
            carried_out: AtomicUsize::new(0),
            nodes: AtomicU32::new(0),
            probes: Mutex::default(),
            gate: Semaphore::new(0),
            in_flight: Arc::default(),
        })
    }

    /// The store that decides.
    pub const fn inner(&self) -> &S {
        &self.store
    }

    /// Changes the behaviour. The timing counts for later submissions; what fails is decided when a
    /// submission is carried out.
    pub fn set(&self, behaviour: impl Into<Behaviour>) {
        *self.behaviour.lock().unwrap_or_else(PoisonError::into_inner) = behaviour.into();
    }

    /// Lets so many submissions pass that wait, or will wait, by [`Timing::Gated`].
    pub fn open(&self, submissions: usize) {
        self.gate.add_permits(submissions);
    }

    /// How many submissions may pass the gate without waiting.
    pub fn unused_openings(&self) -> usize {
        self.gate.available_permits()
    }

    /// How many nodes the store tells of; zero: it does not know.
    pub fn set_nodes(&self, nodes: u32) {
        self.nodes.store(nodes, Ordering::SeqCst);
    }

    /// How many submissions there were.
    pub fn submissions(&self) -> usize {
        self.counts.submissions()
    }

    /// How many submissions had such an operation.
    pub fn submissions_with(&self, verb: Verb) -> usize {
        self.counts.submissions_with(verb)
    }

    /// How many operations there were in all submissions.
    pub fn operations(&self) -> usize {
        self.counts.operations()
    }

    /// How many operations of this kind there were in all submissions.
    pub fn operations_of(&self, verb: Verb) -> usize {
        self.counts.operations_of(verb)
    }

    /// How many submissions are waiting to be carried out or answered.
    pub fn in_flight(&self) -> usize {
        Arc::strong_count(&self.in_flight) - 1
    }

    /// When the store was probed.
    pub fn probes(&self) -> Vec<Instant> {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn behaviour(&self) -> Behaviour {
        self.behaviour.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn run(&self, timing: Timing, operations: &[Operation<'_>], answers: &mut Answers) {
        let _in_flight = self.in_flight.clone();
        match timing {
            Timing::AtOnce | Timing::WhenPolled => {}
            Timing::Deferred => tokio::task::yield_now().await,
            Timing::Gated => match self.gate.acquire().await {
                Ok(opening) => opening.forget(),
                Err(_) => unreachable!("the gate is never closed"),
            },
            Timing::After(span) => tokio::time::sleep(span).await,
            Timing::Never => std::future::pending::<()>().await,
            Timing::AnsweredLate => {
                let mut late = Answers::new();
                self.carry_out(operations, &mut late).await;
                tokio::task::yield_now().await;
                answers.extend(late);
                return;
            }
            Timing::RoundTrip(span) => {
                let mut late = Answers::new();
                tokio::time::sleep(span / 2).await;
                self.carry_out(operations, &mut late).await;
                tokio::time::sleep(span / 2).await;
                answers.extend(late);
                return;
            }
            Timing::Each(span) => {
                for operation in operations {
                    tokio::time::sleep(span).await;
                    self.carry_out(&[*operation], answers).await;
                }
                return;
            }
            Timing::Unanswered => {
                self.carry_out(operations, &mut Answers::new()).await;
                std::future::pending::<()>().await;
            }
        }
        self.carry_out(operations, answers).await;
    }

    /// Lets the store decide, except for what fails.
    async fn carry_out(&self, operations: &[Operation<'_>], answers: &mut Answers) {
        let behaviour = self.behaviour();
        let first = self.carried_out.fetch_add(operations.len(), Ordering::SeqCst);
        let operations = behaviour.answered(operations);
        if behaviour.is_exact() {
            return self.store.submit(operations, answers).await;
        }
        for (index, operation) in operations.iter().enumerate() {
            let asked = Asked { operation, index, number: first + index };
            match behaviour.error(asked) {
                Some(error) => answers.push(Err(error)),
                None => behaviour.decide(&self.store, operation, answers).await,
            }
        }
    }
}

impl<S: Store> Store for FaultyStore<S> {
    fn submit<'a>(
        &'a self,
        operations: &'a [Operation<'a>],
        answers: &'a mut Answers,
    ) -> Submission<'a> {
        self.counts.count(operations);
        match self.behaviour().timing(operations) {
            Timing::AtOnce => {
                at_once(self.carry_out(operations, answers));
                Submission::Ready
            }
            timing => Submission::Pending(Box::pin(self.run(timing, operations, answers))),
        }
    }

    fn nodes(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.nodes.load(Ordering::SeqCst))
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

/// Drives a future that needs nobody to the end.
///
/// # Panics
/// If it has to wait.
fn at_once(future: impl Future<Output = ()>) {
    let poll = pin!(future).poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll.is_ready(), "the inner store answers at once");
}
