//! What one of several nodes admits by itself.

use std::sync::Arc;
use std::time::Duration;

use tidegate::FailureRule::Local;
use tidegate::clock::ManualClock;
use tidegate::guard::Guarded;
use tidegate::{Change, Charge, Correction, Limit, Operation, Policy};

use super::stand_in::{
    Mood, SECOND, StandIn, bring_down, guard_of, guarded, limiter, named, one, per_second, take,
};

/// How many of `limit` a guard admits for a key right now.
async fn admitted(guard: &Guarded<StandIn>, limit: &Limit) -> u64 {
    let mut admitted = 0;
    while take(guard, &[Charge::new(limit, "k", 1)]).await.is_allowed() {
        admitted += 1;
    }
    admitted
}

/// Guards on one dead store, on one clock.
async fn nodes(number: u32, clock: &ManualClock) -> Vec<Guarded<StandIn>> {
    let store = StandIn::new();
    let mut nodes = Vec::new();
    for _ in 0..number {
        let builder = Guarded::builder(store.clone()).clock(clock.clone());
        let guard = builder.expected_nodes(number.try_into().unwrap()).build().unwrap();
        bring_down(&store, &guard).await;
        nodes.push(guard);
    }
    nodes
}

/// Exactly the stated share each, and so at most the limit and the stated slack together.
#[tokio::test(start_paused = true)]
async fn nodes_admit_their_shares_and_no_more() {
    for (number, capacity, burst) in [(1, 100, 100), (3, 100, 33), (3, 3, 1), (3, 2, 1), (7, 1, 1)]
    {
        let clock = ManualClock::new();
        let nodes = nodes(number, &clock).await;
        let limit = named("a", 7, capacity);
        let mut all = 0;
        for node in &nodes {
            let first = admitted(node, &limit).await;
            assert_eq!(first, burst, "{capacity} among {number}");
            all += first;
        }
        // Seven a second among n nodes are exactly one each in n sevenths of a second.
        let step = (u64::from(number) * 1_000_000_000).div_ceil(7);
        clock.advance(Duration::from_nanos(step - 1));
        for node in &nodes {
            assert_eq!(admitted(node, &limit).await, 0, "not a nanosecond early");
        }
        clock.advance(Duration::from_nanos(1));
        for node in &nodes {
            let came = admitted(node, &limit).await;
            assert_eq!(came, 1, "{capacity} among {number}");
            all += came;
        }
        let number = u64::from(number);
        let limit = capacity + number + capacity.max(number) - capacity;
        assert!(all <= limit, "{all} of {limit}");
    }
}

