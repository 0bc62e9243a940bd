//! Every interleaving of two threads on a direct limiter, by loom: no token is spent twice, and none lost.

use std::sync::Arc;

use loom::thread;
use tidegate_core::{Policy, Time};

use super::{AtomicBucket, DirectLimiter};
use crate::clock::ManualClock;

fn policy(capacity: u64) -> Policy {
    Policy::per_second(1).capacity(capacity).build().unwrap()
}

#[test]
fn a_word_gives_its_last_token_to_one_of_two() {
    loom::model(|| {
        let Policy::Bucket(bucket) = policy(3) else { unreachable!() };
        let word = Arc::new(AtomicBucket::new(&bucket).unwrap());
        let other = {
            let word = word.clone();
            thread::spawn(move || word.take(2, Time::ZERO).allowed)
        };
        let mine = word.take(2, Time::ZERO).allowed;
        assert!(mine ^ other.join().unwrap(), "three tokens, two takes of two");
        assert!(word.take(1, Time::ZERO).allowed);
        assert!(!word.take(1, Time::ZERO).allowed);
    });
}

#[test]
fn a_latch_gives_its_last_token_to_one_of_two() {
    loom::model(|| {
        let limiter = Arc::new(DirectLimiter::with_clock(policy(3), ManualClock::new()).unwrap());
        let other = {
            let limiter = limiter.clone();
            thread::spawn(move || limiter.take(2).is_allowed())
        };
        let mine = limiter.take(2).is_allowed();
        assert!(mine ^ other.join().unwrap(), "three tokens, two takes of two");
        assert!(limiter.take(1).is_allowed());
        assert!(!limiter.take(1).is_allowed());
    });
}
