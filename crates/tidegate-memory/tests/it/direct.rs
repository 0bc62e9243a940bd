//! A direct limiter decides like a store with one key, at any rate, and keeps its bound under
//! concurrency.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{Limit, Policy, PolicyError, Rate, Time};
use tidegate_memory::clock::{CachedClock, Clock, CounterClock, ManualClock, SystemClock};
use tidegate_memory::{DirectLimiter, MemoryStore};

const SECOND: u64 = 1_000_000_000;

fn policy(rate: &str, capacity: u64) -> Policy {
    Policy::rate(rate.parse::<Rate>().unwrap()).capacity(capacity).build().unwrap()
}

#[test]
fn direct_limiter_accepts_only_token_buckets() {
    let allowance = Policy::allowance(3).unwrap();
    assert_eq!(DirectLimiter::new(allowance).unwrap_err(), PolicyError::NotABucket);
}

#[test]
fn direct_limiter_reports_remaining_and_reset() {
    let clock = ManualClock::new();
    let limiter = DirectLimiter::with_clock(policy("999/s", 3), clock.clone()).unwrap();
    assert_eq!(limiter.take(2).outcome().remaining, 1);
    let denied = limiter.take(2);
    assert!(!denied.is_allowed());
    let wait = denied.outcome().reset.unwrap();
    assert_eq!(wait, Duration::from_nanos(2_002_003), "two tokens at 999/s, rounded up");
    clock.advance(wait);
    assert_eq!(limiter.take(3).outcome().remaining, 0);
}

#[test]
fn direct_limiter_starts_full_on_every_clock() {
    let hourly = || policy("1/h", 2);
    let limiters = [
        DirectLimiter::new(hourly()).unwrap(),
        DirectLimiter::with_clock(hourly(), SystemClock::new()).unwrap(),
        DirectLimiter::with_clock(hourly(), CachedClock::new()).unwrap(),
        DirectLimiter::new(policy("17/17h", 2)).unwrap(),
        DirectLimiter::new(policy("23/24h", 2)).unwrap(),
    ];
    for limiter in limiters {
        assert!(limiter.take(1).is_allowed());
        assert!(!limiter.take(2).is_allowed(), "one token is left");
        assert!(limiter.take(1).is_allowed());
        assert!(!limiter.take(1).is_allowed());
        assert!(limiter.take(0).is_allowed(), "a cost of zero is always allowed");
        assert!(limiter.take(u64::MAX).retry().is_some());
    }
}

/// Starts threads together, each of which tries a number of times.
fn assert_bounded_under_threads(rate: u64, clock: &(impl Clock + Clone + 'static)) {
    const CAPACITY: u64 = 1_000;
    const THREADS: usize = 4;
    const TRIES: usize = 10_000;
    let policy = Policy::per_second(rate).capacity(CAPACITY).build().unwrap();
    let limiter = DirectLimiter::with_clock(policy, clock.clone()).unwrap();
    let (granted, start) = (AtomicU64::new(0), Barrier::new(THREADS));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                start.wait();
                let allowed = (0..TRIES).filter(|_| limiter.take(1).is_allowed()).count();
                granted.fetch_add(allowed as u64, Ordering::Relaxed);
            });
        }
    });
    // The clock counts from its creation, which was before the first take.
    let most = CAPACITY + clock.now().as_nanos() * rate / SECOND;
    let granted = granted.into_inner();
    assert!(granted <= most, "{granted} of {most}");
    assert!(granted >= CAPACITY, "{granted} of {most}");
}

#[test]
fn threads_never_exceed_the_limit_on_any_clock() {
    for rate in [1_000_000, 999_983] {
        assert_bounded_under_threads(rate, &SystemClock::new());
        assert_bounded_under_threads(
            rate,
            &CachedClock::ticking(Duration::from_micros(100)).unwrap(),
        );
        if let Ok(clock) = CounterClock::new() {
            assert_bounded_under_threads(rate, &clock);
        }
    }
}

proptest! {
    #[test]
    fn direct_limiter_matches_the_store_even_when_the_clock_is_set_back(
        rate in prop_oneof![
            Just("7/min"), Just("3/s"), Just("999/s"), Just("999983/min"), Just("1.5/s")
        ],
        capacity in 1..20_u64,
        steps in prop::collection::vec(
            (
                prop_oneof![8 => 1..2 * SECOND, 1 => Just(0), 1 => 1..1_000 * SECOND],
                prop_oneof![9 => Just(true), 1 => Just(false)],
                prop_oneof![8 => 0..6_u64, 1 => 0..40_u64, 1 => Just(u64::MAX)],
            ),
            1..100,
        ),
    ) {
        let (clock, policy) = (ManualClock::new(), policy(rate, capacity));
        let store = MemoryStore::builder().max_memory(1 << 20).clock(clock.clone());
        let store = store.build().unwrap();
        let limit = Limit::named("direct", policy).unwrap();
        let limiter = DirectLimiter::with_clock(policy, clock.clone()).unwrap();
        for (span, forward, cost) in steps {
            let now = clock.now().as_nanos();
            let now = if forward { now + span } else { now.saturating_sub(span) };
            clock.set(Time::from_nanos(now));
            let (ours, theirs) = (limiter.take(cost), store.spend_one(&limit, "key".into(), cost));
            prop_assert_eq!(ours.is_allowed(), theirs.is_allowed());
            prop_assert_eq!(ours.outcome(), theirs.outcome());
        }
    }
}
