//! Arrival order, exact times, one wake-up each, and no effect on others.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::clock::TokioClock;
use tidegate::pacer::Pacer;
use tidegate::{Batch, Engine, MemoryStore, Policy, Retry};

use super::manual::{ManualEngine, Waiter};

const SECOND: Duration = Duration::from_secs(1);

/// R15, R16: the k-th of a thousand waiters goes after k seconds and is woken once.
#[test]
fn a_thousand_waiters_go_in_order_and_are_woken_once() {
    let manual = ManualEngine::new();
    let (pacer, limiter) = (manual.pacer(), manual.per_second("calls", 1, 1));
    let _first = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    let mut waiters: Vec<Waiter> = (0..1_000)
        .map(|_| Waiter::join(pacer.acquire([limiter.charge("k", 1)])).unwrap())
        .collect();
    assert_eq!(pacer.gauges().waiting, 1_000);
    for turn in 0..1_000_usize {
        manual.run(&pacer, SECOND);
        let woken = waiters.iter().filter(|waiter| waiter.wakes() > 0).count();
        assert_eq!(woken, turn + 1, "one grant a second");
        let permit = waiters[turn].poll().expect("in order of arrival").unwrap();
        assert_eq!(permit.waited(), SECOND * (u32::try_from(turn).unwrap() + 1));
    }
    assert_eq!(waiters.iter().map(Waiter::wakes).sum::<usize>(), 1_000);
    assert_eq!(pacer.gauges().waiting, 0);
}

