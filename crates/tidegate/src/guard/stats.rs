//! Counters of a guard.

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::FailureRule;

/// Counters of a guard since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GuardStats {
    /// Decisions by rule [`Open`](FailureRule::Open).
    pub open: u64,
    /// Decisions by rule [`Local`](FailureRule::Local).
    pub local: u64,
    /// Decisions by rule [`Closed`](FailureRule::Closed).
    pub closed: u64,
    /// Calls that the store did not answer in time. They may have been charged.
    pub timed_out: u64,
    /// Calls in which the store returned a failure before the timeout.
    pub failed: u64,
    /// Operations that a working store could not execute
    /// ([`StoreError::Rejected`](tidegate_core::StoreError::Rejected)).
    pub rejected: u64,
    /// Number of times the store went down.
    pub outages: u64,
}

impl GuardStats {
    /// Degraded decisions, by any rule.
    #[must_use]
    pub const fn degraded(&self) -> u64 {
        self.open + self.local + self.closed
    }
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    open: AtomicU64,
    local: AtomicU64,
    closed: AtomicU64,
    timed_out: AtomicU64,
    failed: AtomicU64,
    rejected: AtomicU64,
    outages: AtomicU64,
}

impl Counters {
    pub(super) fn degraded(&self, rule: FailureRule) {
        let counter = match rule {
            FailureRule::Open => &self.open,
            FailureRule::Local => &self.local,
            _ => &self.closed,
        };
        count(counter);
    }

    pub(super) fn timed_out(&self) {
        count(&self.timed_out);
    }

    pub(super) fn failed(&self) {
        count(&self.failed);
    }

    pub(super) fn rejected(&self) {
        count(&self.rejected);
    }

    pub(super) fn went_down(&self) {
        count(&self.outages);
    }

    pub(super) fn read(&self) -> GuardStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        GuardStats {
            open: read(&self.open),
            local: read(&self.local),
            closed: read(&self.closed),
            timed_out: read(&self.timed_out),
            failed: read(&self.failed),
            rejected: read(&self.rejected),
            outages: read(&self.outages),
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
