//! Every interleaving of two threads on a valve, by loom: no token is spent twice, and none lost.

use std::sync::Arc;

use loom::thread;
use tidegate_core::{Policy, Time};

use super::{Valve, Word};
use crate::clock::ManualClock;

fn policy(capacity: u64) -> Policy {
    Policy::per_second(1).capacity(capacity).build().unwrap()
}

#[test]
fn a_word_gives_its_last_token_to_one_of_two() {
    loom::model(|| {
        let Policy::Bucket(bucket) = policy(3) else { unreachable!() };
        let word = Arc::new(Word::new(&bucket).unwrap());
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
        let valve = Arc::new(Valve::with_clock(policy(3), ManualClock::new()).unwrap());
        let other = {
            let valve = valve.clone();
            thread::spawn(move || valve.take(2).is_allowed())
        };
        let mine = valve.take(2).is_allowed();
        assert!(mine ^ other.join().unwrap(), "three tokens, two takes of two");
        assert!(valve.take(1).is_allowed());
        assert!(!valve.take(1).is_allowed());
    });
}
