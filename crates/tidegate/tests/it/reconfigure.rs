//! Policies change under live traffic: atomically, at once, and without extra tokens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate::clock::ManualClock;
use tidegate::{Engine, LimitError, Limiter, MemoryStore, Policy, PolicyChange};

fn limiter(capacity: u64) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let engine = Engine::on(Arc::new(store));
    (engine.limiter("api", policy(1, capacity)).unwrap(), clock)
}

fn policy(rate: u64, capacity: u64) -> Policy {
    Policy::per_second(rate).capacity(capacity).build().unwrap()
}

fn left(limiter: &Limiter) -> u64 {
    limiter.take("x").cost(0).now().unwrap().remaining()
}

/// Tokens stay and the new rate applies; a raised capacity adds nothing at once, and a lowered one
/// cuts at the next check.
#[test]
fn buckets_keep_their_tokens_and_converge() {
    let (limiter, clock) = limiter(100);
    let _ = limiter.take("x").cost(40).now().unwrap();
    limiter.reconfigure(policy(10, 1_000), PolicyChange::KeepTokens).unwrap();
    assert_eq!(left(&limiter), 60);
    let _ = limiter.take("x").now().unwrap();
    clock.advance(Duration::from_secs(1));
    assert_eq!(left(&limiter), 69, "refilled at the new rate");
    limiter.reconfigure(policy(10, 20), PolicyChange::KeepTokens).unwrap();
    assert_eq!(left(&limiter), 20);
    assert_eq!(limiter.take("fresh").cost(0).now().unwrap().remaining(), 20);
}

#[test]
fn proportional_and_reset_changes_convert_buckets() {
    let (limiter, _clock) = limiter(100);
    let _ = limiter.take("x").cost(40).now().unwrap();
    limiter.reconfigure(policy(1, 50), PolicyChange::Proportional).unwrap();
    assert_eq!(left(&limiter), 30);
    limiter.reconfigure(policy(1, 70), PolicyChange::Reset).unwrap();
    assert_eq!(left(&limiter), 70);
}

#[test]
fn clones_see_changes_and_inline_policies_cannot_change() {
    let (limiter, _clock) = limiter(10);
    let clone = limiter.clone();
    limiter.reconfigure(policy(1, 3), PolicyChange::KeepTokens).unwrap();
    assert_eq!((clone.policy().capacity(), clone.limit().generation()), (3, 1));
    let inline = Engine::new().inline(policy(1, 3)).unwrap();
    assert_eq!(inline.reconfigure(policy(1, 4), PolicyChange::Reset), Err(LimitError::Inline));
}

/// Readers during continuous changes see one policy or the other, never a mixture.
#[test]
fn no_reader_sees_half_a_change() {
    let (limiter, _clock) = limiter(10);
    limiter.reconfigure(policy(10, 10), PolicyChange::KeepTokens).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (limiter, done) = (limiter.clone(), done.clone());
            std::thread::spawn(move || {
                let mut seen = [0_u64; 2];
                while !done.load(Ordering::Relaxed) || seen.contains(&0) {
                    let Policy::Bucket(bucket) = limiter.policy() else { unreachable!() };
                    let pair = (bucket.rate(), bucket.capacity());
                    let slow = pair == (tidegate::Rate::per_second(10).unwrap(), 10);
                    let fast = pair == (tidegate::Rate::per_second(7).unwrap(), 700);
                    assert!(slow || fast, "a mixed policy: {pair:?}");
                    seen[usize::from(fast)] += 1;
                    let _ = limiter.take("x").now().unwrap();
                }
            })
        })
        .collect();
    for round in 0..5_000 {
        let next = if round % 2 == 0 { policy(7, 700) } else { policy(10, 10) };
        limiter.reconfigure(next, PolicyChange::KeepTokens).unwrap();
        if round % 100 == 0 {
            std::thread::yield_now();
        }
    }
    done.store(true, Ordering::Relaxed);
    // A reader that has seen only one of the two needs the other once more.
    while readers.iter().any(|reader| !reader.is_finished()) {
        for next in [policy(7, 700), policy(10, 10)] {
            limiter.reconfigure(next, PolicyChange::KeepTokens).unwrap();
            std::thread::yield_now();
        }
    }
    for reader in readers {
        reader.join().unwrap();
    }
}
