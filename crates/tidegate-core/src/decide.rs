//! The decision logic: pure functions shared by every store.
//!
//! A store collects the entries of a list under its own locks, merged so that no bucket occurs
//! twice, and calls these functions. They do not block, read no clock, and do not allocate for
//! short lists.

pub(crate) mod bucket_entry;

use core::time::Duration;

use crate::charge::{ChargeError, MAX_CHARGES};
use crate::decide::bucket_entry::BucketEntry;
use crate::decision::{Outcomes, Settlement};
use crate::key::Key;
use crate::time::{Now, Time};

pub use crate::decide::bucket_entry::EntrySettlement;

/// Whether a decision spends tokens, and how far ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionMode {
    /// Spend now or deny.
    Take,
    /// Report what a take would decide; spend nothing.
    Peek,
    /// Spend as of an instant at most this far ahead, or deny.
    Reserve(Duration),
}

impl DecisionMode {
    /// Returns how far ahead the charges may take effect.
    #[must_use]
    pub const fn horizon(self) -> Duration {
        match self {
            Self::Take | Self::Peek => Duration::ZERO,
            Self::Reserve(horizon) => horizon,
        }
    }
}

/// Checks the length and the keys of a list of charges, corrections or targets.
///
/// # Errors
/// If the list is empty or longer than [`MAX_CHARGES`], or a key is empty or too long.
pub fn check_list<'a>(
    keys: impl IntoIterator<Item = Key<'a>, IntoIter: ExactSizeIterator>,
) -> Result<(), ChargeError> {
    let keys = keys.into_iter();
    match keys.len() {
        0 => return Err(ChargeError::Empty),
        1..=MAX_CHARGES => {}
        len => return Err(ChargeError::TooMany(len)),
    }
    for (index, key) in keys.enumerate() {
        key.check().map_err(|error| ChargeError::Key(index, error))?;
    }
    Ok(())
}

