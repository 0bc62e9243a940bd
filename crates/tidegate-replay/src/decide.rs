//! The decision on one event, in the arithmetic of the core.
//!
//! A line that is earlier than the one before it is decided as by a store whose clock has stepped
//! back: the step grants nothing, and an arrival time too far ahead is lowered.

use std::time::Duration;

use tidegate_core::{ExactTime, Time, TokenBucket};

/// What a policy decides on one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// Admitted after a wait, which is zero unless callers wait.
    Admitted(Duration),
    /// Denied. The caller could try again after this long; `None` if the cost is above the
    /// capacity.
    Denied(Option<Duration>),
}

/// Decides an event on the bucket with the arrival time `tat`. Callers wait at most `max_wait`.
#[inline]
pub(crate) fn decide(
    bucket: &TokenBucket,
    tat: &mut ExactTime,
    cost: u64,
    now: Time,
    max_wait: Duration,
) -> Ruling {
    if cost == 0 {
        return Ruling::Admitted(Duration::ZERO);
    }
    let effective = bucket.effective_tat(*tat, Time::ZERO, now);
    if let Some(after) = bucket.try_spend(effective, cost, now) {
        *tat = after;
        return Ruling::Admitted(Duration::ZERO);
    }
    *tat = effective;
    let Some(start) = bucket.earliest(effective, cost, now) else { return Ruling::Denied(None) };
    let wait = start.since(now);
    if wait > max_wait.min(bucket.horizon()) {
        return Ruling::Denied(Some(wait));
    }
    *tat = bucket.spend(effective, cost, start);
    Ruling::Admitted(wait)
}

/// Returns whether a bucket admits an event at once. For many candidates: nothing is measured.
#[inline]
pub(crate) fn admits(bucket: &TokenBucket, tat: &mut ExactTime, cost: u64, now: Time) -> bool {
    if cost == 0 {
        return true;
    }
    let effective = bucket.effective_tat(*tat, Time::ZERO, now);
    let spent = bucket.try_spend(effective, cost, now);
    *tat = spent.unwrap_or(effective);
    spent.is_some()
}
