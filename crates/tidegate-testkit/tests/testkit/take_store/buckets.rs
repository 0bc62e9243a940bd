//! Token buckets in a map, and mistakes that stores have been seen to make.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tidegate_core::{ExactTime, Outcome, Retry, TakeFuture, TakeStore, Time, TokenBucket};
use tidegate_testkit::scenario::step::ORIGIN_NS;
use tokio::time::Instant;

/// What is wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Defect {
    None,
    /// The state is read in one step and written in another, which another task may come between.
    ReadThenWrite,
    /// The state is read under one lock and written under another, which another thread may come
    /// between.
    ReadThenLock,
    /// Tokens are a floating-point number.
    FloatTokens,
    /// The refill is rounded down, and the time of the rest is forgotten.
    FloorRefill,
    /// The refill is rounded down, but no time is forgotten until there is a token to add.
    FloorRefillOfWholeTokens,
    /// A denied take is written like an allowed one.
    SpendsOnDenial,
    /// The time comes from the caller, whose clock is another one.
    CallersClock,
    /// There is space for 100 keys; the first ones make room for others.
    EvictsKeys,
    /// Keys expire a minute after their last use.
    ExpiresEarly,
    /// Upper and lower case are equal.
    IgnoresCase,
}

/// The clock of a store that a test sets.
#[derive(Clone, Debug)]
pub(super) struct TestClock(Arc<AtomicU64>);

impl TestClock {
    pub(super) fn set(&self, nanos: u64) {
        self.0.store(nanos, Ordering::SeqCst);
    }
}

/// The state of one bucket, in the form that the defect needs.
#[derive(Clone, Copy)]
struct Row {
    tat: ExactTime,
    tokens: f64,
    at: u64,
}

/// Buckets with a defect.
pub(super) struct Buckets {
    defect: Defect,
    clock: Box<dyn Fn() -> u64 + Send + Sync>,
    rows: Mutex<BTreeMap<String, Row>>,
}

impl fmt::Debug for Buckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buckets").field("defect", &self.defect).finish_non_exhaustive()
    }
}

impl Buckets {
    pub(super) fn on_manual_clock(defect: Defect) -> (Self, TestClock) {
        let clock = TestClock(Arc::new(AtomicU64::new(ORIGIN_NS)));
        let time = clock.0.clone();
        (Self::new(defect, move || time.load(Ordering::SeqCst)), clock)
    }

    pub(super) fn on_real_clock(defect: Defect) -> Self {
        let start = Instant::now();
        Self::new(defect, move || {
            ORIGIN_NS + u64::try_from(start.elapsed().as_nanos()).expect("a short test")
        })
    }

    fn new(defect: Defect, clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        let clock: Box<dyn Fn() -> u64 + Send + Sync> = match defect {
            // The caller's clock stands still, which no test of this store relies on.
            Defect::CallersClock => Box::new(|| ORIGIN_NS),
            _ => Box::new(clock),
        };
        Self { defect, clock, rows: Mutex::default() }
    }

    fn read(&self, id: &str) -> Option<Row> {
        self.rows.lock().expect("no thread panicked").get(id).copied()
    }

    fn decide(&self, row: Option<Row>, cost: u64, policy: &TokenBucket) -> (Row, Outcome) {
        let now = (self.clock)();
        let full = Row { tat: ExactTime::ZERO, tokens: float(policy.capacity()), at: now };
        let expired = |row: &Row| {
            self.defect == Defect::ExpiresEarly && now.saturating_sub(row.at) > 60_000_000_000
        };
        let row = row.filter(|row| !expired(row)).unwrap_or(full);
        match self.defect {
            Defect::FloatTokens | Defect::FloorRefill | Defect::FloorRefillOfWholeTokens => {
                self.decide_in_tokens(row, cost, policy, now)
            }
            _ => {
                let time = Time::from_nanos(now);
                let (mut tat, outcome) = policy.take(row.tat, cost, time);
                if self.defect == Defect::SpendsOnDenial && outcome.retry.is_some() {
                    tat = policy.spend(tat, cost.min(policy.capacity()), time);
                }
                (Row { tat, at: now, ..row }, outcome)
            }
        }
    }

    /// The algorithms that count tokens.
    fn decide_in_tokens(
        &self,
        mut row: Row,
        cost: u64,
        policy: &TokenBucket,
        now: u64,
    ) -> (Row, Outcome) {
        let rate = float(policy.rate().tokens().into()) / float(policy.rate().period()) * 1e9;
        let capacity = float(policy.capacity());
        let refill = float(now.saturating_sub(row.at)) / 1e9 * rate;
        let refill = if self.defect == Defect::FloatTokens { refill } else { refill.floor() };
        row.tokens = capacity.min(row.tokens + refill);
        if self.defect != Defect::FloorRefillOfWholeTokens || refill > 0.0 {
            row.at = now;
        }
        let missing = float(cost) - row.tokens;
        let retry = if cost > policy.capacity() {
            Some(Retry::Never)
        } else if missing > 0.0 {
            let millis = (missing / rate * 1e3).ceil();
            Some(Retry::After(Duration::from_secs_f64(millis / 1e3)))
        } else {
            row.tokens -= float(cost);
            None
        };
        let reset = Duration::from_secs_f64((capacity - row.tokens) / rate);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let remaining = row.tokens as u64;
        (row, Outcome::new(policy.capacity(), remaining, Some(reset), retry))
    }
}

#[expect(clippy::cast_precision_loss, reason = "this is the mistake")]
const fn float(number: u64) -> f64 {
    number as f64
}

impl TakeStore for Buckets {
    fn take<'a>(&'a self, bucket: &'a str, cost: u64, policy: &'a TokenBucket) -> TakeFuture<'a> {
        Box::pin(async move {
            let id = match self.defect {
                Defect::IgnoresCase => bucket.to_lowercase(),
                _ => bucket.to_owned(),
            };
            if matches!(self.defect, Defect::ReadThenWrite | Defect::ReadThenLock) {
                let row = self.read(&id);
                match self.defect {
                    Defect::ReadThenWrite => tokio::task::yield_now().await,
                    _ => thread::yield_now(),
                }
                let (row, outcome) = self.decide(row, cost, policy);
                self.rows.lock().expect("no thread panicked").insert(id, row);
                return Ok(outcome);
            }
            let mut rows = self.rows.lock().expect("no thread panicked");
            let (row, outcome) = self.decide(rows.get(&id).copied(), cost, policy);
            rows.insert(id, row);
            if self.defect == Defect::EvictsKeys && rows.len() > 100 {
                rows.pop_first();
            }
            Ok(outcome)
        })
    }
}
