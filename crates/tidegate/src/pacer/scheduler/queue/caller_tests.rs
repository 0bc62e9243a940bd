//! Callers: peers come before credentials, and credentials before tenants, whatever the others do.

use super::*;
use crate::pacer::scheduler::share::Children;

/// A waiter that wants as many tokens of one bucket as its cost.
#[derive(Clone, Copy, Debug)]
struct TestWaiter {
    peer: u64,
    bucket: Id,
    cost: u64,
}

impl Demands for TestWaiter {
    fn demands(&self) -> impl Iterator<Item = (Id, u64)> + '_ {
        std::iter::once((self.bucket, self.cost))
    }
}

struct Harness {
    queue: FairQueue<TestWaiter>,
    bucket: Id,
    random: u64,
}

fn queue_key(caller: CallerId, tenant: &str) -> QueueKey {
    QueueKey { caller, priority: Priority::Normal, tenant: tenant.into(), weight: 1 }
}

impl Harness {
    fn new(seed: u64) -> Self {
        let bucket = Slab::default().insert(());
        Self { queue: FairQueue::new([0, 20, 5]), bucket, random: seed * 7_919 + 88_172_645 }
    }

    fn push(&mut self, queue_key: &QueueKey, cost: u64) -> Id {
        let waiter = TestWaiter { peer: queue_key.caller.peer, bucket: self.bucket, cost };
        self.queue.push(queue_key, cost, waiter)
    }

    /// Grants the next waiter.
    fn next(&mut self) -> Option<TestWaiter> {
        let head = self.queue.head()?;
        self.queue.grant(head);
        self.queue.take(head)
    }

    /// Number and cost of grants to others before the first grant to a peer.
    fn before(&mut self, peer: u64) -> (usize, u64) {
        let (mut count, mut cost) = (0, 0);
        while let Some(waiter) = self.next() {
            if waiter.peer == peer {
                return (count, cost);
            }
            (count, cost) = (count + 1, cost + waiter.cost);
        }
        panic!("peer {peer} has no waiters")
    }

    fn waiting(&self, peer: u64) -> usize {
        let is_peer = |share: &&CallerShare| share.key == peer && share.credentials().is_some();
        self.queue.shares.iter().find(is_peer).map_or(0, |share| share.waiters)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound
    }

    /// Checks every sum and every order against the actual waiters.
    fn check(&mut self) {
        let queue = &mut self.queue;
        let waiting = queue.nodes.iter().filter(|node| node.tenant.is_some());
        assert_eq!(waiting.count(), queue.len);
        let all: Vec<Id> = queue.shares.entries().map(|(id, _)| id).collect();
        for id in all {
            let (mut waiters, mut backlog, mut can_run) = (0, 0, false);
            for tenant in queue.tenants.iter() {
                if path(&queue.shares, tenant.share).contains(&Some(id)) {
                    waiters += tenant.waiters;
                    if tenant.parked.is_none() {
                        (backlog, can_run) = (backlog + tenant.demand.backlog, true);
                    }
                }
            }
            let share = queue.shares.get(id).unwrap();
            assert!(share.waiters > 0 && share.waiters == waiters, "{share:?}");
            assert_eq!(share.demand.backlog, backlog);
            assert_eq!(share.demand.tokens_of(self.bucket), u128::from(backlog));
            assert_eq!(queue.by_caller.get(&(share.parent, share.key)), Some(&id));
            let in_order = queue.order(share.parent).unwrap().iter().any(|entry| entry == id);
            assert_eq!(in_order, can_run, "{share:?}");
        }
        let is_peer = |share: &&CallerShare| matches!(share.children, Children::Credentials(_));
        let peers = queue.shares.iter().filter(is_peer).filter(|peer| peer.demand.backlog > 0);
        assert_eq!(peers.count(), queue.classes.iter().flat_map(Order::iter).count());
        assert_eq!(queue.by_caller.len(), queue.shares.iter().count());
        assert_eq!(queue.by_name.len(), queue.tenants.iter().count());
    }
}

