//! What may be sent in any window, for any arrivals.

use std::num::NonZeroU32;
use std::time::Duration;

use futures_util::future::join_all;
use proptest::prelude::*;
use tidegate_llm::pipeline::{Planned, RateLimitHandler};
use tidegate_llm::plan::{Constraint, Plan};
use tokio::time::{Instant, sleep_until};

use super::plan;

fn constraint(rpm: u32, burst: u32) -> Constraint {
    let requests = NonZeroU32::new(rpm).unwrap();
    Constraint::per_minute(requests).with_burst(NonZeroU32::new(burst).unwrap())
}

/// Sends a command at each arrival, without waiting for those before it. Returns when they got
/// their permits, in order of time.
fn grants(arrivals: Vec<(Duration, Plan)>) -> Vec<Duration> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let handler = &RateLimitHandler::new();
        let start = Instant::now();
        let commands = arrivals.into_iter().map(|(arrival, plan)| async move {
            sleep_until(start + arrival).await;
            let planned = handler.handle(Planned::new((), plan)).await;
            assert!(planned.permits.is_some());
            start.elapsed()
        });
        let mut grants = join_all(commands).await;
        grants.sort_unstable();
        grants
    })
}

/// Returns a window with more than `burst + rpm / 60 x window` grants, in exact arithmetic.
fn excess(grants: &[Duration], rpm: u32, burst: u32) -> Option<(usize, Duration)> {
    let minute = Duration::from_secs(60).as_nanos();
    let windows = grants.iter().enumerate().flat_map(|(index, first)| {
        let ends = grants[index..].iter().enumerate();
        ends.map(|(count, last)| (count + 1, *last - *first))
    });
    let mut windows = windows.filter(|(count, window)| {
        let above_burst = (*count as u128).saturating_sub(burst.into());
        above_burst * minute > u128::from(rpm) * window.as_nanos()
    });
    windows.next()
}

/// Gaps between arrivals: none, short or long, so that commands arrive together, in streams and
/// after idle times.
fn gap() -> impl Strategy<Value = Duration> {
    prop_oneof![3 => Just(0), 3 => 0_u64..50, 2 => 0_u64..5_000, 1 => 0_u64..200_000]
        .prop_map(Duration::from_millis)
}

fn arrivals(gaps: &[Duration]) -> impl Iterator<Item = Duration> {
    gaps.iter().scan(Duration::ZERO, |at, gap| {
        *at += *gap;
        Some(*at)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_window_exceeds_burst_and_rate(
        rpm in 1_u32..=10_000,
        burst in 1_u32..20,
        gaps in prop::collection::vec(gap(), 100),
    ) {
        let plan = plan(constraint(rpm, burst));
        let grants = grants(arrivals(&gaps).map(|at| (at, plan.clone())).collect());
        prop_assert_eq!(grants.len(), 100);
        prop_assert_eq!(excess(&grants, rpm, burst), None);
    }

    /// Whatever constraints the commands of a key come with, and in whatever order: no window
    /// exceeds the largest burst and the highest rate.
    #[test]
    fn no_window_of_alternating_constraints_exceeds_the_larger_one(
        constraints in prop::collection::vec((1_u32..=10_000, 1_u32..50), 1..4),
        commands in prop::collection::vec((gap(), any::<prop::sample::Index>()), 100),
    ) {
        let gaps: Vec<Duration> = commands.iter().map(|(gap, _)| *gap).collect();
        let chosen = commands.iter().map(|(_, index)| {
            let (rpm, burst) = *index.get(&constraints);
            plan(constraint(rpm, burst))
        });
        let grants = grants(arrivals(&gaps).zip(chosen).collect());
        let rpm = constraints.iter().map(|(rpm, _)| *rpm).max().unwrap();
        let burst = constraints.iter().map(|(_, burst)| *burst).max().unwrap();
        prop_assert_eq!(grants.len(), 100);
        prop_assert_eq!(excess(&grants, rpm, burst), None);
    }
}
