//! Turns, shares, parking and leaving, without time and without limits.

use super::*;

impl Demands for &'static str {
    fn demands(&self) -> impl Iterator<Item = (Id, u64)> + '_ {
        std::iter::empty()
    }
}

/// A waiter that wants one token of a bucket.
struct One(Id);

impl Demands for One {
    fn demands(&self) -> impl Iterator<Item = (Id, u64)> + '_ {
        std::iter::once((self.0, 1))
    }
}

fn queue_key(tenant: &str) -> QueueKey {
    QueueKey {
        caller: CallerId::UNSPECIFIED,
        priority: Priority::Normal,
        tenant: tenant.into(),
        weight: 1,
    }
}

fn drain(queue: &mut FairQueue<&'static str>) -> Vec<&'static str> {
    let mut order = Vec::new();
    while let Some(id) = queue.head() {
        queue.grant(id);
        order.push(queue.take(id).unwrap());
    }
    order
}

#[test]
fn a_tenant_is_served_in_order_of_arrival() {
    let mut queue = FairQueue::new([0; 3]);
    for name in ["1", "2", "3", "4"] {
        queue.push(&queue_key("a"), 1, name);
    }
    assert_eq!(drain(&mut queue), ["1", "2", "3", "4"]);
    assert_eq!(queue.len(), 0);
}

#[test]
fn tenants_take_turns_by_cost_and_weight() {
    let mut queue = FairQueue::new([0; 3]);
    for name in ["a1", "a2", "a3"] {
        queue.push(&queue_key("a"), 2, name);
    }
    for name in ["b1", "b2", "b3", "b4"] {
        queue.push(&queue_key("b"), 1, name);
    }
    assert_eq!(drain(&mut queue), ["a1", "b1", "b2", "a2", "b3", "b4", "a3"]);
    let heavy = QueueKey { weight: 2, ..queue_key("heavy") };
    for name in ["h1", "h2", "h3", "h4"] {
        queue.push(&heavy, 1, name);
    }
    for name in ["l1", "l2"] {
        queue.push(&queue_key("light"), 1, name);
    }
    assert_eq!(drain(&mut queue), ["h1", "h2", "l1", "h3", "h4", "l2"]);
}

#[test]
fn a_large_request_is_not_starved_by_small_ones() {
    let mut queue = FairQueue::new([0; 3]);
    queue.push(&queue_key("small"), 1, "s");
    let large = queue.push(&queue_key("large"), 50, "L");
    for _ in 0..200 {
        queue.push(&queue_key("small"), 1, "s");
    }
    let order = drain(&mut queue);
    let place = order.iter().position(|name| *name == "L").unwrap();
    assert!(place <= 50, "after {place} small ones, {large:?}");
}

#[test]
fn the_head_stays_the_same_while_others_arrive() {
    let mut queue = FairQueue::new([0; 3]);
    queue.push(&queue_key("a"), 5, "first");
    let head = queue.head();
    queue.push(&queue_key("b"), 1, "later");
    queue.push(&queue_key("a"), 1, "later");
    assert_eq!(queue.head(), head);
}

#[test]
fn a_parked_tenant_blocks_nobody_and_comes_back() {
    let mut queue = FairQueue::new([0; 3]);
    queue.push(&queue_key("a"), 1, "a1");
    queue.push(&queue_key("b"), 1, "b1");
    let head = queue.head().unwrap();
    queue.park(
        head,
        Some(Time::from_nanos(5)),
        &Causes::default(),
        (&Totals::default(), Time::ZERO),
    );
    assert_eq!((queue.parked_len(), queue.next_unpark()), (1, Some(Time::from_nanos(5))));
    let b = queue.head().unwrap();
    assert_eq!(queue.get(b), Some(&"b1"));
    queue.grant(b);
    queue.take(b);
    assert_eq!(queue.head(), None);
    assert_eq!(queue.len(), 1);
    queue.unpark(&Totals::default(), Time::from_nanos(4));
    assert_eq!(queue.head(), None);
    queue.unpark(&Totals::default(), Time::from_nanos(5));
    assert_eq!(drain(&mut queue), ["a1"]);
    assert_eq!((queue.parked_len(), queue.next_unpark()), (0, None));
}

#[test]
fn a_parked_tenant_that_leaves_is_forgotten() {
    let mut queue = FairQueue::new([0; 3]);
    let id = queue.push(&queue_key("a"), 1, "a1");
    queue.park(id, Some(Time::from_nanos(5)), &Causes::default(), (&Totals::default(), Time::ZERO));
    assert!(queue.take(id).is_some());
    assert_eq!((queue.parked_len(), queue.next_unpark()), (0, None));
}

/// Tenants that share a limit of their own are parked until the same instant, at which only one of
/// them can go. That used to be the one with the lowest id, and a tenant that came back at once
/// kept that id.
#[test]
fn tenants_parked_together_are_unparked_in_order() {
    let mut queue = FairQueue::new([0; 3]);
    for name in ["a", "b", "c"] {
        queue.push(&queue_key(name), 1, name);
    }
    let mut order = Vec::new();
    for round in 0..9 {
        let next = Time::from_nanos(round + 1);
        let head = queue.head().unwrap();
        queue.grant(head);
        let name = queue.take(head).unwrap();
        order.push(name);
        queue.push(&queue_key(name), 1, name);
        while let Some(head) = queue.head() {
            queue.park(
                head,
                Some(next),
                &Causes::default(),
                (&Totals::default(), Time::from_nanos(round)),
            );
        }
        queue.unpark(&Totals::default(), next);
    }
    assert_eq!(order, ["a", "b", "c", "a", "b", "c", "a", "b", "c"]);
}

/// A tenant that is parked again and again must not save up its turns.
#[test]
fn parking_saves_up_no_turns() {
    let mut queue = FairQueue::new([0; 3]);
    queue.push(&queue_key("big"), 10, "big");
    for _ in 0..100 {
        queue.push(&queue_key("a"), 1, "a");
        queue.push(&queue_key("b"), 1, "b");
    }
    for round in 0..50 {
        let now = Time::from_nanos(round);
        while let Some(head) = queue.head().filter(|head| queue.get(*head) == Some(&"a")) {
            queue.park(head, Some(now), &Causes::default(), (&Totals::default(), now));
        }
        queue.unpark(&Totals::default(), now);
    }
    let order = drain(&mut queue);
    let longest = order.chunk_by(|x, y| x == y).map(<[_]>::len).max().unwrap();
    assert!(longest <= 20, "{longest} in a row, with a turn of 10");
}

/// Tenants that come and go behind a blocked head must leave nothing behind.
#[test]
fn the_ring_forgets_tenants_that_left() {
    let mut queue = FairQueue::new([0; 3]);
    queue.push(&queue_key("head"), 1, "head");
    let head = queue.head();
    for number in 0..10_000 {
        let id = queue.push(&queue_key(&format!("tenant-{number}")), 1, "passing");
        assert!(queue.take(id).is_some());
    }
    assert_eq!(queue.head(), head);
    let share = queue.find(&queue_key("head")).credential.unwrap();
    let tenants = queue.shares.get(share).and_then(CallerShare::tenants).unwrap();
    assert!(tenants.rings[Priority::Normal.index()].len() < 100);
}

/// A class that cannot go accrues no credit meanwhile.
#[test]
fn a_parked_class_accrues_no_credit() {
    let mut queue = FairQueue::new([0, 20, 50]);
    let low = QueueKey { priority: Priority::Low, ..queue_key("low") };
    let parked = queue.push(&low, 1, "low");
    queue.park(parked, None, &Causes::default(), (&Totals::default(), Time::ZERO));
    for _ in 0..100 {
        queue.push(&low, 1, "low");
        queue.push(&QueueKey { priority: Priority::High, ..queue_key("high") }, 1, "high");
    }
    for _ in 0..50 {
        let head = queue.head().unwrap();
        queue.grant(head);
        assert_eq!(queue.take(head), Some("high"));
    }
    queue.unpark_all(&Totals::default(), Time::ZERO);
    let mut low = 0;
    for _ in 0..40 {
        let head = queue.head().unwrap();
        queue.grant(head);
        low += usize::from(queue.take(head) == Some("low"));
    }
    assert!((18..=22).contains(&low), "{low} of 40 at a share of half");
}

#[test]
fn the_highest_class_goes_first_but_a_guaranteed_share_is_kept() {
    let mut queue = FairQueue::new([0, 20, 5]);
    for _ in 0..1_000 {
        for (priority, name) in Priority::ALL.into_iter().zip(["high", "normal", "low"]) {
            queue.push(&QueueKey { priority, ..queue_key("t") }, 1, name);
        }
    }
    let mut seen = [0_i32; 3];
    for _ in 0..400 {
        let head = queue.head().unwrap();
        queue.grant(head);
        let name = queue.take(head).unwrap();
        seen[["high", "normal", "low"].iter().position(|n| *n == name).unwrap()] += 1;
    }
    for (seen, share) in seen.into_iter().zip([300_i32, 80, 20]) {
        assert!((seen - share).abs() <= 2, "{seen} of 400 instead of {share}");
    }
}

#[test]
fn waiters_can_be_removed_anywhere_in_the_queue() {
    let mut queue = FairQueue::new([0; 3]);
    let ids: Vec<_> =
        ["1", "2", "3", "4", "5"].map(|name| queue.push(&queue_key("a"), 1, name)).into();
    for index in [2, 0, 4] {
        assert!(queue.take(ids[index]).is_some());
        assert!(queue.take(ids[index]).is_none());
    }
    assert_eq!(drain(&mut queue), ["2", "4"]);
}

#[test]
fn the_demand_ahead_is_counted_by_turns() {
    let (mut queue, mut buckets) = (FairQueue::new([0; 3]), Slab::default());
    let (bucket, other) = (buckets.insert(()), buckets.insert(()));
    for _ in 0..10 {
        queue.push(&queue_key("other"), 1, One(bucket));
    }
    let own = queue.push(&queue_key("own"), 1, One(bucket));
    assert_eq!(queue.tokens_ahead(&queue_key("other"), 1, bucket), 11);
    assert_eq!(
        queue.tokens_ahead(&queue_key("own"), 1, bucket),
        3,
        "its own, and two turns of the other"
    );
    assert_eq!(queue.tokens_ahead(&queue_key("own"), 1, other), 0);
    assert!(queue.take(own).is_some());
    assert_eq!(queue.tokens_ahead(&queue_key("own"), 1, bucket), 1);
    let low = QueueKey { priority: Priority::Low, ..queue_key("own") };
    assert_eq!(queue.tokens_ahead(&low, 1, bucket), 10, "a higher class goes first");
    queue.guaranteed = [0, 20, 25];
    assert_eq!(queue.tokens_ahead(&low, 1, bucket), 4, "except for the guaranteed quarter");
    let low = QueueKey { priority: Priority::Low, ..queue_key("low") };
    for _ in 0..10 {
        queue.push(&low, 1, One(bucket));
    }
    let other = QueueKey { ..queue_key("other") };
    assert_eq!(queue.tokens_ahead(&other, 1, bucket), 13, "and a lower one takes its quarter");
}
