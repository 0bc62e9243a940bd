//! Many threads on one store, with a clock that the test controls.
//!
//! The bound is capacity + rate * time, and it is reached exactly when the threads ask for more
//! than is refilled. Lists name their buckets in different orders, so that a store that locks in
//! list order would deadlock. A store that decides one bucket at a time gets lists of one charge.
//! Nothing here sleeps: a run ends when its work is done.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tidegate_core::{Charge, Limit, Operation, Policy, StoreResponse};

use crate::scenario::step::ORIGIN_NS;
use crate::subject::{Contract, Subject, block_on, execute_blocking};

const MILLI: u64 = 1_000_000;
/// Tokens in the shared bucket when full.
const CAPACITY: u64 = 50;
/// Refill rate in tokens per minute; an odd number, so that nothing divides evenly.
const PER_MINUTE: u64 = 700_001;

/// Size of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Number of threads that take tokens.
    pub threads: usize,
    /// Number of times the clock advances.
    pub rounds: u64,
}

impl Default for Load {
    fn default() -> Self {
        Self { threads: 4, rounds: 200 }
    }
}

/// Runs every check of the contract that the subjects implement, each on a new subject.
///
/// # Panics
/// When the store grants too much or too little, or spends on a denial.
pub fn check_all<S: Subject>(factory: impl Fn() -> S, load: Load) {
    saturated(&factory(), load);
    racing_the_clock(&factory(), load);
    denied_takes_change_nothing(&factory(), load);
    let subject = factory();
    if subject.contract() == Contract::Store {
        denied_lists_change_nothing(&subject, load);
    }
}

/// Checks that with a stopped clock exactly the refilled tokens are granted.
///
/// In each round the clock stands still and all threads take until they are denied.
///
/// # Panics
/// When more or less is granted.
pub fn saturated(subject: &dyn Subject, load: Load) {
    let shared = shared_limit();
    let own = own_limit(subject, "saturated-own");
    let (granted, barrier) = (AtomicU64::new(0), Barrier::new(load.threads));
    set_time(subject, 0);
    thread::scope(|scope| {
        for thread in 0..load.threads {
            let (shared, own, granted, barrier) = (&shared, own.as_ref(), &granted, &barrier);
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

/// Checks the bound while one thread advances the clock and the others take.
///
/// At no time is more granted than was refilled. At the end the two are equal, because the bucket
/// was never full for long.
///
/// # Panics
/// When more or less is granted.
pub fn racing_the_clock(subject: &dyn Subject, load: Load) {
    let shared = shared_limit();
    let own = own_limit(subject, "racing-own");
    let (granted, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let take = |key: &str, thread: usize| {
        let allowed = try_take(subject, &list(&shared, own.as_ref(), key, thread));
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
        // Each advance refills fewer tokens than fit, and this thread then drains the bucket, so no
        // token is lost to a full bucket.
        for round in 0..=load.rounds {
            set_time(subject, round * MILLI);
            while take("clock", 0) {}
            let (seen, bound) = (granted.load(Ordering::SeqCst), refilled_by(round * MILLI));
            assert!(seen <= bound, "{seen} granted, at most {bound} allowed, in round {round}");
        }
        done.store(true, Ordering::SeqCst);
    });
    let exact = refilled_by(load.rounds * MILLI);
    assert_eq!(granted.load(Ordering::SeqCst), exact, "granted in the end");
}

/// Checks that a denied take spends nothing.
///
/// Half of the threads take more than is left; the other half spend single tokens.
///
/// # Panics
/// When a denied take has spent anything, or was allowed.
pub fn denied_takes_change_nothing(subject: &dyn Subject, load: Load) {
    let policy = Policy::per_hour(1).capacity(GENEROUS_BUCKET).build();
    let limit = named("denied-takes", policy.expect("a valid policy"));
    set_time(subject, 0);
    assert!(try_take(subject, &[Charge::new(&limit, "a", 1)]), "the first of many");
    thread::scope(|scope| {
        for thread in 0..load.threads.max(2) {
            let limit = &limit;
            scope.spawn(move || {
                for round in 0..load.rounds {
                    let (cost, fits) = [(1, true), (GENEROUS_BUCKET, false)][thread % 2];
                    let allowed = try_take(subject, &[Charge::new(limit, "a", cost)]);
                    assert_eq!(allowed, fits, "a cost of {cost} in round {round}");
                }
            });
        }
    });
    let spenders = load.threads.max(2).div_ceil(2) as u64;
    let left = remaining(subject, &Charge::new(&limit, "a", 0));
    assert_eq!(left, GENEROUS_BUCKET - 1 - spenders * load.rounds, "left in the bucket");
}

/// Checks that a denied list spends nothing.
///
/// Half of the threads submit lists in which one charge is always denied; the other half spend from
/// the bucket that both use. Only the latter may reduce what remains.
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

/// An allowance that does not run out in a test.
const GENEROUS: u64 = 1 << 40;
/// The capacity of a bucket that does not run out in a test, and is empty for less than a century.
const GENEROUS_BUCKET: u64 = 400_000;

fn shared_limit() -> Limit {
    let policy = Policy::per(PER_MINUTE, Duration::from_secs(60)).capacity(CAPACITY).build();
    named("shared", policy.expect("a valid policy"))
}

/// The second limit of each take; `None` if the store decides only one bucket at a time.
fn own_limit(subject: &dyn Subject, name: &str) -> Option<Limit> {
    (subject.contract() == Contract::Store).then(|| generous_limit(name))
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

/// Tokens available in the shared bucket up to `nanos` after the start, the initial ones included.
fn refilled_by(nanos: u64) -> u64 {
    let refilled = u128::from(PER_MINUTE) * u128::from(nanos) / 60_000_000_000;
    CAPACITY + u64::try_from(refilled).unwrap_or(u64::MAX)
}

/// The charges of a thread. Odd threads name the buckets in reverse order.
fn list<'a>(
    shared: &'a Limit,
    own: Option<&'a Limit>,
    key: &'a str,
    thread: usize,
) -> Vec<Charge<'a>> {
    let mut list = vec![Charge::new(shared, "all", 1)];
    list.extend(own.map(|own| Charge::new(own, key, 1)));
    if !thread.is_multiple_of(2) {
        list.reverse();
    }
    list
}

fn try_take(subject: &dyn Subject, charges: &[Charge<'_>]) -> bool {
    match execute_blocking(subject.store(), Operation::Take(charges)) {
        Ok(StoreResponse::Decision(decision)) => decision.is_allowed(),
        other => panic!("{other:?} is not a decision"),
    }
}

fn remaining(subject: &dyn Subject, charge: &Charge<'_>) -> u64 {
    match execute_blocking(subject.store(), Operation::Peek(&[*charge])) {
        Ok(StoreResponse::Decision(decision)) => decision.remaining(),
        other => panic!("{other:?} is not a decision"),
    }
}

fn set_time(subject: &dyn Subject, after_start: u64) {
    block_on(subject.set_time(ORIGIN_NS + after_start));
}
