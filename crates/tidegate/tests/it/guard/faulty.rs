//! The guarded store of these tests: it decides exactly while it answers, and otherwise behaves as
//! the test says.

use std::sync::Arc;
use std::time::Duration;

use tidegate::clock::TokioClock;
use tidegate::guard::{GuardBuilder, GuardedStore};
use tidegate::{Decision, Engine, Limiter, MemoryStore, Policy, Store, StoreError};
use tidegate_core::{Charge, Limit, Operation, StoreResponse, StoreResponses, Target};
use tidegate_testkit::faulty_store::{Behaviour, FaultyStore, Timing};

pub(super) const MILLI: Duration = Duration::from_millis(1);
pub(super) const SECOND: Duration = Duration::from_secs(1);
/// Default timeout of a guard.
pub(super) const TIMEOUT: Duration = Duration::from_millis(50);

/// How the store reacts to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultMode {
    /// Decides at once.
    Answers,
    /// Decides after this time.
    Slow(Duration),
    /// Never answers.
    Hangs,
    /// Decides, but never answers.
    Swallows,
    /// Returns an error: unavailable.
    Refuses,
    /// Refuses every second operation.
    Half,
    /// Has no space.
    Full,
    /// Returns at once without any answer.
    Silent,
    /// Decides, but rejects the key `odd`.
    Picky,
    /// Decides one operation after the other, each taking this time.
    OneByOne(Duration),
}

/// The store that the test breaks and repairs.
pub(super) type Faulty = FaultyStore<MemoryStore>;

/// A store on tokio's clock that answers.
pub(super) fn faulty() -> Arc<Faulty> {
    let store = MemoryStore::builder().clock(TokioClock::new()).build().unwrap();
    FaultyStore::new(store, FaultMode::Answers)
}

impl From<FaultMode> for Behaviour {
    fn from(mode: FaultMode) -> Self {
        let polled = Self::from(Timing::WhenPolled);
        match mode {
            FaultMode::Answers => polled,
            FaultMode::Slow(span) => Timing::After(span).into(),
            FaultMode::Hangs => Timing::Never.into(),
            FaultMode::Swallows => Timing::Unanswered.into(),
            FaultMode::Refuses => polled.unavailable(),
            FaultMode::Half => polled.failing_if(|asked| (asked.index % 2 == 1).then(refusal)),
            FaultMode::Full => polled.failing_if(|_| Some(StoreError::Full)),
            FaultMode::Silent => polled.with_max_answers(0).probing(|_| Err(refusal())),
            FaultMode::Picky => polled.failing_if(|asked| is_odd(asked.operation).then(rejection)),
            FaultMode::OneByOne(span) => Timing::Each(span).into(),
        }
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

/// A builder whose local decisions follow tokio's clock, as those of the store do.
pub(super) fn guard_of(store: &Arc<Faulty>) -> GuardBuilder {
    GuardedStore::builder(store.clone()).clock(TokioClock::new())
}

/// A store, a guard around it, and a limiter on the guard.
pub(super) fn guarded(policy: Policy) -> (Arc<Faulty>, GuardedStore, Limiter) {
    let store = faulty();
    let guard = guard_of(&store).build().unwrap();
    let limiter = limiter(&guard, policy);
    (store, guard, limiter)
}

pub(super) fn limiter(guard: &GuardedStore, policy: Policy) -> Limiter {
    Engine::on(guard.clone()).limiter("calls", policy).unwrap()
}

/// Fails calls until the guard has noticed.
pub(super) async fn bring_down(store: &Faulty, guard: &GuardedStore) {
    store.set(FaultMode::Refuses);
    let nothing = Limit::inline(Policy::allowance(1).unwrap());
    for _ in 0..3 {
        let charges = [Charge::new(&nothing, "k", 0)];
        let _ = execute(guard, Operation::Take(&charges)).await;
    }
    assert!(!guard.is_up());
}

/// Repairs the store, and waits until the guard has noticed.
pub(super) async fn bring_up(store: &Faulty, guard: &GuardedStore) {
    store.set(FaultMode::Answers);
    tokio::time::sleep(SECOND * 5 + TIMEOUT).await;
    assert!(guard.is_up());
}

/// Runs one operation.
pub(super) async fn execute(
    store: &impl Store,
    operation: Operation<'_>,
) -> Result<StoreResponse, StoreError> {
    let mut answers = StoreResponses::new();
    store.submit(&[operation], &mut answers).await;
    assert_eq!(answers.len(), 1, "one operation, one answer");
    answers.remove(0)
}

pub(super) async fn take(store: &impl Store, charges: &[Charge<'_>]) -> Decision {
    match execute(store, Operation::Take(charges)).await {
        Ok(StoreResponse::Decision(decision)) => decision,
        other => panic!("{other:?} is not a decision"),
    }
}

pub(super) fn per_second(tokens: u64, capacity: u64) -> Policy {
    Policy::per_second(tokens).capacity(capacity).build().unwrap()
}

pub(super) fn named(name: &str, tokens: u64, capacity: u64) -> Limit {
    Limit::named(name, per_second(tokens, capacity)).unwrap()
}
