//! The store that is guarded in these tests: it decides exactly while it answers, and does what
//! the test says when it does not.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::clock::TokioClock;
use tidegate::guard::{GuardBuilder, Guarded};
use tidegate::{
    Answer, Answers, Charge, Decision, Engine, Limit, Limiter, MemoryStore, Operation, Policy,
    Probe, Store, StoreError, Submission, Target,
};
use tokio::time::Instant;

pub(super) const MILLI: Duration = Duration::from_millis(1);
pub(super) const SECOND: Duration = Duration::from_secs(1);
/// The time-out of a guard unless it is set.
pub(super) const TIMEOUT: Duration = Duration::from_millis(50);

/// What the stand-in does when it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    /// Decides at once.
    Answers,
    /// Decides after a time.
    Slow(Duration),
    /// Never answers.
    Hangs,
    /// Decides, and never says so.
    Swallows,
    /// Says that it cannot work.
    Refuses,
    /// Refuses every second operation.
    Half,
    /// Has no room.
    Full,
    /// Gives no answer at all, at once.
    Silent,
    /// Decides, except about the key `odd`, with which it cannot do anything.
    Picky,
    /// Decides one operation after the other, each in this time.
    OneByOne(Duration),
}

/// A store that the test breaks and mends.
#[derive(Debug)]
pub(super) struct StandIn {
    pub(super) store: MemoryStore,
    mood: Mutex<Mood>,
    asked: AtomicUsize,
    nodes: AtomicU32,
    probes: Mutex<Vec<Instant>>,
    /// Held by every call under way.
    under_way: Arc<()>,
}

impl StandIn {
    pub(super) fn new() -> Arc<Self> {
        let store = MemoryStore::builder().clock(TokioClock::new()).build().unwrap();
        Arc::new(Self {
            store,
            mood: Mutex::new(Mood::Answers),
            asked: AtomicUsize::new(0),
            nodes: AtomicU32::new(0),
            probes: Mutex::default(),
            under_way: Arc::default(),
        })
    }

    pub(super) fn set(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    /// How many nodes the store tells of; zero: it does not know.
    pub(super) fn set_nodes(&self, nodes: u32) {
        self.nodes.store(nodes, Ordering::SeqCst);
    }

    /// How often it was asked something, probes aside.
    pub(super) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// When it was probed.
    pub(super) fn probes(&self) -> Vec<Instant> {
        self.probes.lock().unwrap().clone()
    }

    /// How many calls are under way.
    pub(super) fn under_way(&self) -> usize {
        Arc::strong_count(&self.under_way) - 1
    }

    fn mood(&self) -> Mood {
        *self.mood.lock().unwrap()
    }
}

fn refusal() -> StoreError {
    StoreError::Unavailable("connection refused".into())
}

fn rejection() -> StoreError {
    StoreError::Rejected("not of this store".into())
}

fn is_odd(operation: &Operation<'_>) -> bool {
    let odd = |target: &Target<'_>| target.key.name() == "odd";
    match operation {
        Operation::Take(charges) | Operation::Peek(charges) => {
            charges.iter().any(|charge| odd(&charge.target))
        }
        Operation::Settle { corrections, .. } => {
            corrections.iter().any(|correction| odd(&correction.target))
        }
        Operation::Hold { target, .. } | Operation::Reset { target } => odd(target),
        _ => false,
    }
}

impl Store for StandIn {
    fn submit<'a>(
        &'a self,
        operations: &'a [Operation<'a>],
        answers: &'a mut Answers,
    ) -> Submission<'a> {
        Submission::Pending(Box::pin(async move {
            let _under_way = self.under_way.clone();
            self.asked.fetch_add(1, Ordering::SeqCst);
            match self.mood() {
                Mood::Answers => self.store.submit(operations, answers).await,
                Mood::Slow(span) => {
                    tokio::time::sleep(span).await;
                    self.store.submit(operations, answers).await;
                }
                Mood::Hangs => std::future::pending().await,
                Mood::Swallows => {
                    self.store.submit(operations, &mut Answers::new()).await;
                    std::future::pending::<()>().await;
                }
                Mood::Refuses => answers.extend(operations.iter().map(|_| Err(refusal()))),
                Mood::Half => {
                    for (index, operation) in operations.iter().enumerate() {
                        let refused = index % 2 == 1;
                        answers.push(if refused {
                            Err(refusal())
                        } else {
                            self.store.execute(operation)
                        });
                    }
                }
                Mood::Full => answers.extend(operations.iter().map(|_| Err(StoreError::Full))),
                Mood::Silent => {}
                Mood::Picky => {
                    let decide = |operation| match operation {
                        operation if is_odd(operation) => Err(rejection()),
                        operation => self.store.execute(operation),
                    };
                    answers.extend(operations.iter().map(decide));
                }
                Mood::OneByOne(span) => {
                    for operation in operations {
                        tokio::time::sleep(span).await;
                        answers.push(self.store.execute(operation));
                    }
                }
            }
        }))
    }

    fn nodes(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.nodes.load(Ordering::SeqCst))
    }

    fn probe(&self) -> Probe<'_> {
        Box::pin(async move {
            self.probes.lock().unwrap().push(Instant::now());
            match self.mood() {
                Mood::Answers | Mood::Half | Mood::Full | Mood::Picky => Ok(()),
                Mood::Slow(span) | Mood::OneByOne(span) => {
                    tokio::time::sleep(span).await;
                    Ok(())
                }
                Mood::Refuses | Mood::Silent => Err(refusal()),
                Mood::Hangs | Mood::Swallows => std::future::pending().await,
            }
        })
    }
}

