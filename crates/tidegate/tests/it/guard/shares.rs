//! What one of several nodes admits by itself.

use std::time::Duration;

use tidegate::FailureRule::{Closed, Local};
use tidegate::clock::ManualClock;
use tidegate::guard::GuardedStore;
use tidegate::{Overflow, Policy, PolicyChange};
use tidegate_core::{Charge, Correction, Limit, Operation, StoreResponse, Target};

use super::faulty::{
    FaultMode, SECOND, bring_down, bring_up, execute, faulty, guard_of, guarded, limiter, named,
    per_second, take,
};

/// How many requests a guard admits for a key right now.
async fn admitted(guard: &GuardedStore, limit: &Limit) -> u64 {
    let mut admitted = 0;
    while take(guard, &[Charge::new(limit, "k", 1)]).await.is_allowed() {
        admitted += 1;
    }
    admitted
}

/// Guards on one dead store, on one clock.
async fn nodes(number: u32, clock: &ManualClock) -> Vec<GuardedStore> {
    let store = faulty();
    let mut nodes = Vec::new();
    for _ in 0..number {
        let builder = GuardedStore::builder(store.clone()).clock(clock.clone());
        let guard = builder.expected_nodes(number.try_into().unwrap()).build().unwrap();
        bring_down(&store, &guard).await;
        nodes.push(guard);
    }
    nodes
}