#[tokio::test(start_paused = true)]
async fn three_nodes_keep_the_rate_over_time() {
    let clock = ManualClock::new();
    let nodes = nodes(3, &clock).await;
    let limit = named("a", 10, 20);
    let mut all = 0;
    for step in 0..1_000_u64 {
        for node in &nodes {
            all += admitted(node, &limit).await;
        }
        let bound = 20 + 10 * step * 37 / 1_000;
        assert!(all <= bound, "{all} of {bound} at step {step}");
        clock.advance(Duration::from_millis(37));
    }
    // Three times six are eighteen, and what comes is used to the last third of a token.
    assert!(all >= 18 + 10 * 999 * 37 / 1_000 - 3, "{all}");
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_limit_is_shared() {
    let clock = ManualClock::new();
    let node = nodes(3, &clock).await.remove(0);
    let kinds = [
        (Policy::allowance(10).unwrap(), 3),
        (Policy::concurrency(10, Some(SECOND)).unwrap(), 3),
        (Policy::concurrency(2, None).unwrap(), 1),
        (Policy::strict_window(60, SECOND * 60, 10).unwrap(), 3),
    ];
    for (number, (policy, share)) in kinds.into_iter().enumerate() {
        let limit = Limit::named(&format!("kind-{number}"), policy).unwrap();
        assert_eq!(admitted(&node, &limit).await, share, "{policy:?}");
        assert_eq!(admitted(&node, &Limit::inline(policy)).await, share, "{policy:?}");
    }
    // Debt too: thirty below zero, a third of it here.
    let policy = Policy::per_second(3).capacity(3).max_debt(30).build().unwrap();
    let limit = Limit::named("debt", policy).unwrap();
    let grant = take(&node, &[Charge::new(&limit, "k", 1)]).await.granted().unwrap();
    let corrections = [Correction::new(&limit, "k", 100)];
    let settle = Operation::Settle { corrections: &corrections, receipt: Some(&grant.receipt) };
    assert!(one(&node, settle).await.is_ok());
    let wait = take(&node, &[Charge::new(&limit, "k", 1)]).await.retry().unwrap().after();
    assert_eq!(wait, Some(SECOND * 11), "ten of debt and one to take, at one a second");
}

/// A share that cannot be expressed is none: one in fifty years, among three.
#[tokio::test(start_paused = true)]
async fn a_share_beyond_all_bounds_is_closed() {
    let clock = ManualClock::new();
    let node = nodes(3, &clock).await.remove(0);
    let policy = Policy::per(1, Duration::from_secs(50 * 365 * 86_400)).max_debt(0);
    let limit = Limit::named("lifetime", policy.build().unwrap()).unwrap();
    let denied = take(&node, &[Charge::new(&limit, "k", 1)]).await;
    assert_eq!(denied.degraded(), Some(tidegate::FailureRule::Closed));
}

#[tokio::test(start_paused = true)]
async fn nodes_last_seen_win_over_expected_ones_and_are_remembered() {
    let store = StandIn::new();
    let guard = guard_of(&store).expected_nodes(5.try_into().unwrap()).build().unwrap();
    let limiter = limiter(&guard, per_second(1, 100));
    let share = async || limiter.peek("k").cost(0).await.unwrap().outcomes()[0].capacity;
    bring_down(&store, &guard).await;
    assert_eq!(share().await, 20, "expected");
    store.set_nodes(2);
    assert_eq!(share().await, 50, "what the store knows by itself");
    store.set(Mood::Answers);
    tokio::time::sleep(SECOND * 6).await;
    store.set_nodes(4);
    assert_eq!(share().await, 100, "the store decides");
    bring_down(&store, &guard).await;
    for forgetful in [0, 1, 9] {
        store.set_nodes(forgetful);
        assert_eq!(share().await, 25, "as last seen while it was up");
    }
}

/// What was spent in one outage counts in the next, also if there are more nodes or fewer.
#[tokio::test(start_paused = true)]
async fn buckets_are_converted_when_the_number_of_nodes_changes() {
    let slow = Policy::per(1, SECOND * 3_600).capacity(100).build().unwrap();
    for limit in [Limit::named("a", slow).unwrap(), Limit::inline(slow)] {
        let (store, guard, _limiter) = guarded(per_second(1, 1));
        let outage = async |nodes: u32| {
            store.set(Mood::Answers);
            tokio::time::sleep(SECOND * 6).await;
            store.set_nodes(nodes);
            assert_eq!(take(&guard, &[Charge::new(&limit, "x", 0)]).await.degraded(), None);
            bring_down(&store, &guard).await;
        };
        outage(2).await;
        let charges = [Charge::new(&limit, "k", 30)];
        let granted = take(&guard, &charges).await;
        assert_eq!((granted.degraded(), granted.remaining()), (Some(Local), 20));
        let receipt = granted.granted().unwrap().receipt;
        outage(4).await;
        let looked = take(&guard, &[Charge::new(&limit, "k", 0)]).await;
        assert_eq!(looked.outcomes()[0].capacity, 25);
        assert_eq!(looked.remaining(), 20, "tokens stay, cut to the new share");
        outage(10).await;
        assert_eq!(take(&guard, &[Charge::new(&limit, "k", 1)]).await.remaining(), 9);
        outage(1).await;
        assert_eq!(take(&guard, &[Charge::new(&limit, "k", 0)]).await.remaining(), 9);
        let back = [Correction::new(&limit, "k", -30)];
        let settle = Operation::Settle { corrections: &back, receipt: Some(&receipt) };
        assert!(one(&guard, settle).await.is_ok(), "its receipt still finds it");
        assert_eq!(take(&guard, &[Charge::new(&limit, "k", 0)]).await.remaining(), 39);
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_limit_reaches_its_share() {
    let (store, guard, limiter) = guarded(per_second(1, 100));
    bring_down(&store, &guard).await;
    assert_eq!(limiter.take("k").cost(60).await.unwrap().remaining(), 40);
    let old = limiter.limit();
    limiter.reconfigure(per_second(1, 10), Change::KeepTokens).unwrap();
    let smaller = limiter.take("k").await.unwrap();
    assert_eq!((smaller.outcomes()[0].capacity, smaller.remaining()), (10, 9));
    limiter.reconfigure(per_second(1, 50), Change::Reset).unwrap();
    assert_eq!(limiter.take("k").await.unwrap().remaining(), 49);
    let stale = take(&guard, &[Charge::new(&old, "k", 1)]).await;
    assert_eq!(stale.outcomes()[0].capacity, 50, "the newest policy counts for all");
}

/// More inline limits than are kept: each has its share all the same, and its receipts.
#[tokio::test(start_paused = true)]
async fn a_flood_of_inline_limits_is_bounded_and_shared() {
    let store = StandIn::new();
    let guard = guard_of(&store).max_memory(1 << 20).expected_nodes(3.try_into().unwrap());
    let guard = guard.build().unwrap();
    bring_down(&store, &guard).await;
    for capacity in 30..1_530 {
        let limit = Limit::inline(per_second(1, capacity));
        let granted = take(&guard, &[Charge::new(&limit, "k", 2)]).await.granted().unwrap();
        assert_eq!(granted.outcomes[0].remaining, capacity / 3 - 2);
        let receipt = granted.receipt;
        let back = [Correction::new(&limit, "k", -2)];
        store.set_nodes(2);
        let settle = Operation::Settle { corrections: &back, receipt: Some(&receipt) };
        assert!(one(&guard, settle).await.is_ok(), "{capacity}");
        store.set_nodes(0);
        assert_eq!(take(&guard, &[Charge::new(&limit, "k", 0)]).await.remaining(), capacity / 3);
    }
    assert_eq!(Arc::strong_count(&store), 2, "no call is left over");
}
