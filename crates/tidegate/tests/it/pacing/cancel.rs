//! Cancellation: whatever a waiter or a permit held is given back exactly, and the others advance.

use std::time::Duration;

use tidegate::pacer::{Permit, Priority};

use super::manual::{ManualEngine, Random, Waiter};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn the_next_waiter_advances_when_the_head_leaves() {
    let manual = ManualEngine::new();
    let (pacer, limiter) = (manual.pacer(), manual.per_second("tokens", 1, 10));
    let _spent = pacer.acquire([limiter.charge("k", 10)]).now().unwrap();
    let large = Waiter::join(pacer.acquire([limiter.charge("k", 10)])).unwrap();
    let mut small = Waiter::join(pacer.acquire([limiter.charge("k", 1)])).unwrap();
    manual.run(&pacer, SECOND * 2);
    assert!(small.poll().is_none());
    drop(large);
    assert_eq!(small.wakes(), 1, "woken when the head left");
    assert!(small.poll().unwrap().is_ok());
}

#[test]
fn a_grant_dropped_before_it_is_polled_is_given_back() {
    let manual = ManualEngine::new();
    let pacer = manual.builder().concurrency(1).build();
    let limiter = manual.per_second("tokens", 1, 10);
    let held = pacer.acquire([limiter.charge("k", 10)]).now().unwrap();
    let unpolled = Waiter::join(pacer.acquire([limiter.charge("k", 10)])).unwrap();
    let mut next = Waiter::join(pacer.acquire([limiter.charge("k", 10)])).unwrap();
    drop(held);
    manual.run(&pacer, SECOND * 10);
    assert_eq!((unpolled.wakes(), next.wakes()), (1, 0));
    drop(unpolled);
    assert!(next.poll().unwrap().is_ok(), "it gets the tokens and slot of the dropped waiter");
}

#[test]
fn dropping_a_permit_keeps_or_refunds_tokens_as_requested() {
    let manual = ManualEngine::new();
    let (pacer, limiter) = (manual.pacer(), manual.per_second("tokens", 1, 10));
    let left = || limiter.peek("k").cost(0).now().unwrap().remaining();
    drop(pacer.acquire([limiter.charge("k", 4)]).now().unwrap());
    assert_eq!(left(), 6, "spent by default");
    drop(pacer.acquire([limiter.charge("k", 4)]).refund_on_drop(true).now().unwrap());
    assert_eq!(left(), 6, "given back");
    let mut permit = pacer.acquire([limiter.charge("k", 4)]).refund_on_drop(true).now().unwrap();
    permit.settle_now(&[1]).unwrap();
    assert_eq!(left(), 5);
    drop(permit);
    assert_eq!(left(), 5, "settled tokens stay spent");
}

/// Debt beyond its bound is forgiven once; settling again must not give it back.
#[test]
fn a_forgiven_debt_is_not_given_back() {
    let manual = ManualEngine::new();
    let (pacer, limiter) = (manual.pacer(), manual.per_second("tokens", 1, 10));
    let mut permit = pacer.acquire([limiter.charge("k", 1)]).now().unwrap();
    let _others = pacer.acquire([limiter.charge("k", 9)]).now().unwrap();
    let settlement = permit.settle_now(&[1_000]).unwrap();
    assert_eq!((settlement.saturated, settlement.applied[0]), (1, 10));
    permit.settle_now(&[1]).unwrap();
    assert_eq!(
        limiter.peek("k").cost(0).now().unwrap().remaining(),
        0,
        "the others' nine stay spent"
    );
}

#[test]
fn settling_moves_later_waiters_forward_or_back() {
    let manual = ManualEngine::new();
    let (pacer, limiter) = (manual.pacer(), manual.per_second("tokens", 1, 10));
    let mut permit = pacer.acquire([limiter.charge("k", 10)]).now().unwrap();
    let mut next = Waiter::join(pacer.acquire([limiter.charge("k", 5)])).unwrap();
    permit.settle_now(&[4]).unwrap();
    assert!(next.poll().unwrap().is_ok(), "six were given back, five are enough");
    let mut later = Waiter::join(pacer.acquire([limiter.charge("k", 2)])).unwrap();
    permit.settle_now(&[7]).unwrap();
    manual.run(&pacer, SECOND * 3);
    assert!(later.poll().is_none(), "three more were charged");
    manual.run(&pacer, SECOND);
    assert!(later.poll().unwrap().is_ok());
    assert!(permit.settle_now(&[1, 2]).is_err());
}

/// A million waiters and permits, dropped at every point of their lives while time stands still: no
/// token is lost, none is gained.
#[test]
fn a_million_random_cancellations_conserve_every_token() {
    let manual = ManualEngine::new();
    let pacer = manual.builder().concurrency(40).build();
    let (one, two) = (manual.per_second("one", 1, 100), manual.per_second("two", 1, 60));
    let (mut random, mut waiters, mut permits) =
        (Random::new(0), Vec::<Waiter>::new(), Vec::<(Permit, [u64; 2])>::new());
    let costs = |random: &mut Random| [1 + random.below(20) as u64, random.below(12) as u64];
    let mut cancelled = 0;
    while cancelled < 1_000_000 {
        match random.below(6) {
            0 | 1 if waiters.len() < 50 => {
                let [a, b] = costs(&mut random);
                let acquire = pacer
                    .acquire([one.charge("k", a), two.charge("k", b)])
                    .tenant(["x", "y", "z"][random.below(3)])
                    .priority([Priority::High, Priority::Normal, Priority::Low][random.below(3)])
                    .refund_on_drop(true);
                match Waiter::join(acquire) {
                    Ok(waiter) => waiters.push(waiter),
                    Err(done) => permits.push((done.unwrap(), [a, b])),
                }
            }
            2 if !waiters.is_empty() => {
                // Granted or not, polled since or not.
                drop(waiters.swap_remove(random.below(waiters.len())));
                cancelled += 1;
            }
            3 if !waiters.is_empty() => {
                let index = random.below(waiters.len());
                if let Some(done) = waiters[index].poll() {
                    permits.push((done.unwrap(), [0, 0]));
                    waiters.swap_remove(index);
                }
            }
            4 if !permits.is_empty() => {
                let (mut permit, _) = permits.swap_remove(random.below(permits.len()));
                if random.below(2) == 0 {
                    permit.settle_now(&[0, 0]).unwrap();
                }
                drop(permit);
                cancelled += 1;
            }
            _ => {
                pacer.poll();
            }
        }
        assert!(pacer.gauges().in_flight <= 40);
    }
    drop(waiters);
    drop(permits);
    let left = |limiter: &tidegate::Limiter| limiter.peek("k").cost(0).now().unwrap().remaining();
    assert_eq!((left(&one), left(&two)), (100, 60));
    let gauges = pacer.gauges();
    assert_eq!((gauges.waiting, gauges.in_flight), (0, 0));
}
