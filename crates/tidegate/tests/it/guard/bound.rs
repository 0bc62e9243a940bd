//! How far a limit can be exceeded around outages: never further than the module says.

use std::time::Duration;

use tidegate::guard::Guarded;
use tidegate::{Engine, Limiter, Policy};
use tokio::time::Instant;

use super::faulty::{MILLI, Mood, SECOND, TIMEOUT, faulty, guard_of};

/// A small generator of numbers that are as good as random and the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// What the three nodes may have admitted by now.
struct Bound {
    policy: (u64, u64),
    nodes: u64,
    start: Instant,
    /// Times the store was lost or found.
    switches: u64,
    /// Time in which some nodes may have decided by themselves while others reached the store.
    disagreed: Duration,
}

impl Bound {
    fn now(&self) -> u64 {
        let (rate, capacity) = self.policy;
        let came = |span: Duration| {
            u64::try_from(u128::from(rate) * span.as_micros() / 1_000_000).unwrap()
        };
        let most = capacity.max(self.nodes);
        let time = self.start.elapsed();
        let by_switches = (1 + self.switches) * most + came(time + self.disagreed);
        by_switches.min(capacity + most + came(time * 2))
    }
}

/// Three guards on one store that dies and recovers at random, asked as fast as they grant.
async fn run(seed: u64, rate: u64, capacity: u64) -> (u64, u64) {
    let mut numbers = Numbers(seed);
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
            let moods = [Mood::Hangs, Mood::Refuses, Mood::Swallows, Mood::Silent];
            let dead = moods[usize::try_from(numbers.below(4)).unwrap()];
            store.set(if alive { Mood::Answers } else { dead });
            bound.switches += 1;
            change = Instant::now() + MILLI * u32::try_from(100 + numbers.below(9_000)).unwrap();
        }
        let begun = Instant::now();
        let apart = || alive && guards.iter().any(|guard| !guard.is_up());
        let were_apart = apart();
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
        tokio::time::sleep(MILLI * u32::try_from(1 + numbers.below(40)).unwrap()).await;
        if were_apart || apart() {
            bound.disagreed += begun.elapsed();
        }
    }
    store.set(Mood::Answers);
    tokio::time::sleep(SECOND * 5 + TIMEOUT).await;
    assert!(guards.iter().all(Guarded::is_up), "all found it again");
    (admitted, bound.switches)
}

#[tokio::test(start_paused = true)]
async fn three_nodes_never_admit_more_than_is_stated() {
    for (seed, rate, capacity) in
        [(1, 10, 20), (2, 10, 20), (3, 100, 10), (4, 1, 100), (5, 7, 1), (6, 3, 2), (7, 50, 50)]
    {
        let (admitted, switches) = run(seed, rate, capacity).await;
        assert!(switches > 10, "{switches}");
        // And not much less than the limit either: outages deny nobody for long.
        let limit = capacity + rate * 120;
        assert!(admitted * 10 >= limit * 7, "{admitted} of {limit}");
    }
}
