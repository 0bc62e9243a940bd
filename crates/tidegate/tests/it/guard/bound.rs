//! How far a limit can be exceeded around outages: never further than the module documents.

use std::time::Duration;

use tidegate::guard::GuardedStore;
use tidegate::{Engine, Limiter, Policy};
use tokio::time::Instant;

use super::faulty::{FaultMode, MILLI, SECOND, TIMEOUT, faulty, guard_of};

/// A small deterministic generator of pseudo-random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// The documented bound on what the three nodes have admitted by now.
struct Bound {
    policy: (u64, u64),
    nodes: u64,
    start: Instant,
    /// Number of times the store went down or came back.
    switches: u64,
    /// Time in which some nodes may have decided by themselves while others reached the store.
    disagreed: Duration,
}

impl Bound {
    fn now(&self) -> u64 {
        let (rate, capacity) = self.policy;
        let refilled = |span: Duration| {
            u64::try_from(u128::from(rate) * span.as_micros() / 1_000_000).unwrap()
        };
        let most = capacity.max(self.nodes);
        let time = self.start.elapsed();
        let by_switches = (1 + self.switches) * most + refilled(time + self.disagreed);
        by_switches.min(capacity + most + refilled(time * 2))
    }
}

/// Three guards on one store that fails and recovers at random, called as fast as they grant.
async fn run(seed: u64, rate: u64, capacity: u64) -> (u64, u64) {
    let mut random = Random(seed);
    let store = faulty();
    store.set_nodes(3);
    let policy = Policy::per_second(rate).capacity(capacity).build().unwrap();
    let guards: Vec<_> = (0..3).map(|_| guard_of(&store).build().unwrap()).collect();
    let limiters: Vec<Limiter> = guards
        .iter()
        .map(|guard| Engine::on(guard.clone()).limiter("calls", policy).unwrap())
        .collect();
    let mut bound = Bound {
        policy: (rate, capacity),
        nodes: 3,
        start: Instant::now(),
        switches: 0,
        disagreed: Duration::ZERO,
    };
    let (mut admitted, mut alive) = (0, true);
    let mut change = Instant::now() + MILLI * 500;
    while bound.start.elapsed() < SECOND * 120 {
        if Instant::now() >= change {
            alive = !alive;
            let modes =
                [FaultMode::Hangs, FaultMode::Refuses, FaultMode::Swallows, FaultMode::Silent];
            let dead = modes[usize::try_from(random.below(4)).unwrap()];
            store.set(if alive { FaultMode::Answers } else { dead });
            bound.switches += 1;
            change = Instant::now() + MILLI * u32::try_from(100 + random.below(9_000)).unwrap();
        }
        let begun = Instant::now();
        let disagree = || alive && guards.iter().any(|guard| !guard.is_up());
        let disagreed_before = disagree();
        for limiter in &limiters {
            for _ in 0..50 {
                if !limiter.take("k").await.unwrap().is_allowed() {
                    break;
                }
                admitted += 1;
                assert!(
                    admitted <= bound.now(),
                    "{admitted} of {} after {:?}",
                    bound.now(),
                    bound.start.elapsed()
                );
            }
        }
        tokio::time::sleep(MILLI * u32::try_from(1 + random.below(40)).unwrap()).await;
        if disagreed_before || disagree() {
            bound.disagreed += begun.elapsed();
        }
    }
    store.set(FaultMode::Answers);
    tokio::time::sleep(SECOND * 5 + TIMEOUT).await;
    assert!(guards.iter().all(GuardedStore::is_up), "all guards see the store again");
    (admitted, bound.switches)
}

#[tokio::test(start_paused = true)]
async fn three_nodes_never_exceed_the_documented_bound() {
    for (seed, rate, capacity) in
        [(1, 10, 20), (2, 10, 20), (3, 100, 10), (4, 1, 100), (5, 7, 1), (6, 3, 2), (7, 50, 50)]
    {
        let (admitted, switches) = run(seed, rate, capacity).await;
        assert!(switches > 10, "{switches}");
        // Not much less than the limit either: outages do not deny requests for long.
        let limit = capacity + rate * 120;
        assert!(admitted * 10 >= limit * 7, "{admitted} of {limit}");
    }
}
