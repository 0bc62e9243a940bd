//! Several requests in one batch: the same results as one by one, in one call to the store.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tidegate::clock::ManualClock;
use tidegate::{
    Batch, Decision, Engine, Limiter, MemoryStore, Policy, Request, Retry, Schedule, StoreError,
    StoreHandle,
};
use tidegate_core::{ChargeError, StoreResponse, WallTime};
use tidegate_testkit::faulty_store::{Behaviour, FaultyStore, Timing};

fn per_second(capacity: u64) -> Policy {
    Policy::per_second(1).capacity(capacity).build().unwrap()
}

fn on_manual_clock() -> (Engine, ManualClock) {
    let clock = ManualClock::new();
    // 2026-11-16 07:00 UTC.
    clock.set_wall(WallTime::from_secs(1_794_812_400));
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    (Engine::on(Arc::new(store)), clock)
}

/// The limiters that the generated requests use: a bucket, a daily quota, an allowance.
fn limiters() -> ([Limiter; 3], ManualClock) {
    let (engine, clock) = on_manual_clock();
    let daily = Schedule::daily("America/Los_Angeles").unwrap();
    let limiters = [
        engine.limiter("bucket", per_second(10)).unwrap(),
        engine.calendar("daily", 10, daily).unwrap(),
        engine.limiter("allowance", Policy::allowance(10).unwrap()).unwrap(),
    ];
    (limiters, clock)
}

#[derive(Clone, Copy, Debug)]
struct Step {
    verb: u8,
    limiter: usize,
    key: usize,
    amount: u8,
}

impl Step {
    fn request(self, limiters: &[Limiter; 3]) -> Request<'_, StoreResponse> {
        let (limiter, key) = (&limiters[self.limiter], ["alice", "bob", "carol"][self.key]);
        let cost = u64::from(self.amount);
        match self.verb {
            0 | 1 => limiter.take(key).cost(cost).into_any(),
            2 => limiter.peek(key).cost(cost).into_any(),
            3 => limiter.reserve(key, Duration::from_secs(5)).cost(cost).into_any(),
            4 => limiter.settle(key, i64::from(self.amount) - 4, None).into_any(),
            5 => limiter.hold(key, Duration::from_secs(cost)).into_any(),
            _ => limiter.reset(key).into_any(),
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..7_u8, 0..3_usize, 0..3_usize, 0..9_u8)
        .prop_map(|(verb, limiter, key, amount)| Step { verb, limiter, key, amount });
    proptest::collection::vec(step, 1..40)
}

/// An answer without its receipt, which depends on the issuing store.
fn summary(answer: Result<StoreResponse, StoreError>) -> String {
    match answer {
        Ok(StoreResponse::Decision(Decision::Allowed(grant))) => {
            format!("allowed {:?} {:?}", grant.wait, grant.outcomes)
        }
        answer => format!("{answer:?}"),
    }
}

proptest! {
    #[test]
    fn a_batch_gives_the_same_results_as_single_requests(batches in proptest::collection::vec(steps(), 1..6)) {
        let ((batched, clock), (single, other_clock)) = (limiters(), limiters());
        for steps in batches {
            let batch: Batch<'_, _> = steps.iter().map(|step| step.request(&batched)).collect();
            prop_assert_eq!(batch.len(), steps.len());
            let together: Vec<_> = batch.now().into_iter().map(summary).collect();
            let one_by_one: Vec<_> =
                steps.iter().map(|step| summary(step.request(&single).now())).collect();
            prop_assert_eq!(together, one_by_one);
            for clock in [&clock, &other_clock] {
                clock.advance(Duration::from_millis(1_700));
            }
        }
    }
}

