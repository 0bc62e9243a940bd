//! Stores that are slow, broken or both, within what the contract of a store allows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidegate::{
    Answers, Engine, MemoryStore, Operation, Policy, Probe, Store, StoreError, StoreHandle,
    Submission,
};

/// A bucket that gets nothing back while a test runs.
pub(super) fn hourly(capacity: u64) -> Policy {
    Policy::per(1, Duration::from_secs(3_600)).capacity(capacity).build().unwrap()
}

/// A store whose server is gone.
#[derive(Debug)]
pub(super) struct Gone;

impl Gone {
    pub(super) fn engine() -> Engine {
        Engine::on(StoreHandle::shared(Arc::new(Self)))
    }

    fn error() -> StoreError {
        StoreError::Unavailable("connection refused".into())
    }
}

impl Store for Gone {
    fn submit<'a>(&'a self, all: &'a [Operation<'a>], answers: &'a mut Answers) -> Submission<'a> {
        answers.extend(all.iter().map(|_| Err(Self::error())));
        Submission::Ready
    }

    fn probe(&self) -> Probe<'_> {
        Box::pin(async { Err(Self::error()) })
    }
}

/// Carries out what it is asked, and answers a moment later, as a store behind a network does.
#[derive(Debug, Default)]
pub(super) struct Remote {
    store: MemoryStore,
    /// How often it was asked.
    pub(super) asked: AtomicU64,
}

impl Remote {
    pub(super) fn engine() -> Engine {
        Engine::on(StoreHandle::shared(Arc::new(Self::default())))
    }
}

impl Store for Remote {
    fn submit<'a>(&'a self, all: &'a [Operation<'a>], answers: &'a mut Answers) -> Submission<'a> {
        Submission::Pending(Box::pin(async move {
            let mut given = Answers::new();
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.store.submit(all, &mut given).await;
            tokio::task::yield_now().await;
            answers.extend(given);
        }))
    }
}

/// Answers a moment later, and counts settlements. While it is broken it refuses those.
#[derive(Debug, Default)]
pub(super) struct Mixed {
    store: MemoryStore,
    pub(super) settles: AtomicU64,
    pub(super) broken: AtomicBool,
}

impl Store for Mixed {
    fn submit<'a>(&'a self, all: &'a [Operation<'a>], answers: &'a mut Answers) -> Submission<'a> {
        Submission::Pending(Box::pin(async move {
            tokio::task::yield_now().await;
            for operation in all {
                if let Operation::Settle { .. } = operation {
                    if self.broken.load(Ordering::Relaxed) {
                        answers.push(Err(StoreError::Rejected("not this one".into())));
                        continue;
                    }
                    self.settles.fetch_add(1, Ordering::Relaxed);
                }
                answers.push(self.store.execute(operation));
            }
        }))
    }
}