/// A builder whose local decisions follow tokio's time, as those of the stand-in do.
pub(super) fn guard_of(store: &Arc<StandIn>) -> GuardBuilder {
    Guarded::builder(store.clone()).clock(TokioClock::new())
}

/// A stand-in, a guard around it, and a limiter on that.
pub(super) fn guarded(policy: Policy) -> (Arc<StandIn>, Guarded, Limiter) {
    let store = StandIn::new();
    let guard = guard_of(&store).build().unwrap();
    let limiter = limiter(&guard, policy);
    (store, guard, limiter)
}

pub(super) fn limiter(guard: &Guarded, policy: Policy) -> Limiter {
    Engine::on(guard.clone()).limiter("calls", policy).unwrap()
}

/// Fails the guard's calls until it has noticed.
pub(super) async fn bring_down(store: &StandIn, guard: &Guarded) {
    store.set(Mood::Refuses);
    let nothing = Limit::inline(Policy::allowance(1).unwrap());
    for _ in 0..3 {
        let charges = [Charge::new(&nothing, "", 0)];
        let _ = one(guard, Operation::Take(&charges)).await;
    }
    assert_eq!(guard.state(), tidegate::guard::StoreState::Down);
}

/// Mends the store, and lets the guard find out.
pub(super) async fn bring_up(store: &StandIn, guard: &Guarded) {
    store.set(Mood::Answers);
    tokio::time::sleep(SECOND * 5 + TIMEOUT).await;
    assert_eq!(guard.state(), tidegate::guard::StoreState::Up);
}

/// Carries one operation out.
pub(super) async fn one(
    store: &impl Store,
    operation: Operation<'_>,
) -> Result<Answer, StoreError> {
    let mut answers = Answers::new();
    store.submit(&[operation], &mut answers).await;
    assert_eq!(answers.len(), 1, "one operation, one answer");
    answers.remove(0)
}

pub(super) async fn take(store: &impl Store, charges: &[Charge<'_>]) -> Decision {
    match one(store, Operation::Take(charges)).await {
        Ok(Answer::Decision(decision)) => decision,
        other => panic!("{other:?} is not a decision"),
    }
}

pub(super) fn per_second(tokens: u64, capacity: u64) -> Policy {
    Policy::per_second(tokens).capacity(capacity).build().unwrap()
}

pub(super) fn named(name: &str, tokens: u64, capacity: u64) -> Limit {
    Limit::named(name, per_second(tokens, capacity)).unwrap()
}