#[tokio::test]
async fn a_batch_is_one_call_to_the_store() {
    let store = FaultyStore::new(MemoryStore::new(), Timing::AtOnce);
    let engine = Engine::on(StoreHandle::shared(store.clone()));
    let (api, jobs) = (
        engine.limiter("api", per_second(3)).unwrap(),
        engine.limiter("jobs", per_second(1)).unwrap(),
    );
    let list = || [api.charge("alice", 2), jobs.charge("alice", 1)];
    let batch =
        Batch::new().with(api.take("alice")).with(engine.take(list())).with(engine.take(list()));
    assert_eq!(store.submissions(), 0, "nothing happens before it is awaited");
    let decisions = batch.await.into_iter().map(Result::unwrap);
    assert_eq!(decisions.map(|one| one.is_allowed()).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(store.submissions(), 1);
    assert!(Batch::<Decision>::new().await.is_empty());
    assert_eq!(store.submissions(), 1, "an empty batch makes no call");
}

#[test]
fn an_invalid_request_fails_only_itself() {
    let (engine, _clock) = on_manual_clock();
    let api = engine.limiter("api", per_second(2)).unwrap();
    let answers = Batch::new()
        .with(api.take("alice"))
        .with(engine.take([]))
        .with(api.take("alice").cost(2))
        .with(api.take("alice"))
        .now();
    assert!(matches!(answers[1], Err(StoreError::Charge(ChargeError::Empty))));
    let allowed = |index: usize| answers[index].as_ref().unwrap().is_allowed();
    assert_eq!([0, 2, 3].map(allowed), [true, false, true]);
}

#[tokio::test]
async fn an_unanswered_operation_is_an_error_at_its_index() {
    let behaviour = Behaviour::from(Timing::AtOnce).with_max_answers(1);
    let store = FaultyStore::new(MemoryStore::new(), behaviour);
    let engine = Engine::on(StoreHandle::shared(store));
    let api = engine.limiter("api", per_second(2)).unwrap();
    let answers = Batch::from_iter(["alice", "bob"].map(|key| api.take(key))).await;
    assert_eq!(answers.len(), 2);
    assert!(answers[0].as_ref().unwrap().is_allowed());
    assert!(matches!(answers[1], Err(StoreError::Unavailable(_))));
}

/// Time used to go backwards within a batch: a new key was charged at a later clock reading than
/// the one that decided the following request, which was then denied for some nanoseconds.
#[test]
fn time_never_goes_backwards_within_a_batch() {
    for limiter in (1..=64).map(|capacity| Limiter::new(per_second(capacity))) {
        let capacity = limiter.policy().capacity();
        let answers = Batch::from_iter((0..capacity).map(|_| limiter.take("new"))).now();
        let allowed = answers.iter().filter(|answer| answer.as_ref().unwrap().is_allowed());
        assert_eq!(allowed.count(), answers.len(), "of a bucket of {capacity}");
    }
}

#[test]
fn a_batch_may_span_two_stores() {
    let [one, other] = [2, 1].map(|capacity| Limiter::new(Policy::allowance(capacity).unwrap()));
    let takes = [one.take("k"), one.take("k"), other.take("k"), other.take("k"), one.take("k")];
    let decisions = Batch::from_iter(takes).now().into_iter().map(Result::unwrap);
    let allowed: Vec<bool> = decisions.map(|decision| decision.is_allowed()).collect();
    assert_eq!(allowed, [true, true, true, false, false]);
}

#[test]
fn answers_convert_only_to_their_own_type() {
    let limiter = Limiter::new(per_second(2));
    let mut answers =
        Batch::new().with(limiter.take("k").into_any()).with(limiter.reset("k").into_any()).now();
    let (reset, taken) = (answers.pop().unwrap().unwrap(), answers.pop().unwrap().unwrap());
    assert!(Decision::try_from(taken.clone()).unwrap().is_allowed());
    assert!(bool::try_from(reset).unwrap());
    assert!(bool::try_from(taken).is_err());
}

/// Requests of one batch also use the quota of the current window.
#[test]
fn a_batch_uses_the_current_calendar_window() {
    let (engine, clock) = on_manual_clock();
    let schedule = Schedule::daily("America/Los_Angeles").unwrap();
    let daily = engine.calendar("daily", 2, schedule).unwrap();
    let round = || Batch::from_iter((0..3).map(|_| daily.take("x"))).now();
    let allowed = |answers: Vec<Result<Decision, StoreError>>| {
        answers.into_iter().filter(|answer| answer.as_ref().unwrap().is_allowed()).count()
    };
    let before = round();
    assert_eq!(before[2].as_ref().unwrap().retry(), Some(Retry::After(Duration::from_secs(3_600))));
    assert_eq!(allowed(before), 2);
    clock.advance(Duration::from_secs(3_600));
    assert_eq!(allowed(round()), 2);
}

#[test]
fn concurrent_batches_never_overspend() {
    let engine = Engine::new();
    let quota = Policy::allowance(1_000).unwrap();
    let limiters = ["one", "two"].map(|name| engine.limiter(name, quota).unwrap());
    let spent: usize = std::thread::scope(|scope| {
        let rush = || {
            let round = |_| {
                let takes = (0..32).map(|number| limiters[number % 2].take("k"));
                let answers = Batch::from_iter(takes).now().into_iter();
                answers.filter(|answer| answer.as_ref().unwrap().is_allowed()).count()
            };
            (0..40).map(round).sum::<usize>()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(rush)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(spent, 2_000);
}