#[test]
fn tenants_and_priorities_divide_only_the_share_of_their_caller() {
    let mut harness = Harness::new(1);
    for number in 0..60 {
        let tenant = format!("tenant-{number}");
        let priority = Priority::High;
        harness
            .push(&QueueKey { priority, ..queue_key(CallerId::new(1).credential(7), &tenant) }, 1);
    }
    harness.next();
    harness.push(
        &QueueKey { priority: Priority::Low, ..queue_key(CallerId::new(2).credential(7), "") },
        1,
    );
    assert!(harness.before(2).0 <= 1);
    // A second credential of the same peer.
    let other = queue_key(CallerId::new(1).credential(8), "");
    let waiter = harness.push(&other, 1);
    assert!((0..3).any(|_| {
        let head = harness.queue.head();
        harness.next();
        head == Some(waiter)
    }));
}

#[test]
fn credentials_divide_only_the_share_of_their_peer() {
    let mut harness = Harness::new(1);
    for number in 0..60 {
        harness.push(&queue_key(CallerId::new(1).credential(number), ""), 1);
    }
    harness.push(&queue_key(CallerId::new(2), ""), 1);
    assert!(harness.before(2).0 <= 1);
    // The same holds for credentials that come and go.
    harness.push(&queue_key(CallerId::new(2), ""), 5);
    for number in 100..110 {
        harness.push(&queue_key(CallerId::new(1).credential(number), ""), 1);
        if harness.next().is_some_and(|waiter| waiter.peer == 2) {
            return;
        }
    }
    panic!("newcomers starve a waiter");
}

#[test]
fn priorities_apply_within_a_caller_and_globally_for_trusted_ones() {
    let mut harness = Harness::new(1);
    let stranger = CallerId::new(1);
    let low = QueueKey { priority: Priority::Low, ..queue_key(stranger, "") };
    let high = QueueKey { priority: Priority::High, ..queue_key(stranger, "") };
    let (_, urgent) = (harness.push(&low, 1), harness.push(&high, 1));
    assert_eq!(harness.queue.head(), Some(urgent));
    let trusted =
        QueueKey { priority: Priority::High, ..queue_key(CallerId::new(2).trusted(), "") };
    let first = harness.push(&trusted, 1);
    assert_eq!(harness.queue.head(), Some(first));
}

/// The turn of a tenant is as long as the largest waiting request. That of a caller is not.
#[test]
fn a_huge_request_does_not_lengthen_the_turns_of_callers() {
    let mut harness = Harness::new(1);
    for _ in 0..60 {
        harness.push(&queue_key(CallerId::new(1), "small"), 1);
    }
    harness.push(&queue_key(CallerId::new(1), "huge"), 1_000_000);
    for _ in 0..10 {
        harness.push(&queue_key(CallerId::new(2), ""), 1);
        assert!(harness.before(2).0 <= 1);
    }
}

/// Two peers that always have waiters get the same amount, up to the largest request of each, while
/// others come and go under ever new names.
#[test]
fn every_peer_gets_its_share_whatever_the_others_do() {
    const LARGEST: u64 = 100;
    for seed in 1..20 {
        let mut harness = Harness::new(seed);
        let mut had = [0_u64; 2];
        let mut passing: Vec<Id> = Vec::new();
        for round in 0..2_000 {
            for peer in 0..2 {
                while harness.waiting(peer) < 2 || harness.below(4) == 0 {
                    let credential = harness.below(5);
                    let caller = CallerId::new(peer).credential(credential);
                    let tenant = format!("{}", harness.below(5));
                    // One of them asks for little at a time, the other for much.
                    let cost =
                        if peer == 0 { 1 + harness.below(3) } else { 1 + harness.below(LARGEST) };
                    harness.push(&queue_key(caller, &tenant), cost);
                }
            }
            if harness.below(3) == 0 {
                let caller = CallerId::new(100 + round).credential(round);
                let cost = 1 + harness.below(LARGEST);
                passing.push(harness.push(&queue_key(caller, ""), cost));
            }
            if harness.below(5) == 0 && !passing.is_empty() {
                let index = harness.below(passing.len() as u64);
                let leaving = passing.swap_remove(usize::try_from(index).unwrap());
                harness.queue.take(leaving);
            }
            let Some(waiter) = harness.next() else { continue };
            if let Some(had) = had.get_mut(usize::try_from(waiter.peer).unwrap()) {
                *had += waiter.cost;
            }
            let [one, other] = had;
            assert!(one.abs_diff(other) <= LARGEST + 3, "{one} and {other} in round {round}");
        }
    }
}

