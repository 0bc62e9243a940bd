//! A custom store that wraps another store and counts denials.
//!
//! A store must implement one method, `submit`. The conformance suite of `tidegate-testkit` defines
//! its behaviour; the test below runs it. A store that keeps the buckets itself uses the functions
//! in `tidegate_core::decide` for the arithmetic. If token buckets are enough, see `own-buckets`.
//!
//! `cargo run -p tidegate-examples --bin own-store`
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use tidegate::{Engine, LimitError, MemoryStore, Policy, Store};
use tidegate_core::{Limit, Operation, Probe, StoreResponse, StoreResponses, Submission, WallTime};

/// Delegates to `inner`, and counts denials.
#[derive(Debug)]
struct Counting<S> {
    inner: S,
    denied: AtomicU64,
}

impl<S> Counting<S> {
    fn new(inner: S) -> Self {
        Self { inner, denied: AtomicU64::new(0) }
    }

    fn count(&self, operations: &[Operation<'_>], answers: &StoreResponses) {
        for (operation, answer) in operations.iter().zip(answers) {
            // A peek denies no request.
            let decides = !matches!(operation, Operation::Peek(_));
            if let (true, Ok(StoreResponse::Decision(decision))) = (decides, answer) {
                self.denied.fetch_add(u64::from(!decision.is_allowed()), Ordering::Relaxed);
            }
        }
    }
}

impl<S: Store> Store for Counting<S> {
    /// Pushes one answer per operation, in order. A store that has its answers immediately returns
    /// `Submission::Ready`; this one has to wait for the inner store.
    fn submit<'a>(
        &'a self,
        operations: &'a [Operation<'a>],
        answers: &'a mut StoreResponses,
    ) -> Submission<'a> {
        Submission::Pending(Box::pin(async move {
            self.inner.submit(operations, answers).await;
            self.count(operations, answers);
        }))
    }

    fn check_limit(&self, limit: &Limit) -> Result<(), LimitError> {
        self.inner.check_limit(limit)
    }

    fn wall_time(&self) -> Option<WallTime> {
        self.inner.wall_time()
    }

    fn probe(&self) -> Probe<'_> {
        self.inner.probe()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let store = Arc::new(Counting::new(MemoryStore::builder().build()?));
    let engine = Engine::shared(store.clone())?;
    let limiter = engine.limiter("api", Policy::per_minute(2).burst(2).build()?)?;
    for _ in 0..5 {
        // A custom store is awaited; `now` works with the in-process store only.
        let decision = limiter.take("alice").await?;
        println!("alice: {}", if decision.is_allowed() { "allowed" } else { "denied" });
    }
    println!("{} denied in all", store.denied.load(Ordering::Relaxed));
    Ok(())
}

#[cfg(test)]
mod tests {
    use tidegate::clock::ManualClock;
    use tidegate_core::{Time, WallTime};
    use tidegate_testkit::subject::Clocked;

    use super::*;

    /// The suite sets the time, so the store must have a settable clock.
    fn subject() -> Clocked<Counting<MemoryStore>> {
        let clock = ManualClock::new();
        let inner = MemoryStore::builder().clock(clock.clone()).build().unwrap();
        Clocked::new(Counting::new(inner), move |nanos| {
            clock.set(Time::from_nanos(nanos));
            clock.set_wall(WallTime::from_nanos(nanos));
        })
    }

    mod conformance {
        use super::subject;

        tidegate_testkit::conformance_tests!(|| async { subject() });
    }
}
