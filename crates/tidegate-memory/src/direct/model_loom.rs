//! Loom models of two threads on a direct limiter: no token is spent twice, and none is lost.

use std::sync::Arc;

use loom::thread;
use tidegate_core::{Policy, Time};

use super::{AtomicBucket, DirectLimiter};
use crate::clock::{CachedClock, ManualClock};

fn policy(capacity: u64) -> Policy {
    Policy::per_second(1).capacity(capacity).build().unwrap()
}

#[test]
fn atomic_bucket_grants_its_last_token_once() {
    loom::model(|| {
        let Policy::Bucket(bucket) = policy(3) else { unreachable!() };
        let atomic = Arc::new(AtomicBucket::new(&bucket).unwrap());
        let other = {
            let atomic = atomic.clone();
            thread::spawn(move || atomic.take(2, Time::ZERO).unwrap().allowed)
        };
        let mine = atomic.take(2, Time::ZERO).unwrap().allowed;
        assert!(mine ^ other.join().unwrap(), "three tokens, two takes of two");
        assert!(atomic.take(1, Time::ZERO).unwrap().allowed);
        assert!(!atomic.take(1, Time::ZERO).unwrap().allowed);
    });
}

#[test]
fn locked_bucket_grants_its_last_token_once() {
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

#[test]
fn policy_change_loses_no_take_and_grants_no_token_twice() {
    loom::model(|| {
        let limiter = Arc::new(DirectLimiter::with_clock(policy(4), CachedClock::new()).unwrap());
        assert!(limiter.take(1).is_allowed());
        let other = {
            let limiter = limiter.clone();
            thread::spawn(move || limiter.take(2).is_allowed())
        };
        limiter.reconfigure(policy(5)).unwrap();
        let mine = limiter.take(2).is_allowed();
        assert!(mine ^ other.join().unwrap(), "three tokens are kept, two takes of two");
        assert!(limiter.take(1).is_allowed());
        assert!(!limiter.take(1).is_allowed());
    });
}

#[test]
fn reserve_and_take_share_the_tokens() {
    loom::model(|| {
        let limiter = Arc::new(DirectLimiter::with_clock(policy(3), CachedClock::new()).unwrap());
        let other = {
            let limiter = limiter.clone();
            thread::spawn(move || limiter.take(2).is_allowed())
        };
        let mine = limiter.reserve(2, std::time::Duration::ZERO).granted();
        assert!(mine.is_some() ^ other.join().unwrap(), "three tokens, two spends of two");
        if let Some(grant) = mine {
            limiter.settle(-2, Some(&grant.receipt)).unwrap();
            assert!(limiter.take(2).is_allowed(), "the refund is available");
        }
        assert!(limiter.take(1).is_allowed());
        assert!(!limiter.take(1).is_allowed());
    });
}
