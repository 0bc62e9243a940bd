//! Many threads on one store, with the clock in the test's hand.
//!
//! The bound is capacity + rate * time, and it is reached exactly when the threads ask for more
//! than comes. Lists name their buckets in different orders, so that a store that locks in the
//! order of the list would block itself. Nothing here sleeps: a run ends when its work is done.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tidegate_core::{Answer, Charge, Limit, Operation, Policy};

use crate::scenario::step::ORIGIN_NS;
use crate::subject::{Subject, ask_blocking, block_on};

const MILLI: u64 = 1_000_000;
/// Tokens in the shared bucket when full.
const CAPACITY: u64 = 50;
/// Tokens per minute that come into it; not a divisor of anything.
const PER_MINUTE: u64 = 700_001;

/// How hard to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Threads that ask.
    pub threads: usize,
    /// How often the clock moves.
    pub rounds: u64,
}

impl Default for Load {
    fn default() -> Self {
        Self { threads: 4, rounds: 200 }
    }
}

/// Runs every harness; each wants a new subject.
///
/// # Panics
/// When the store grants too much or too little, or spends on a denial.
pub fn check_all<S: Subject>(factory: impl Fn() -> S, load: Load) {
    saturated(&factory(), load);
    racing_the_clock(&factory(), load);
    denied_lists_change_nothing(&factory(), load);
}

/// In each round the clock stands still and all threads take until they are denied: exactly
/// what has come by then is granted.
///
/// # Panics
/// When more or less is granted.
pub fn saturated(subject: &dyn Subject, load: Load) {
    let shared = shared_limit();
    let own = generous_limit("saturated-own");
    let (granted, barrier) = (AtomicU64::new(0), Barrier::new(load.threads));
    set_time(subject, 0);
    thread::scope(|scope| {
        for thread in 0..load.threads {
            let (shared, own, granted, barrier) = (&shared, &own, &granted, &barrier);
            scope.spawn(move || {
                let key = format!("thread-{thread}");
                for round in 0..=load.rounds {
                    if barrier.wait().is_leader() {
                        set_time(subject, round * MILLI);
                    }
                    barrier.wait();
                    while try_take(subject, &list(shared, own, &key, thread)) {
                        granted.fetch_add(1, Ordering::Relaxed);
                    }
                    barrier.wait();
                    let exact = refilled_by(round * MILLI);
                    assert_eq!(granted.load(Ordering::Relaxed), exact, "in round {round}");
                }
            });
        }
    });
}

/// One thread moves the clock while the others take. At no time is more granted than has come,
/// and in the end, because the bucket was never full for long, exactly that.
///
/// # Panics
/// When more or less is granted.
pub fn racing_the_clock(subject: &dyn Subject, load: Load) {
    let shared = shared_limit();
    let own = generous_limit("racing-own");
    let (granted, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let take = |key: &str, thread: usize| {
        let allowed = try_take(subject, &list(&shared, &own, key, thread));
        granted.fetch_add(u64::from(allowed), Ordering::SeqCst);
        allowed
    };
    set_time(subject, 0);
    thread::scope(|scope| {
        for thread in 1..load.threads.max(2) {
            let (take, done) = (&take, &done);
            scope.spawn(move || {
                let key = format!("thread-{thread}");
                while !done.load(Ordering::SeqCst) {
                    take(&key, thread);
                }
            });
        }
        // Each move brings fewer tokens than fit, and this thread drains the bucket after it, so
        // nothing is lost at the brim.
        for round in 0..=load.rounds {
            set_time(subject, round * MILLI);
            while take("clock", 0) {}
            let (seen, bound) = (granted.load(Ordering::SeqCst), refilled_by(round * MILLI));
            assert!(seen <= bound, "{seen} granted where {bound} had come, in round {round}");
        }
        done.store(true, Ordering::SeqCst);
    });
    let exact = refilled_by(load.rounds * MILLI);
    assert_eq!(granted.load(Ordering::SeqCst), exact, "granted in the end");
}

/// Half of the threads ask for lists of which one charge is always denied, the others spend from
/// the bucket that both name: what is left is what the others left.
///
/// # Panics
/// When a denied list has spent anything, or was allowed.
pub fn denied_lists_change_nothing(subject: &dyn Subject, load: Load) {
    let open = generous_limit("denied-open");
    let closed = allowance("denied-closed", 1);
    set_time(subject, 0);
    assert!(try_take(subject, &[Charge::new(&closed, "a", 1)]), "the first and only one");
    thread::scope(|scope| {
        for thread in 0..load.threads.max(2) {
            let (open, closed) = (&open, &closed);
            scope.spawn(move || {
                for round in 0..load.rounds {
                    if thread % 2 == 0 {
                        assert!(try_take(subject, &[Charge::new(open, "a", 1)]), "round {round}");
                        continue;
                    }
                    let mut list = [Charge::new(open, "a", 5), Charge::new(closed, "a", 1)];
                    if round % 2 == 0 {
                        list.reverse();
                    }
                    assert!(!try_take(subject, &list), "one charge of the list cannot fit");
                }
            });
        }
    });
    let spenders = load.threads.max(2).div_ceil(2) as u64;
    let left = remaining(subject, &Charge::new(&open, "a", 0));
    assert_eq!(left, GENEROUS - spenders * load.rounds, "left in the open bucket");
}

/// What an allowance that must not run out holds.
const GENEROUS: u64 = 1 << 40;

fn shared_limit() -> Limit {
    let policy = Policy::per(PER_MINUTE, Duration::from_secs(60)).capacity(CAPACITY).build();
    named("shared", policy.expect("a valid policy"))
}

fn generous_limit(name: &str) -> Limit {
    allowance(name, GENEROUS)
}

fn allowance(name: &str, amount: u64) -> Limit {
    named(name, Policy::allowance(amount).expect("a valid policy"))
}

fn named(name: &str, policy: Policy) -> Limit {
    Limit::named(name, policy).expect("a valid name")
}

/// Tokens that have come into the shared bucket by so many nanoseconds after the start.
fn refilled_by(nanos: u64) -> u64 {
    let came = u128::from(PER_MINUTE) * u128::from(nanos) / 60_000_000_000;
    CAPACITY + u64::try_from(came).unwrap_or(u64::MAX)
}

/// Odd threads name the buckets the other way round.
fn list<'a>(shared: &'a Limit, own: &'a Limit, key: &'a str, thread: usize) -> [Charge<'a>; 2] {
    let mut list = [Charge::new(shared, "all", 1), Charge::new(own, key, 1)];
    if !thread.is_multiple_of(2) {
        list.reverse();
    }
    list
}

fn try_take(subject: &dyn Subject, charges: &[Charge<'_>]) -> bool {
    match ask_blocking(subject.store(), Operation::Take(charges)) {
        Ok(Answer::Decision(decision)) => decision.is_allowed(),
        other => panic!("{other:?} is not a decision"),
    }
}

fn remaining(subject: &dyn Subject, charge: &Charge<'_>) -> u64 {
    match ask_blocking(subject.store(), Operation::Peek(&[*charge])) {
        Ok(Answer::Decision(decision)) => decision.remaining(),
        other => panic!("{other:?} is not a decision"),
    }
}

fn set_time(subject: &dyn Subject, after_start: u64) {
    block_on(subject.set_time(ORIGIN_NS + after_start));
}
