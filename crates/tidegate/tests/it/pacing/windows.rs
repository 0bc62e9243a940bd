//! R14, R22, R142: what waiters are granted in every window of time, for any rate and any arrivals.

use std::time::Duration;

use proptest::prelude::*;
use tidegate::clock::{Clock as _, ManualClock};
use tidegate::pacer::Pacer;
use tidegate::{Engine, Limiter, MemoryStore, Policy};

use super::manual::Waiter;

const MINUTE: u128 = 60_000_000_000;

/// The instants, in nanoseconds, at which requests with these gaps between their arrivals are
/// granted.
fn grants(policy: Policy, gaps: &[Duration]) -> Vec<u128> {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().max_memory(1 << 20).clock(clock.clone()).build().unwrap();
    let limiter = Engine::on(store).limiter("calls", policy).unwrap();
    let pacer = Pacer::builder(limiter.engine()).manual().build();
    let (mut waiting, mut grants) = (Vec::new(), Vec::new());
    for gap in gaps {
        run(&clock, &pacer, Some(*gap), &mut waiting, &mut grants);
        join(&clock, &pacer, &limiter, &mut waiting, &mut grants);
    }
    run(&clock, &pacer, None, &mut waiting, &mut grants);
    assert_eq!(grants.len(), gaps.len(), "all are granted");
    grants
}

fn join(
    clock: &ManualClock,
    pacer: &Pacer,
    limiter: &Limiter,
    waiting: &mut Vec<Waiter>,
    grants: &mut Vec<u128>,
) {
    match Waiter::join(pacer.acquire([limiter.charge("k", 1)])) {
        Ok(waiter) => waiting.push(waiter),
        Err(granted) => {
            assert!(granted.is_ok() && waiting.is_empty(), "nobody is overtaken");
            grants.push(clock.now().as_nanos().into());
        }
    }
}

/// Advances time from grant to grant, until `span` has passed or nobody waits.
fn run(
    clock: &ManualClock,
    pacer: &Pacer,
    span: Option<Duration>,
    waiting: &mut Vec<Waiter>,
    grants: &mut Vec<u128>,
) {
    let mut left = span.unwrap_or(Duration::MAX);
    loop {
        let due = pacer.poll();
        while waiting.first().is_some_and(|waiter| waiter.wakes() > 0) {
            assert!(waiting.remove(0).poll().unwrap().is_ok());
            grants.push(clock.now().as_nanos().into());
        }
        let step = match (due, span) {
            (Some(due), _) => due.min(left),
            (None, Some(_)) => left,
            (None, None) => return,
        };
        if left.is_zero() {
            return;
        }
        clock.advance(step);
        left -= step;
    }
}

fn arrivals() -> impl Strategy<Value = Vec<Duration>> {
    let gap = prop_oneof![
        4 => Just(Duration::ZERO),
        3 => (0..2_000_u64).prop_map(Duration::from_millis),
        1 => (0..300_u64).prop_map(Duration::from_secs),
    ];
    prop::collection::vec(gap, 1..100)
}

proptest! {
    #[test]
    fn every_window_has_at_most_its_burst_and_refill(
        per_minute in 1..=10_000_u64,
        burst in 1..50_u64,
        gaps in arrivals(),
    ) {
        let policy = Policy::per_minute(per_minute).burst(burst).build().unwrap();
        let grants = grants(policy, &gaps);
        for (first, start) in grants.iter().enumerate() {
            for (last, end) in grants.iter().enumerate().skip(first) {
                let (count, span) = ((last - first + 1) as u128, end - start);
                prop_assert!(
                    count * MINUTE <= u128::from(burst) * MINUTE + u128::from(per_minute) * span,
                    "{count} in {span} ns"
                );
            }
        }
    }

    /// The default burst lets a fixed minute see more than a minute's worth; a strict window does
    /// not.
    #[test]
    fn a_strict_window_is_never_exceeded(
        per_minute in 1..=60_u64,
        burst in 1..=60_u64,
        gaps in arrivals(),
    ) {
        let burst = burst.min(per_minute);
        let window = Duration::from_secs(60);
        let policy = Policy::strict_window(per_minute, window, burst);
        // A burst of the whole window leaves no rate.
        prop_assume!(policy.is_ok());
        let grants = grants(policy.unwrap(), &gaps);
        for more in grants.windows(usize::try_from(per_minute).unwrap() + 1) {
            let span = more[more.len() - 1] - more[0];
            prop_assert!(span > MINUTE, "{} in {span} ns", more.len());
        }
    }

    /// No quota is wasted: while requests wait, each is granted as early as the limit allows, but
    /// for the nanosecond to which each of them is rounded up.
    #[test]
    fn waiting_requests_get_the_whole_rate(
        per_minute in 1..=10_000_u64,
        burst in 1..10_u64,
        requests in 20..100_usize,
    ) {
        let policy = Policy::per_minute(per_minute).burst(burst).build().unwrap();
        let grants = grants(policy, &vec![Duration::ZERO; requests]);
        for (index, at) in grants.iter().enumerate() {
            let behind = (index as u128 + 1).saturating_sub(burst.into());
            let exact = (behind * MINUTE).div_ceil(per_minute.into());
            prop_assert!((exact..=exact + behind).contains(at), "{index}: {at}, not {exact}");
        }
    }
}
