//! Token buckets in a database of one's own: the smallest store that a limiter can use.
//!
//! A `TakeStore` implements one method. The core has the arithmetic; the store adds a clock, and
//! one atomic step that reads and writes an arrival time. All programs that use the same file share
//! the limits.
//!
//! `cargo run -p tidegate-examples --bin own-buckets`
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::future::ready;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};
use tidegate::clock::{Clock, SystemClock};
use tidegate::{Engine, Outcome, Policy, PolicyChange, StoreError};
use tidegate_core::{ExactTime, TakeFuture, TakeOnly, TakeStore, Time, TokenBucket};

/// One row per bucket: when it will be full again.
const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS bucket \
    (id TEXT PRIMARY KEY, ns INTEGER NOT NULL, part INTEGER NOT NULL) STRICT, WITHOUT ROWID";

/// Buckets in SQLite.
#[derive(Debug)]
struct SqliteBuckets {
    connection: Mutex<Connection>,
    clock: Arc<dyn Clock>,
}

impl SqliteBuckets {
    fn open(path: &Path, clock: Arc<dyn Clock>) -> rusqlite::Result<Self> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(Duration::from_secs(1))?;
        connection.execute(SCHEMA, [])?;
        Ok(Self { connection: Mutex::new(connection), clock })
    }

    fn decide(&self, bucket: &str, cost: u64, policy: &TokenBucket) -> rusqlite::Result<Outcome> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        // Locks the database from the start, so that no other process writes in between.
        let rows = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Wall time, because all programs on this file must agree, also after a restart.
        let now = Time::from_nanos(self.clock.wall().as_nanos());
        let select = "SELECT ns, part FROM bucket WHERE id = ?";
        let stored = rows.query_row(select, [bucket], |row| {
            let ns = row.get::<_, i64>(0)?.cast_unsigned();
            Ok(ExactTime { ns, part: row.get(1)? })
        });
        // An unknown bucket is full.
        let before = stored.optional()?.unwrap_or(ExactTime::ZERO);
        let (after, outcome) = policy.take(before, cost, now);
        if after != before {
            rows.execute(
                "INSERT OR REPLACE INTO bucket (id, ns, part) VALUES (?, ?, ?)",
                params![bucket, after.ns.cast_signed(), after.part],
            )?;
        }
        rows.commit()?;
        Ok(outcome)
    }

    /// Deletes buckets that are full again, which equal unknown ones. Run it once in a while.
    fn delete_full(&self) -> rusqlite::Result<usize> {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.wall().as_nanos().cast_signed();
        connection.execute("DELETE FROM bucket WHERE ns < ?", [now])
    }
}

impl TakeStore for SqliteBuckets {
    fn take<'a>(&'a self, bucket: &'a str, cost: u64, policy: &'a TokenBucket) -> TakeFuture<'a> {
        // A local file answers at once. A database behind a socket would be awaited here.
        let outcome = self.decide(bucket, cost, policy);
        Box::pin(ready(outcome.map_err(|error| StoreError::Unavailable(error.into()))))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let store = SqliteBuckets::open(Path::new(":memory:"), Arc::new(SystemClock::new()))?;
    let store = Arc::new(store);
    let engine = Engine::shared(TakeOnly(store.clone()))?;
    let limiter = engine.limiter("api", Policy::per_minute(2).burst(2).build()?)?;
    for _ in 0..3 {
        let decision = limiter.take("alice").await?;
        println!("alice: {}", if decision.is_allowed() { "allowed" } else { "denied" });
    }
    println!("{} rows deleted", store.delete_full()?);

    // What such a store cannot do is refused: a limit when it is created, other things when called.
    let Err(error) = engine.limiter("total", Policy::allowance(5)?) else { unreachable!() };
    println!("{error}");
    let Err(error) = limiter.hold("alice", Duration::from_secs(30)).await else { unreachable!() };
    println!("{error}");

    // A changed policy starts with full buckets.
    limiter.reconfigure(Policy::per_minute(3).burst(3).build()?, PolicyChange::Reset)?;
    println!("alice: {} left", limiter.take("alice").await?.remaining());
    Ok(())
}

#[cfg(test)]
mod tests {
    use tempfile::tempdir;
    use tidegate::clock::ManualClock;
    use tidegate_core::WallTime;
    use tidegate_testkit::subject::Clocked;
    use tidegate_testkit::{concurrency, property, real_clock};

    use super::*;

    fn open(path: &Path, clock: impl Clock + 'static) -> SqliteBuckets {
        SqliteBuckets::open(path, Arc::new(clock)).unwrap()
    }

    /// A new store, and how to set its clock.
    fn subject() -> Clocked<TakeOnly<SqliteBuckets>> {
        let clock = ManualClock::new();
        Clocked::take_only(open(Path::new(":memory:"), clock.clone()), move |nanos| {
            clock.set_wall(WallTime::from_nanos(nanos));
        })
    }

    mod rules {
        use super::subject;

        tidegate_testkit::take_tests!(|| async { subject() });
    }

    #[test]
    fn decides_as_the_oracle_does() {
        let effort = property::Effort { cases: 200, ..Default::default() };
        let steps = property::check_against_oracle(subject, effort);
        assert!(steps > 4_000, "{steps} steps");
    }

    #[test]
    fn holds_its_bounds_under_threads() {
        concurrency::check_all(subject, concurrency::Load { threads: 4, rounds: 50 });
    }

    #[test]
    fn passes_the_checks_on_a_real_clock() {
        real_clock::check_all(&TakeOnly(open(Path::new(":memory:"), SystemClock::new())), 0);
    }

    /// Two programs on one file have two connections.
    #[test]
    fn programs_on_one_file_share_the_buckets() {
        let folder = tempdir().unwrap();
        let path = folder.path().join("buckets.db");
        let clock = ManualClock::new();
        let stores = [open(&path, clock.clone()), open(&path, clock)];
        let Ok(Policy::Bucket(policy)) = Policy::per_second(10).build() else { unreachable!() };
        let allowed: usize = std::thread::scope(|scope| {
            let takers = stores.each_ref().map(|store| {
                let take = || store.decide("a", 1, &policy).unwrap().retry.is_none();
                scope.spawn(move || (0..8).filter(|_| take()).count())
            });
            takers.map(|taker| taker.join().unwrap()).iter().sum()
        });
        assert_eq!(allowed, 10, "of 16");
    }

    #[test]
    fn only_full_buckets_are_deleted() {
        let clock = ManualClock::new();
        let store = open(Path::new(":memory:"), clock.clone());
        let Ok(Policy::Bucket(policy)) = Policy::per_second(1).burst(2).build() else {
            unreachable!()
        };
        for (bucket, cost) in [("one", 1), ("two", 2)] {
            assert!(store.decide(bucket, cost, &policy).unwrap().retry.is_none());
        }
        clock.set_wall(WallTime::from_nanos(clock.wall().as_nanos() + 1_500_000_000));
        assert_eq!(store.delete_full().unwrap(), 1);
        assert_eq!(store.decide("two", 0, &policy).unwrap().remaining, 1);
    }
}