/// Each node admits exactly its documented share.
#[tokio::test(start_paused = true)]
async fn nodes_admit_exactly_their_shares() {
    for (number, capacity, burst) in [(1, 100, 100), (3, 100, 33), (3, 3, 1), (3, 2, 1), (7, 1, 1)]
    {
        let clock = ManualClock::new();
        let nodes = nodes(number, &clock).await;
        let limit = named("a", 7, capacity);
        for node in &nodes {
            assert_eq!(admitted(node, &limit).await, burst, "{capacity} among {number}");
        }
        // Seven per second among n nodes is exactly one per node in n sevenths of a second.
        let step = (u64::from(number) * 1_000_000_000).div_ceil(7);
        clock.advance(Duration::from_nanos(step - 1));
        for node in &nodes {
            assert_eq!(admitted(node, &limit).await, 0, "not a nanosecond early");
        }
        clock.advance(Duration::from_nanos(1));
        for node in &nodes {
            assert_eq!(admitted(node, &limit).await, 1, "{capacity} among {number}");
        }
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
        assert!(all <= bound, "{all} of {bound} after {step} steps");
        clock.advance(Duration::from_millis(37));
    }
    // Three times six is eighteen, and the refill is used to the last third of a token.
    assert!(all >= 18 + 10 * 999 * 37 / 1_000 - 3, "{all}");
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_limit_is_divided() {
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
    // Debt is divided too: thirty below zero, a third of it here.
    let policy = Policy::per_second(3).capacity(3).max_debt(30).build().unwrap();
    let limit = Limit::named("debt", policy).unwrap();
    let grant = take(&node, &[Charge::new(&limit, "k", 1)]).await.granted().unwrap();
    let corrections = [Correction::new(&limit, "k", 100)];
    let settle = Operation::Settle { corrections: &corrections, receipt: Some(&grant.receipt) };
    assert!(execute(&node, settle).await.is_ok());
    let wait = take(&node, &[Charge::new(&limit, "k", 1)]).await.retry().unwrap().after();
    assert_eq!(wait, Some(SECOND * 11), "ten of debt and one to take, at one a second");
}

/// A share that cannot be represented is closed: one in fifty years, among three nodes.
#[tokio::test(start_paused = true)]
async fn a_share_that_cannot_be_represented_is_closed() {
    let clock = ManualClock::new();
    let node = nodes(3, &clock).await.remove(0);
    let policy = Policy::per(1, Duration::from_secs(50 * 365 * 86_400)).max_debt(0);
    let limit = Limit::named("lifetime", policy.build().unwrap()).unwrap();
    let denied = take(&node, &[Charge::new(&limit, "k", 1)]).await;
    assert_eq!(denied.degraded(), Some(Closed));
}

/// Right after a start, the expected number of nodes is a minimum; later only the number that the
/// store reports counts.
#[tokio::test(start_paused = true)]
async fn the_reported_node_count_replaces_the_expected_one_after_a_while() {
    let store = faulty();
    let guard = guard_of(&store).expected_nodes(5.try_into().unwrap()).build().unwrap();
    let limiter = limiter(&guard, per_second(1, 100));
    let share = async || limiter.peek("k").cost(0).await.unwrap().outcomes()[0].capacity;
    bring_down(&store, &guard).await;
    assert_eq!(share().await, 20, "expected");
    store.set_nodes(10);
    assert_eq!(share().await, 10, "there are more");
    store.set_nodes(1);
    assert_eq!(share().await, 20, "other nodes may not have reached it yet");
    bring_up(&store, &guard).await;
    tokio::time::sleep(SECOND * 4).await;
    assert_eq!(share().await, 100, "the store decides");
    bring_down(&store, &guard).await;
    assert_eq!(share().await, 20, "it was not up for long");
    bring_up(&store, &guard).await;
    assert_eq!(share().await, 100);
    bring_down(&store, &guard).await;
    assert_eq!(share().await, 20, "the up times are not added");
    bring_up(&store, &guard).await;
    assert_eq!(share().await, 100);
    tokio::time::sleep(SECOND * 10).await;
    assert_eq!(share().await, 100);
    bring_down(&store, &guard).await;
    for (nodes, capacity) in [(2, 50), (4, 25), (0, 20)] {
        store.set_nodes(nodes);
        assert_eq!(share().await, capacity, "{nodes} as last reported");
    }
}

/// A node that was idle for an hour used to divide by the number of nodes of an hour ago.
#[tokio::test(start_paused = true)]
async fn an_idle_node_uses_the_current_node_count() {
    let (store, guard, limiter) = guarded(per_second(1, 90));
    store.set_nodes(1);
    assert!(limiter.take("x").await.unwrap().is_allowed());
    tokio::time::sleep(SECOND * 3_600).await;
    store.set_nodes(3);
    bring_down(&store, &guard).await;
    let looked = limiter.peek("k").cost(0).await.unwrap();
    assert_eq!((looked.degraded(), looked.outcomes()[0].capacity), (Some(Local), 30));
}

/// What was spent in one outage counts in the next, also if the number of nodes has changed.
#[tokio::test(start_paused = true)]
async fn buckets_are_converted_when_the_number_of_nodes_changes() {
    let slow = Policy::per(1, SECOND * 3_600).capacity(100).build().unwrap();
    for limit in [Limit::named("a", slow).unwrap(), Limit::inline(slow)] {
        let (store, guard, _limiter) = guarded(per_second(1, 1));
        let outage = async |nodes: u32| {
            store.set(FaultMode::Answers);
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
        assert!(execute(&guard, settle).await.is_ok(), "the receipt is still valid");
        assert_eq!(take(&guard, &[Charge::new(&limit, "k", 0)]).await.remaining(), 39);
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_change_revises_the_share() {
    let (store, guard, limiter) = guarded(per_second(1, 100));
    bring_down(&store, &guard).await;
    assert_eq!(limiter.take("k").cost(60).await.unwrap().remaining(), 40);
    let old = limiter.limit();
    limiter.reconfigure(per_second(1, 10), PolicyChange::KeepTokens).unwrap();
    let smaller = limiter.take("k").await.unwrap();
    assert_eq!((smaller.outcomes()[0].capacity, smaller.remaining()), (10, 9));
    limiter.reconfigure(per_second(1, 50), PolicyChange::Reset).unwrap();
    assert_eq!(limiter.take("k").await.unwrap().remaining(), 49);
    let stale = take(&guard, &[Charge::new(&old, "k", 1)]).await;
    assert_eq!(stale.outcomes()[0].capacity, 50, "the newest policy counts for all");
}

/// Two changes between two decisions: the share never saw the first one, a reset.
#[tokio::test(start_paused = true)]
async fn missed_policy_changes_are_applied_to_a_share() {
    let (store, guard, limiter) = guarded(per_second(1, 100));
    bring_down(&store, &guard).await;
    for back in [60, 100] {
        assert_eq!(limiter.take("k").cost(100).await.unwrap().remaining(), 0);
        limiter.reconfigure(per_second(1, 50), PolicyChange::Reset).unwrap();
        limiter.reconfigure(per_second(1, back), PolicyChange::KeepTokens).unwrap();
        // A full bucket stays full, as in any store.
        assert_eq!(limiter.peek("k").cost(0).await.unwrap().remaining(), back);
        limiter.reconfigure(per_second(1, 100), PolicyChange::Reset).unwrap();
    }
}

/// After a change to a policy whose share cannot be represented, the limit is closed, but earlier
/// charges can still be settled.
#[tokio::test(start_paused = true)]
async fn a_share_that_cannot_be_revised_still_settles() {
    let (store, guard, limiter) = guarded(per_second(1, 100));
    store.set_nodes(3);
    bring_down(&store, &guard).await;
    let grant = limiter.take("k").cost(10).await.unwrap().granted().unwrap();
    let lifetime = Policy::per(1, Duration::from_secs(1_500_000_000)).build().unwrap();
    limiter.reconfigure(lifetime, PolicyChange::KeepTokens).unwrap();
    assert_eq!(limiter.take("k").await.unwrap().degraded(), Some(Closed));
    let settled = limiter.settle("k", -10, Some(&grant.receipt)).await.unwrap();
    assert_eq!(settled.applied[0], -10);
}

/// Two engines in one process, each with its own policy for the same name, in turn.
#[tokio::test(start_paused = true)]
async fn two_policies_of_one_name_do_not_refill_each_other() {
    let (store, guard, _limiter) = guarded(per_second(1, 1));
    bring_down(&store, &guard).await;
    let limits = [named("n", 1, 10), named("n", 1, 1_000)];
    let mut all = 0;
    for _ in 0..20 {
        for limit in &limits {
            all += admitted(&guard, limit).await;
        }
        tokio::time::sleep(SECOND * 10).await;
    }
    assert!(all <= 1_000 + 200, "{all} in 200 s");
}

/// One list with two generations of a limit: the newer one applies to both, in either order.
#[tokio::test(start_paused = true)]
async fn a_list_may_contain_two_generations_of_a_limit() {
    for swapped in [false, true] {
        let (store, guard, _limiter) = guarded(per_second(1, 1));
        bring_down(&store, &guard).await;
        let old = named("n", 1, 10);
        let new = old.revise(per_second(1, 100), PolicyChange::KeepTokens).unwrap();
        let (one, other) = if swapped { (&new, &old) } else { (&old, &new) };
        let list = [Charge::new(one, "k", 1), Charge::new(other, "k", 1)];
        let mut all = 0;
        while take(&guard, &list).await.is_allowed() {
            all += 2;
        }
        assert!(all <= 100, "{all}");
    }
}

/// The owner of the guard chooses what happens to keys beyond its memory.
#[tokio::test(start_paused = true)]
async fn overflow_decides_new_keys_when_memory_is_full() {
    let store = faulty();
    let slow = Policy::per(1, SECOND * 3_600).capacity(2).build().unwrap();
    let limit = Limit::named("slow", slow).unwrap();
    for (overflow, allowed) in [(Overflow::Shared, true), (Overflow::Deny, false)] {
        let guard = guard_of(&store).max_memory(1 << 20).overflow(overflow).build().unwrap();
        bring_down(&store, &guard).await;
        for key in 0..40_000 {
            let _ = take(&guard, &[Charge::new(&limit, &key.to_string(), 1)]).await;
        }
        // Of a thousand more keys, some find a shared bucket with a token.
        let mut admitted = 0;
        for key in 40_000..41_000 {
            let decision = take(&guard, &[Charge::new(&limit, &key.to_string(), 1)]).await;
            admitted += u32::from(decision.is_allowed());
        }
        assert_eq!(admitted > 0, allowed, "{overflow:?}");
    }
}

/// Slots that were taken before the limit and the number of nodes changed are released afterwards.
#[tokio::test(start_paused = true)]
async fn slots_are_released_after_limit_and_nodes_changed() {
    let (store, guard, _limiter) = guarded(per_second(1, 1));
    let slots = Limit::named("slots", Policy::concurrency(2, None).unwrap()).unwrap();
    bring_down(&store, &guard).await;
    let charges = [Charge::new(&slots, "k", 1)];
    let one_slot = take(&guard, &charges).await.granted().unwrap();
    let other_slot = take(&guard, &charges).await.granted().unwrap();
    assert!(!take(&guard, &charges).await.is_allowed());
    bring_up(&store, &guard).await;
    store.set_nodes(2);
    let more =
        slots.revise(Policy::concurrency(4, None).unwrap(), PolicyChange::KeepTokens).unwrap();
    for (limit, grant) in [(&more, one_slot), (&slots, other_slot)] {
        let targets = [Target::new(limit, "k")];
        let release = Operation::Release { targets: &targets, receipt: &grant.receipt };
        assert_eq!(execute(&guard, release).await.unwrap(), StoreResponse::Slots(1));
    }
    bring_down(&store, &guard).await;
    let both = take(&guard, &[Charge::new(&more, "k", 2)]).await;
    assert_eq!((both.is_allowed(), both.degraded()), (true, Some(Local)));
}

/// More inline limits than are kept: each still has its share and its receipts, however the number
/// of nodes changes.
#[tokio::test(start_paused = true)]
async fn a_flood_of_inline_limits_is_bounded_and_divided() {
    let (store, guard, _limiter) = guarded(per_second(1, 1));
    bring_down(&store, &guard).await;
    for capacity in 30..1_530 {
        store.set_nodes(3);
        let limit = Limit::inline(per_second(1, capacity));
        let granted = take(&guard, &[Charge::new(&limit, "k", 2)]).await.granted().unwrap();
        assert_eq!(granted.outcomes[0].remaining, capacity / 3 - 2);
        let back = [Correction::new(&limit, "k", -2)];
        store.set_nodes(2);
        let settle = Operation::Settle { corrections: &back, receipt: Some(&granted.receipt) };
        assert!(execute(&guard, settle).await.is_ok(), "{capacity}");
        // Beyond the maximum, two tokens of three nodes are a little more than two of two.
        let left = take(&guard, &[Charge::new(&limit, "k", 0)]).await.remaining();
        assert!(left == capacity / 2 || (capacity > 540 && left + 1 == capacity / 2), "{left}");
    }
}

/// Beyond the maximum, the buckets of a limit used to start over whenever the number of nodes
/// changed.
#[tokio::test(start_paused = true)]
async fn spent_tokens_count_beyond_the_maximum_number_of_shares() {
    let slow = |capacity| Policy::per(1, SECOND * 360_000).capacity(capacity).build().unwrap();
    for policy in [slow(1_000), Policy::allowance(1_000).unwrap()] {
        for numbers in [[1, 2, 3, 5, 20], [20, 5, 3, 2, 1], [2, 3, 2, 3, 2]] {
            let (store, guard, _limiter) = guarded(per_second(1, 1));
            bring_down(&store, &guard).await;
            for capacity in 1..=512 {
                let _ = take(&guard, &[Charge::new(&Limit::inline(slow(capacity)), "k", 1)]).await;
            }
            let (limit, mut all) = (Limit::inline(policy), 0);
            for nodes in numbers {
                store.set_nodes(nodes);
                all += admitted(&guard, &limit).await;
            }
            let largest = 1_000 / u64::from(*numbers.iter().min().unwrap());
            assert!(all <= largest, "{all} of {largest} among {numbers:?}");
        }
    }
}