/// Tasks on tokio's own timers are granted in the same order, in paused time.
#[tokio::test(start_paused = true)]
async fn tasks_are_granted_in_order_under_paused_time() {
    let store = MemoryStore::builder().clock(TokioClock::new()).build().unwrap();
    let engine = Engine::on(Arc::new(store));
    let calls = engine.limiter("calls", Policy::per_second(1).build().unwrap()).unwrap();
    let pacer = Pacer::new(&engine);
    let _first = pacer.acquire([calls.charge("k", 1)]).await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let start = tokio::time::Instant::now();
    let tasks: Vec<_> = (0..1_000_u64)
        .map(|number| {
            let (pacer, calls, order) = (pacer.clone(), calls.clone(), order.clone());
            tokio::spawn(async move {
                let permit = pacer.acquire([calls.charge("k", 1)]).await.unwrap();
                order.lock().unwrap().push((number, start.elapsed().as_secs()));
                assert_eq!(permit.waited().as_secs(), number + 1);
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let expected: Vec<_> = (0..1_000).map(|number| (number, number + 1)).collect();
    assert_eq!(*order.lock().unwrap(), expected);
}

/// R17: waiters hold no lock while they sleep. Under a manual clock that stands still, a request
/// next to them must complete at once or it never will.
#[test]
fn waiters_do_not_block_other_requests() {
    let manual = ManualEngine::new();
    let (pacer, limiter) = (manual.pacer(), manual.per_second("calls", 1, 1));
    let _first = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    let sleepers: Vec<Waiter> = (0..1_000)
        .map(|_| Waiter::join(pacer.acquire([limiter.charge("k", 1)])).unwrap())
        .collect();
    assert_eq!(limiter.peek("k").cost(0).now().unwrap().remaining(), 0);
    let other = manual.pacer();
    assert!(other.acquire([limiter.charge("other", 1)]).now().is_ok());
    assert_eq!(sleepers.iter().map(Waiter::wakes).sum::<usize>(), 0);
}

/// R4, R5, R7, R8: immediate grants wait zero, others exactly the deficit.
#[test]
fn waits_are_exact() {
    let manual = ManualEngine::new();
    let (pacer, limiter) = (manual.pacer(), manual.per_second("calls", 2, 2));
    for _ in 0..2 {
        let permit = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
        assert_eq!((permit.waited(), permit.wait_parts().len()), (Duration::ZERO, 0));
    }
    let mut waiters: Vec<_> =
        (0..4).map(|_| Waiter::join(pacer.acquire([limiter.charge("k", 1)])).unwrap()).collect();
    manual.run(&pacer, SECOND * 2);
    let waits: Vec<_> =
        waiters.iter_mut().map(|w| w.poll().unwrap().unwrap().waited().as_millis()).collect();
    assert_eq!(waits, [500, 1_000, 1_500, 2_000]);
}

/// R7: of a token that is partly there, only the rest is waited for.
#[test]
fn a_fraction_of_a_token_shortens_the_wait() {
    let manual = ManualEngine::new();
    let (pacer, limiter) = (manual.pacer(), manual.per_second("calls", 1, 1));
    let _first = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    manual.clock.advance(SECOND / 4);
    let mut second = Waiter::join(pacer.acquire([limiter.charge("k", 1)])).unwrap();
    manual.run(&pacer, SECOND);
    assert_eq!(second.poll().unwrap().unwrap().waited(), SECOND * 3 / 4);
}

/// A large request is overtaken neither by a smaller one nor by one that does not wait.
#[test]
fn a_large_request_is_not_overtaken() {
    let manual = ManualEngine::new();
    let (pacer, limiter) = (manual.pacer(), manual.per_second("tokens", 1, 10));
    let _spent = pacer.acquire([limiter.charge("k", 9)]).now().unwrap();
    let mut large = Waiter::join(pacer.acquire([limiter.charge("k", 10)])).unwrap();
    assert_eq!(limiter.take("k").cost(0).now().unwrap().remaining(), 1, "one token is there");
    assert!(
        pacer.acquire([limiter.charge("k", 1)]).now().is_err(),
        "it is reserved for the large request"
    );
    let denied = limiter.take("k").now().unwrap();
    assert_eq!(
        denied.retry(),
        Some(Retry::After(SECOND * 10)),
        "not available to a plain take either"
    );
    assert_eq!(limiter.peek("k").now().unwrap().retry(), denied.retry());
    assert!(limiter.take("other").now().unwrap().is_allowed());
    let mut small = Waiter::join(pacer.acquire([limiter.charge("k", 1)])).unwrap();
    manual.run(&pacer, SECOND * 9);
    assert!(large.poll().is_some());
    assert!(small.poll().is_none());
    manual.run(&pacer, SECOND);
    assert!(small.poll().is_some());
}

/// A batch of takes does not overtake it either.
#[test]
fn a_batch_does_not_overtake_either() {
    let manual = ManualEngine::new();
    let (pacer, limiter) = (manual.pacer(), manual.per_second("tokens", 1, 10));
    let _spent = pacer.acquire([limiter.charge("k", 9)]).now().unwrap();
    let mut large = Waiter::join(pacer.acquire([limiter.charge("k", 10)])).unwrap();
    let batch = Batch::from_iter(["k", "other", "k"].map(|key| limiter.take(key)));
    let decisions: Vec<_> = batch.now().into_iter().map(Result::unwrap).collect();
    let after = Some(Retry::After(SECOND * 10));
    assert_eq!([0, 1, 2].map(|index: usize| decisions[index].retry()), [after, None, after]);
    manual.run(&pacer, SECOND * 9);
    assert!(large.poll().is_some());
}

/// R98: two dimensions are granted together, after one wait.
#[test]
fn several_limits_are_granted_after_one_wait() {
    let manual = ManualEngine::new();
    let pacer = manual.pacer();
    let (requests, tokens) =
        (manual.per_second("requests", 10, 1), manual.per_second("tokens", 5, 10));
    let claims = || [tokens.charge("k", 10), requests.charge("k", 1)];
    let _first = pacer.acquire(claims()).now().unwrap();
    let mut second = Waiter::join(pacer.acquire(claims())).unwrap();
    manual.run(&pacer, SECOND * 2);
    let permit = second.poll().unwrap().unwrap();
    assert_eq!(permit.waited(), SECOND * 2);
    let parts: Vec<_> = permit.wait_parts().iter().map(|part| (&*part.limit, part.time)).collect();
    assert_eq!(parts, [("tokens", SECOND * 2)]);
    assert_eq!(
        requests.peek("k").cost(0).now().unwrap().remaining(),
        0,
        "charged at the grant, not before"
    );
}

/// A waiter that has been granted no longer blocks takes, whether or not it has been polled since.
#[test]
fn plain_takes_are_denied_only_behind_actual_waiters() {
    let manual = ManualEngine::new();
    let (pacer, limiter) = (manual.pacer(), manual.per_second("calls", 1, 10));
    let _spent = pacer.acquire([limiter.charge("k", 10)]).now().unwrap();
    let unpolled = Waiter::join(pacer.acquire([limiter.charge("k", 1)])).unwrap();
    let idle =
        Waiter::join(pacer.acquire([limiter.charge("other", 0), limiter.charge("k", 9)])).unwrap();
    assert!(!limiter.take("k").now().unwrap().is_allowed());
    assert!(limiter.take("other").now().unwrap().is_allowed(), "no waiter wants its tokens");
    drop(idle);
    manual.run(&pacer, SECOND * 9);
    assert_eq!(unpolled.wakes(), 1);
    assert!(limiter.take("k").now().unwrap().is_allowed());
}
