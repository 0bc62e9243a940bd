//! The store that is guarded in these tests: it decides exactly while it answers, and does what
//! the test says when it does not.

use std::sync::Arc;
use std::time::Duration;

use tidegate::clock::TokioClock;
use tidegate::guard::{GuardBuilder, Guarded};
use tidegate::{Decision, Engine, Limiter, MemoryStore, Policy, Store, StoreError};
use tidegate_core::{Answer, Answers, Charge, Limit, Operation, Target};
use tidegate_testkit::faulty_store::{Behaviour, FaultyStore, Timing};

pub(super) const MILLI: Duration = Duration::from_millis(1);
pub(super) const SECOND: Duration = Duration::from_secs(1);
/// The time-out of a guard unless it is set.
pub(super) const TIMEOUT: Duration = Duration::from_millis(50);

/// What the store does when it is asked.
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

/// The store that the test breaks and mends.
pub(super) type Faulty = FaultyStore<MemoryStore>;

/// A store on tokio's time that answers.
pub(super) fn faulty() -> Arc<Faulty> {
    let store = MemoryStore::builder().clock(TokioClock::new()).build().unwrap();
    FaultyStore::new(store, Mood::Answers)
}

impl From<Mood> for Behaviour {
    fn from(mood: Mood) -> Self {
        let polled = Self::from(Timing::WhenPolled);
        match mood {
            Mood::Answers => polled,
            Mood::Slow(span) => Timing::After(span).into(),
            Mood::Hangs => Timing::Never.into(),
            Mood::Swallows => Timing::Unanswered.into(),
            Mood::Refuses => polled.unavailable(),
            Mood::Half => polled.failing_if(|asked| (asked.index % 2 == 1).then(refusal)),
            Mood::Full => polled.failing_if(|_| Some(StoreError::Full)),
            Mood::Silent => polled.answering_at_most(0).probing(|_| Err(refusal())),
            Mood::Picky => polled.failing_if(|asked| is_odd(asked.operation).then(rejection)),
            Mood::OneByOne(span) => Timing::Each(span).into(),
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

/// A builder whose local decisions follow tokio's time, as those of the store do.
pub(super) fn guard_of(store: &Arc<Faulty>) -> GuardBuilder {
    Guarded::builder(store.clone()).clock(TokioClock::new())
}

/// A store, a guard around it, and a limiter on that.
pub(super) fn guarded(policy: Policy) -> (Arc<Faulty>, Guarded, Limiter) {
    let store = faulty();
    let guard = guard_of(&store).build().unwrap();
    let limiter = limiter(&guard, policy);
    (store, guard, limiter)
}

pub(super) fn limiter(guard: &Guarded, policy: Policy) -> Limiter {
    Engine::on(guard.clone()).limiter("calls", policy).unwrap()
}

/// Fails the guard's calls until it has noticed.
pub(super) async fn bring_down(store: &Faulty, guard: &Guarded) {
    store.set(Mood::Refuses);
    let nothing = Limit::inline(Policy::allowance(1).unwrap());
    for _ in 0..3 {
        let charges = [Charge::new(&nothing, "k", 0)];
        let _ = one(guard, Operation::Take(&charges)).await;
    }
    assert!(!guard.is_up());
}

/// Mends the store, and lets the guard find out.
pub(super) async fn bring_up(store: &Faulty, guard: &Guarded) {
    store.set(Mood::Answers);
    tokio::time::sleep(SECOND * 5 + TIMEOUT).await;
    assert!(guard.is_up());
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
