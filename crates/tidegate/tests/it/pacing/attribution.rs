//! Which limit caused a wait, and for how long.

use std::time::Duration;

use tidegate::pacer::{Permit, WaitPart};
use tidegate::{Charge, Limiter, Policy};

use super::manual::{ManualEngine, Waiter};

const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn parts(permit: &Permit) -> Vec<(&str, Duration)> {
    permit.wait_parts().iter().map(|part| (&*part.limit, part.time)).collect()
}

/// A limit of one charge per `interval`.
fn every(manual: &ManualEngine, name: &str, interval: Duration) -> Limiter {
    let policy = Policy::per(1, interval).capacity(1).build().unwrap();
    manual.engine.limiter(name, policy).unwrap()
}

/// R97: of 250 ms, 200 are for tokens; the part for requests is what they take beyond that.
#[test]
fn a_later_limit_counts_only_beyond_an_earlier_one() {
    for (wanted, expected) in [
        (200, vec![("tokens", MILLI * 200), ("requests", MILLI * 50)]),
        (250, vec![("tokens", MILLI * 250)]),
        (300, vec![("tokens", MILLI * 300)]),
    ] {
        let manual = ManualEngine::new();
        let pacer = manual.pacer();
        let tokens = manual.per_second("tokens", 1_000, 1_000);
        let requests = every(&manual, "requests", MILLI * 250);
        let claims = |cost| [tokens.charge("k", cost), requests.charge("k", 1)];
        let _first = pacer.acquire(claims(1_000)).now().unwrap();
        let mut second = Waiter::join(pacer.acquire(claims(wanted))).unwrap();
        assert_eq!(pacer.blocking_limit().as_deref(), expected.last().map(|(limit, _)| *limit));
        manual.run(&pacer, SECOND);
        let permit = second.poll().unwrap().unwrap();
        assert_eq!(parts(&permit), expected);
        assert_eq!(permit.waited(), expected.iter().map(|(_, time)| *time).sum::<Duration>());
    }
}

/// The split is kept when the head of the queue is tried again in between.
#[test]
fn trying_again_does_not_change_the_split() {
    let manual = ManualEngine::new();
    let pacer = manual.pacer();
    let tokens = manual.per_second("tokens", 1_000, 1_000);
    let requests = every(&manual, "requests", MILLI * 250);
    let claims = |cost| [tokens.charge("k", cost), requests.charge("k", 1)];
    let _first = pacer.acquire(claims(1_000)).now().unwrap();
    let mut second = Waiter::join(pacer.acquire(claims(200))).unwrap();
    for _ in 0..25 {
        manual.run(&pacer, MILLI * 10);
        pacer.nudge();
    }
    let permit = second.poll().unwrap().unwrap();
    assert_eq!(parts(&permit), [("tokens", MILLI * 200), ("requests", MILLI * 50)]);
}

/// What blocks others while a tenant waits for a limit of its own has not delayed that tenant.
#[test]
fn a_parked_tenant_is_not_delayed_by_what_blocks_others() {
    let manual = ManualEngine::new();
    let pacer = manual.builder().concurrency(9).build();
    let (own, slow) = (every(&manual, "own", SECOND * 2), every(&manual, "slow", SECOND * 3));
    let free = manual.per_second("free", 1_000, 1_000);
    let acquire = |charge: Charge<'static>, tenant| pacer.acquire([charge]).tenant(tenant);
    let _held = acquire(slow.charge("k", 1), "b").now().unwrap();
    let _own = acquire(own.charge("a", 1).per_tenant(), "a").now().unwrap();
    let mut parked = Waiter::join(
        pacer.acquire([free.charge("k", 1), own.charge("a", 1).per_tenant()]).tenant("a"),
    )
    .unwrap();
    let _blocked = Waiter::join(acquire(slow.charge("k", 1), "b")).unwrap();
    manual.run(&pacer, MILLI * 1_999);
    pacer.set_concurrency(Some(1));
    manual.run(&pacer, SECOND);
    pacer.set_concurrency(Some(9));
    manual.run(&pacer, SECOND);
    let permit = parked.poll().unwrap().unwrap();
    let concurrency = MILLI * 999;
    assert_eq!(parts(&permit)[0], ("own", SECOND * 2), "{:?}", permit.wait_parts());
    assert!(parts(&permit).contains(&(WaitPart::CONCURRENCY, concurrency)), "{permit:?}");
    assert_eq!(permit.waited(), parts(&permit).iter().map(|(_, time)| *time).sum::<Duration>());
}
