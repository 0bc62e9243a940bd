//! The baseline without keys: one arrival time, updated by compare-and-swap.
//!
//! For comparison only: it has a fixed cost and does not report the remaining tokens.

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_memory::clock::Clock;

use crate::core::contenders::gate::UnkeyedLimiter;
use crate::core::contenders::policy::BenchPolicy;

/// A policy in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(in crate::core) struct Timing {
    per_token: u64,
    to_full: u64,
}

impl Timing {
    pub(in crate::core) fn of(policy: BenchPolicy) -> Self {
        let per_token = u64::try_from(policy.period.as_nanos()).unwrap_or(u64::MAX);
        Self { per_token, to_full: per_token.saturating_mul(policy.burst.into()) }
    }

    /// Advances an arrival time by one token, unless it is too far ahead of now.
    #[inline]
    pub(in crate::core) fn spend(&self, arrival: &AtomicU64, now: u64) -> bool {
        let mut before = arrival.load(Ordering::Relaxed);
        loop {
            let after = before.max(now) + self.per_token;
            if after - now > self.to_full {
                return false;
            }
            match arrival.compare_exchange_weak(before, after, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(seen) => before = seen,
            }
        }
    }
}

/// One bucket.
#[derive(Debug)]
pub(in crate::core) struct Cell<C> {
    arrival: Line,
    timing: Timing,
    clock: C,
}

/// Keeps the written value on another cache line than the read-only values.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line(AtomicU64);

impl<C: Clock> Cell<C> {
    pub(in crate::core) fn new(policy: BenchPolicy, clock: C) -> Self {
        Self { arrival: Line::default(), timing: Timing::of(policy), clock }
    }
}

impl<C: Clock> UnkeyedLimiter for Cell<C> {
    #[inline]
    fn allow(&self) -> bool {
        self.timing.spend(&self.arrival.0, self.clock.now().as_nanos())
    }
}
