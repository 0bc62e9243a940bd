//! Everything at once, at random: own limits, slots of the store, debt, duplicates, classes,
//! weights, deadlines, holds and policy changes. Whatever was held is given back exactly.

use std::time::Duration;

use tidegate::pacer::{Acquire, Pacer, Permit, Priority};
use tidegate::{Limiter, Policy, PolicyChange};

use super::manual::{ManualEngine, Random, Waiter};

struct Harness {
    pacer: Pacer,
    shared: Limiter,
    own: Limiter,
    slots: Limiter,
}

impl Harness {
    fn acquire(&self, random: &mut Random) -> Acquire {
        let tenant = ["x", "y", "z"][random.below(3)];
        let most = if random.below(10) == 0 { 70 } else { 20 };
        let mut claims = vec![self.shared.charge("k", random.below(most) as u64)];
        if random.below(2) == 0 {
            claims.push(self.own.charge(tenant, random.below(10) as u64).per_tenant());
        }
        if random.below(2) == 0 {
            claims.push(self.slots.charge("s", 1 + random.below(2) as u64));
        }
        if random.below(5) == 0 {
            claims.push(self.shared.charge("k", random.below(5) as u64));
        }
        let classes = [Priority::High, Priority::Normal, Priority::Low];
        let weight = 1 + u32::try_from(random.below(3)).unwrap();
        let acquire = self.pacer.acquire(claims).tenant(tenant).weight(weight);
        let acquire = acquire.priority(classes[random.below(3)]).refund_on_drop(true);
        let acquire = acquire.into_debt();
        match random.below(4) {
            0 => acquire.max_wait(Duration::from_secs(random.below(100) as u64)),
            _ => acquire,
        }
    }
}

#[test]
fn everything_held_is_given_back_exactly() {
    for seed in 1..12 {
        let manual = ManualEngine::new();
        let harness = Harness {
            pacer: manual.builder().concurrency(6).build(),
            shared: manual.per_second("shared", 1, 40),
            own: manual.per_second("own", 1, 20),
            slots: manual.engine.limiter("slots", Policy::concurrency(4, None).unwrap()).unwrap(),
        };
        let mut random = Random::new(seed);
        let (mut waiters, mut permits) = (Vec::<Waiter>::new(), Vec::<Permit>::new());
        for _ in 0..20_000 {
            match random.below(8) {
                0..3 if waiters.len() < 30 => match Waiter::join(harness.acquire(&mut random)) {
                    Ok(waiter) => waiters.push(waiter),
                    Err(done) => permits.extend(done),
                },
                3 if !waiters.is_empty() => {
                    drop(waiters.swap_remove(random.below(waiters.len())));
                }
                4 if !waiters.is_empty() => {
                    let index = random.below(waiters.len());
                    if let Some(done) = waiters[index].poll() {
                        waiters.swap_remove(index);
                        permits.extend(done);
                    }
                }
                5 | 6 if !permits.is_empty() => {
                    drop(permits.swap_remove(random.below(permits.len())));
                }
                7 if random.below(50) == 0 => {
                    let rate = 1 + random.below(3) as u64;
                    let policy = Policy::per_second(rate).capacity(40).build().unwrap();
                    harness.shared.reconfigure(policy, PolicyChange::KeepTokens).unwrap();
                }
                7 if random.below(50) == 0 => {
                    harness.slots.hold("s", Duration::ZERO).now().unwrap();
                }
                _ => {
                    harness.pacer.poll();
                }
            }
        }
        drop(waiters);
        drop(permits);
        let left = |limiter: &Limiter, key| limiter.peek(key).cost(0).now().unwrap().remaining();
        let all = (left(&harness.shared, "k"), left(&harness.own, "y"), left(&harness.slots, "s"));
        assert_eq!(all, (40, 20, 4), "seed {seed}");
        let gauges = harness.pacer.gauges();
        assert_eq!((gauges.waiting, gauges.in_flight), (0, 0));
    }
}