/// Returns the earliest instant at which every entry can be charged, if it is at most `horizon`
/// away.
///
/// A horizon of zero decides a take. The policies of the entries may shorten the horizon.
#[must_use]
#[inline]
pub fn earliest_start(entries: &[BucketEntry<'_>], horizon: Duration, now: Now) -> Option<Time> {
    earliest_start_from(entries, now.time, horizon, now)
}

/// Returns the earliest instant not before `not_before` at which every entry can be charged, if it
/// is at most `horizon` away from now.
///
/// Parts of a list that are decided in different places agree on a common start with it.
#[must_use]
#[inline]
pub fn earliest_start_from(
    entries: &[BucketEntry<'_>],
    not_before: Time,
    horizon: Duration,
    now: Now,
) -> Option<Time> {
    let mut start = now.time.max(not_before);
    let mut horizon = horizon;
    for entry in entries {
        match entry.fit(now) {
            bucket_entry::Fit::At(time) => start = start.max(time),
            bucket_entry::Fit::Blocked(_) => return None,
        }
        if entry.cost() > 0 {
            horizon = horizon.min(entry.policy().horizon());
        }
    }
    let within_horizon = start.since(now.time) <= horizon;
    let allowed = within_horizon && entries.iter().all(|entry| entry.can_start_at(start, now));
    allowed.then_some(start)
}

/// Charges every entry as of `start`.
#[inline]
pub fn spend(entries: &mut [BucketEntry<'_>], start: Time, now: Now) {
    for entry in entries {
        entry.spend(start, now);
    }
}

/// Returns the outcomes of a list that was denied: the state of each entry and when its cost would
/// fit.
///
/// `order` yields the index of the entry for each charge.
#[must_use]
pub fn denied_outcomes(
    entries: &[BucketEntry<'_>],
    order: impl Iterator<Item = usize>,
    now: Now,
) -> Outcomes {
    order.map(|index| entries[index].outcome(now, entries[index].retry(now))).collect()
}

/// Returns the outcomes of a list that was spent.
///
/// `order` yields the index of the entry for each charge.
#[must_use]
#[inline]
pub fn granted_outcomes(
    entries: &[BucketEntry<'_>],
    order: impl Iterator<Item = usize>,
    now: Now,
) -> Outcomes {
    order.map(|index| entries[index].outcome(now, None)).collect()
}

/// Returns the settlement of a list: the state of its entries and what was applied to each.
///
/// `order` yields the index of the entry for each correction. The amount applied to an entry is
/// reported at its first correction.
#[must_use]
pub fn settlement(
    entries: &[BucketEntry<'_>],
    settled: &[EntrySettlement],
    order: impl Iterator<Item = usize> + Clone,
    now: Now,
) -> Settlement {
    let saturated = settled.iter().filter(|result| result.saturated).count();
    let dropped = settled.iter().filter(|result| result.dropped).count();
    let mut reported = [false; MAX_CHARGES];
    let applied = order.clone().map(|index| {
        if core::mem::replace(&mut reported[index], true) { 0 } else { settled[index].applied }
    });
    let applied = applied.collect();
    Settlement::new(granted_outcomes(entries, order, now), saturated, dropped, applied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Retry;
    use crate::policy::Policy;
    use crate::policy::exact::ExactTime;
    use crate::state::State;
    use crate::time::{WallTime, Windows};

    const SECOND: u64 = 1_000_000_000;

    fn at(secs: u64) -> Now {
        Now { time: Time::from_nanos(secs * SECOND), wall: WallTime::from_nanos(secs * SECOND) }
    }

    fn bucket() -> Policy {
        Policy::per_second(1).capacity(10).build().unwrap()
    }

    #[test]
    fn reservation_starts_when_the_slowest_bucket_is_ready() {
        let (fast, slow) = (bucket(), Policy::per_minute(1).capacity(1).build().unwrap());
        let busy = State::Bucket(ExactTime::from_nanos(60 * SECOND));
        let mut entries = [
            BucketEntry::new(&fast, State::Fresh, Time::ZERO, 4),
            BucketEntry::new(&slow, busy, Time::ZERO, 1),
        ];
        assert_eq!(earliest_start(&entries, Duration::from_secs(59), at(0)), None);
        let begins = earliest_start(&entries, Duration::from_secs(60), at(0)).unwrap();
        assert_eq!(begins, at(60).time);
        spend(&mut entries, begins, at(0));
        assert_eq!(entries[0].state(), State::Bucket(ExactTime::from_nanos(64 * SECOND)));
        assert_eq!(entries[1].state(), State::Bucket(ExactTime::from_nanos(120 * SECOND)));
    }

    #[test]
    fn reservation_never_starts_in_a_later_calendar_window() {
        let (daily, slow) =
            (Policy::quota(10).unwrap(), Policy::per_minute(1).capacity(1).build().unwrap());
        let windows = Windows::new([0, 100, 200, 300]).unwrap();
        let busy = State::Bucket(ExactTime::from_nanos(200 * SECOND));
        let mut quota = BucketEntry::new(&daily, State::Fresh, Time::ZERO, 1);
        assert!(quota.open_window(&windows, at(150)));
        let entries = [quota, BucketEntry::new(&slow, busy, Time::ZERO, 1)];
        assert_eq!(earliest_start(&entries, Duration::from_secs(600), at(150)), None);
        let mut quota = BucketEntry::new(&daily, State::Fresh, Time::ZERO, 1);
        assert!(quota.open_window(&windows, at(50)));
        let busy = State::Bucket(ExactTime::from_nanos(90 * SECOND));
        let entries = [quota, BucketEntry::new(&slow, busy, Time::ZERO, 1)];
        assert_eq!(earliest_start(&entries, Duration::from_secs(600), at(50)), Some(at(90).time));
    }

    #[test]
    fn quota_counts_per_window_and_tolerates_a_small_clock_step_back() {
        let daily = Policy::quota(10).unwrap();
        let windows = Windows::new([0, 100, 200, 300]).unwrap();
        let left = |state, secs| {
            let mut entry = BucketEntry::new(&daily, state, Time::ZERO, 1);
            assert!(entry.open_window(&windows, at(secs)));
            entry.outcome(at(secs), None).remaining
        };
        let used = State::Quota { ends: 200, used: 7 };
        assert_eq!([left(used, 150), left(used, 200), left(used, 99)], [3, 10, 3]);
        assert_eq!(left(State::Quota { ends: 9_000, used: 7 }, 150), 10);
    }

    #[test]
    fn counted_policies_report_retry() {
        let windows = Windows::new([0, 100, 200, 300]).unwrap();
        let daily = Policy::quota(10).unwrap();
        let retry = |cost, hold| {
            let state = State::Quota { ends: 200, used: 7 };
            let mut entry = BucketEntry::new(&daily, state, Time::from_nanos(hold * SECOND), cost);
            assert!(entry.open_window(&windows, at(150)));
            entry.retry(at(150))
        };
        assert_eq!(retry(3, 0), None);
        assert_eq!(retry(4, 0), Some(Retry::After(Duration::from_secs(50))));
        assert_eq!(retry(11, 0), Some(Retry::Never));
        assert_eq!(retry(3, 160), Some(Retry::After(Duration::from_secs(10))));
        let calls = Policy::concurrency(2, None).unwrap();
        let taken = BucketEntry::new(&calls, State::Concurrency { taken: 2 }, Time::ZERO, 1);
        assert_eq!(taken.retry(at(0)), Some(Retry::OnRelease));
        let total = Policy::allowance(5).unwrap();
        let spent = BucketEntry::new(&total, State::Allowance { used: 5 }, Time::ZERO, 1);
        assert_eq!(spent.retry(at(0)), Some(Retry::Never));
    }
}