/// In whatever order waiters arrive, leave, are parked and granted, no state of them remains.
#[test]
fn cancelling_at_any_point_leaves_all_levels_consistent() {
    for seed in 1..30 {
        let mut harness = Harness::new(seed);
        let mut waiting: Vec<Id> = Vec::new();
        for now in 0..600 {
            match harness.below(6) {
                0..3 => {
                    let caller = CallerId::new(harness.below(4)).credential(harness.below(3));
                    let caller = if harness.below(3) == 0 { caller.trusted() } else { caller };
                    let tenant = format!("{}", harness.below(3));
                    let priority = Priority::ALL[usize::try_from(harness.below(3)).unwrap()];
                    let queue_key = QueueKey { priority, ..queue_key(caller, &tenant) };
                    let cost = 1 + harness.below(9);
                    waiting.push(harness.push(&queue_key, cost));
                }
                3 if !waiting.is_empty() => {
                    let index = usize::try_from(harness.below(waiting.len() as u64)).unwrap();
                    harness.queue.take(waiting.swap_remove(index));
                }
                4 => {
                    if let Some(head) = harness.queue.head() {
                        let until = (harness.below(2) == 0).then(|| Time::from_nanos(now + 5));
                        harness.queue.park(
                            head,
                            until,
                            &Causes::default(),
                            (&Totals::default(), Time::from_nanos(now)),
                        );
                    }
                }
                _ => {
                    harness.next();
                    harness.queue.unpark(&Totals::default(), Time::from_nanos(now));
                }
            }
            harness.check();
        }
        harness.queue.unpark_all(&Totals::default(), Time::from_nanos(1_000));
        harness.check();
        while harness.next().is_some() {
            harness.check();
        }
        let queue = &harness.queue;
        assert_eq!((queue.len, queue.parked_len, queue.shares.iter().count()), (0, 0, 0));
        assert!(queue.by_name.is_empty() && queue.by_caller.is_empty() && queue.costs.is_empty());
        assert!(queue.classes.iter().all(Order::is_empty));
    }
}

/// A projection is close to what happens, and a crowd at one peer does not distort that of another.
#[test]
fn the_demand_ahead_of_a_caller_is_projected_by_level() {
    let mut harness = Harness::new(1);
    for number in 0..1_000 {
        let caller = CallerId::new(1).credential(number % 10);
        harness.push(&queue_key(caller, &format!("{number}")), 1);
    }
    harness.next();
    let bucket = harness.bucket;
    let ahead = |harness: &Harness, queue_key: &QueueKey, cost| {
        harness.queue.tokens_ahead(queue_key, cost, bucket)
    };
    let victim = queue_key(CallerId::new(2), "");
    assert!(ahead(&harness, &victim, 1) <= 2, "{}", ahead(&harness, &victim, 1));
    let another = queue_key(CallerId::new(1).credential(99), "");
    assert!(ahead(&harness, &another, 1) <= 12 + 1, "{}", ahead(&harness, &another, 1));
    for seed in 1..50 {
        let mut harness = Harness::new(seed);
        for _ in 0..60 {
            let caller = CallerId::new(harness.below(4)).credential(harness.below(3));
            let cost = 1 + harness.below(9);
            harness.push(&queue_key(caller, ""), cost);
            if harness.below(3) == 0 {
                harness.next();
            }
        }
        let newcomer = queue_key(CallerId::new(harness.below(5)).credential(harness.below(4)), "");
        let projected = harness.queue.tokens_ahead(&newcomer, 5, harness.bucket);
        let waiter = harness.push(&newcomer, 5);
        let mut actual = 0;
        while let Some(head) = harness.queue.head().filter(|head| *head != waiter) {
            actual += u128::from(harness.queue.get(head).unwrap().cost);
            harness.next();
        }
        // Each of seven others may have one request more or less before it.
        assert!(projected.abs_diff(actual) <= 7 * 9, "projected {projected}, actual {actual}");
    }
}
