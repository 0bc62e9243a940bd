//! Waiting for one limit, without creating a pacer.

use std::time::Duration;

use tidegate::clock::TokioClock;
use tidegate::pacer::AcquireError;
use tidegate::{Engine, Limiter, MemoryStore, Policy, Retry};
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

fn limiter(policy: Policy) -> Limiter {
    let store = MemoryStore::builder().clock(TokioClock::new()).build().unwrap();
    Engine::on(store).limiter("api", policy).unwrap()
}

fn per_second(burst: u64) -> Limiter {
    limiter(Policy::per_second(1).burst(burst).build().unwrap())
}

/// How long after the start each of these waiters goes.
async fn times(limiter: &Limiter, keys: &[&'static str]) -> Vec<u64> {
    let start = Instant::now();
    let waiters: Vec<_> = keys
        .iter()
        .map(|key| {
            let acquire = limiter.wait(*key);
            tokio::spawn(async move {
                drop(acquire.await.unwrap());
                (Instant::now() - start).as_secs()
            })
        })
        .collect();
    let mut times = Vec::new();
    for waiter in waiters {
        times.push(waiter.await.unwrap());
    }
    times
}

#[tokio::test(start_paused = true)]
async fn waiters_of_a_key_go_in_order_and_keys_do_not_wait_for_each_other() {
    let limiter = per_second(1);
    let times = times(&limiter, &["alice", "alice", "alice", "bob", "bob"]).await;
    assert_eq!(times, [0, 1, 2, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn all_limiters_of_a_name_share_the_queue() {
    let one = per_second(1);
    let same = one.engine().find("api").unwrap();
    drop(one.wait("alice").await.unwrap());
    let (first, start) = (one.wait("alice"), Instant::now());
    let first = tokio::spawn(async move { first.await.map(|_| ()).map(|()| Instant::now()) });
    tokio::task::yield_now().await;
    let second = same.wait("alice").await.unwrap();
    assert_eq!(second.waited(), 2 * SECOND);
    assert_eq!(first.await.unwrap().unwrap() - start, SECOND);
    assert!(!one.take("alice").now().unwrap().is_allowed());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_spends_nothing() {
    let limiter = per_second(2);
    drop(limiter.wait("alice").cost(2).await.unwrap());
    let left = tokio::time::timeout(SECOND / 2, limiter.wait("alice")).await;
    assert!(left.is_err());
    tokio::time::sleep(SECOND * 2).await;
    assert_eq!(limiter.take("alice").cost(2).now().unwrap().remaining(), 0);
}

#[tokio::test(start_paused = true)]
async fn hopeless_waits_are_refused_at_once() {
    let limiter = per_second(2);
    let never = limiter.wait("alice").cost(3).await;
    assert!(matches!(never, Err(AcquireError::NeverFits(name)) if name == "api"));
    drop(limiter.wait("alice").cost(2).await.unwrap());
    let late = limiter.wait("alice").max_wait(SECOND / 2).await;
    assert!(matches!(late, Err(AcquireError::TooLong { projected, .. }) if projected == SECOND));
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_released_when_its_permit_is_dropped() {
    let uploads = limiter(Policy::concurrency(1, None).unwrap());
    let slot = uploads.slot("alice").await.unwrap();
    assert!(uploads.slot("alice").now().is_err());
    assert!(uploads.slot("bob").now().is_ok());
    let next = uploads.slot("alice");
    let next = tokio::spawn(async move { next.await.unwrap() });
    tokio::time::sleep(SECOND).await;
    assert!(!next.is_finished());
    drop(slot);
    assert_eq!(next.await.unwrap().waited(), SECOND);
    assert_eq!(uploads.peek("alice").cost(0).now().unwrap().remaining(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_slot_with_a_lease_is_kept_while_its_permit_lives() {
    let uploads = limiter(Policy::concurrency(1, Some(SECOND)).unwrap());
    let slot = uploads.slot("alice").await.unwrap();
    tokio::time::sleep(10 * SECOND).await;
    assert!(uploads.slot("alice").now().is_err());
    drop(slot);
    assert!(uploads.slot("alice").now().is_ok());
}

#[test]
fn a_thread_waits_without_a_runtime() {
    let limiter = Limiter::new(Policy::per_second(50).burst(1).build().unwrap());
    drop(limiter.wait("alice").blocking().unwrap());
    assert!(limiter.wait("alice").blocking().unwrap().waited() > Duration::ZERO);
}

/// Lists respect waiters as plain takes do; otherwise callers that poll would starve callers that
/// wait.
#[tokio::test(start_paused = true)]
async fn a_list_does_not_overtake_waiters() {
    let users = per_second(5);
    let addresses = users.engine().limiter("addresses", Policy::per_second(9).build().unwrap());
    let addresses = addresses.unwrap();
    drop(users.wait(7).cost(5).await.unwrap());
    let waiter = users.wait(7).cost(2);
    let waiter = tokio::spawn(async move { waiter.await.unwrap().waited() });
    tokio::task::yield_now().await;
    let list = |cost| [addresses.charge(1, 1), users.charge(7, cost)];
    let engine = users.engine();
    for _ in 0..3 {
        let denied = engine.take(list(1)).now().unwrap();
        assert_eq!((denied.binding(), denied.retry()), (1, Some(Retry::After(3 * SECOND))));
        assert_eq!(engine.peek(list(1)).now().unwrap().retry(), denied.retry());
    }
    assert_eq!(engine.take(list(6)).now().unwrap().retry(), Some(Retry::Never));
    assert!(engine.take(list(0)).now().unwrap().is_allowed(), "a look is never denied");
    assert!(engine.take([addresses.charge(1, 8)]).now().unwrap().is_allowed(), "nothing was spent");
    assert_eq!(waiter.await.unwrap(), 2 * SECOND);
}
