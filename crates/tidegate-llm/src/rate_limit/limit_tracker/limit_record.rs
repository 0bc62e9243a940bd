//! State of a limit kept for views: where it was learned, the last report, and recent usage.
//! Decisions do not depend on it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::Time;
use tidegate_providers::LimitReading;

use super::super::limit_view::{HoldCause, ReportOrigin};

/// Number of slots that hold the usage of the last minute.
const SLOTS: usize = 12;
/// Length of a slot.
const SLOT: Duration = Duration::from_secs(5);

/// Recorded state of one limit.
#[derive(Debug, Default)]
pub(in crate::rate_limit) struct LimitRecord(Mutex<RecordState>);

/// A snapshot of the recorded state.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::rate_limit) struct RecordState {
    /// Where and when the current limit was first reported.
    pub(in crate::rate_limit) learned: Option<Learned>,
    /// Last reported remaining amount.
    pub(in crate::rate_limit) reported: Option<Reported>,
    /// Charges of calls in flight, subject to settlement.
    reserved: u64,
    minute: MinuteUse,
    shortage: Option<Shortage>,
    /// Until when the limit is held, and why.
    hold: Option<(Time, HoldCause)>,
}

/// A period in which calls are refused for a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rate_limit) struct Shortage {
    /// Latest end.
    pub(in crate::rate_limit) until: Time,
    /// Ends earlier once our bucket holds this much; `None` if the provider itself refuses calls.
    pub(in crate::rate_limit) needed: Option<u64>,
}

/// Where and when a limit was learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rate_limit) struct Learned {
    pub(in crate::rate_limit) amount: u64,
    pub(in crate::rate_limit) window: Duration,
    pub(in crate::rate_limit) from: ReportOrigin,
    pub(in crate::rate_limit) at: Time,
}

/// A reported remaining amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rate_limit) struct Reported {
    pub(in crate::rate_limit) remaining: u64,
    pub(in crate::rate_limit) reset: Option<Duration>,
    pub(in crate::rate_limit) from: ReportOrigin,
    pub(in crate::rate_limit) at: Time,
}

impl LimitRecord {
    /// Records a charge.
    pub(in crate::rate_limit) fn record_charge(&self, cost: u64, now: Time) {
        let mut record = self.lock();
        record.reserved = record.reserved.saturating_add(cost);
        record.minute.add(cost, now);
    }

    /// Records the end of a call whose charge changed from `from` to `to`.
    pub(in crate::rate_limit) fn record_end(&self, from: u64, to: u64, now: Time) {
        let mut record = self.lock();
        record.reserved = record.reserved.saturating_sub(from);
        record.minute.subtract(from.saturating_sub(to), now);
        record.minute.add(to.saturating_sub(from), now);
    }

    /// Records a refund.
    pub(in crate::rate_limit) fn record_refund(&self, amount: u64, now: Time) {
        self.lock().minute.subtract(amount, now);
    }

    /// Records a report.
    pub(in crate::rate_limit) fn record_report(
        &self,
        reading: &LimitReading,
        from: ReportOrigin,
        now: Time,
    ) {
        let mut record = self.lock();
        if let Some(amount) = reading.limit {
            let window = reading.window;
            let known = record.learned.as_ref();
            if known.is_none_or(|known| (known.amount, known.window) != (amount, window)) {
                record.learned = Some(Learned { amount, window, from, at: now });
            }
        }
        if let Some(remaining) = reading.remaining {
            let reported = Reported { remaining, reset: reading.reset, from, at: now };
            record.reported = Some(reported);
        }
    }

    /// Records a refusal. Of several shortages the one that ends last counts.
    pub(in crate::rate_limit) fn record_shortage(&self, shortage: Shortage) {
        let mut record = self.lock();
        if record.shortage.is_none_or(|known| known.until <= shortage.until) {
            record.shortage = Some(shortage);
        }
    }

    /// Records a hold. Of several holds the one that ends last counts.
    pub(in crate::rate_limit) fn record_hold(&self, until: Time, cause: HoldCause) {
        let mut record = self.lock();
        if record.hold.is_none_or(|(known, _)| known < until) {
            record.hold = Some((until, cause));
        }
    }

    /// Returns a snapshot.
    pub(in crate::rate_limit) fn read(&self) -> RecordState {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, RecordState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecordState {
    /// Charges of calls in flight.
    pub(in crate::rate_limit) const fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Net usage of the last minute.
    pub(in crate::rate_limit) fn used_in_last_minute(mut self, now: Time) -> u64 {
        self.minute.total(now)
    }

    /// Returns whether a refused call would still be refused, given the level of our bucket if
    /// known.
    pub(in crate::rate_limit) fn is_exhausted(&self, level: Option<i64>, now: Time) -> bool {
        self.shortage.is_some_and(|Shortage { until, needed }| {
            let needed = needed.map(|needed| i64::try_from(needed).unwrap_or(i64::MAX));
            let fits = level.zip(needed).is_some_and(|(level, needed)| level >= needed);
            now < until && !fits
        })
    }

    /// Returns why the limit is held, if this process holds it.
    pub(in crate::rate_limit) fn hold_cause(&self, now: Time) -> Option<HoldCause> {
        self.hold.filter(|(until, _)| now < *until).map(|(_, cause)| cause)
    }
}

/// Usage of the last minute, accurate to a slot.
#[derive(Clone, Copy, Debug, Default)]
struct MinuteUse {
    slots: [u64; SLOTS],
    /// Number of the newest slot since time zero.
    newest: u64,
}

impl MinuteUse {
    fn add(&mut self, amount: u64, now: Time) {
        let slot = self.advance(now);
        self.slots[slot] = self.slots[slot].saturating_add(amount);
    }

    /// Subtracts from the most recent usage.
    fn subtract(&mut self, mut amount: u64, now: Time) {
        let newest = self.advance(now);
        for back in 0..SLOTS {
            let slot = &mut self.slots[(newest + SLOTS - back) % SLOTS];
            let taken = amount.min(*slot);
            *slot -= taken;
            amount -= taken;
        }
    }

    fn total(&mut self, now: Time) -> u64 {
        self.advance(now);
        self.slots.iter().fold(0, |sum, slot| sum.saturating_add(*slot))
    }

    /// Drops usage older than a minute and returns the current slot.
    fn advance(&mut self, now: Time) -> usize {
        let length = u64::try_from(SLOT.as_nanos()).unwrap_or(u64::MAX);
        let present = now.as_nanos() / length;
        let all = u64::try_from(SLOTS).unwrap_or(u64::MAX);
        let index = |number: u64| usize::try_from(number % all).unwrap_or(0);
        for passed in 1..=present.saturating_sub(self.newest).min(all) {
            self.slots[index(self.newest + passed)] = 0;
        }
        self.newest = self.newest.max(present);
        index(self.newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time::from_nanos(7_000_000_000);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn usage_covers_the_last_minute_even_if_not_read() {
        let record = LimitRecord::default();
        let used = |seconds| record.read().used_in_last_minute(START.after(SECOND * seconds));
        record.record_charge(100, START);
        record.record_charge(50, START.after(SECOND * 30));
        assert_eq!((used(30), used(50), used(65), used(95)), (150, 150, 50, 0));
        record.record_charge(7, START.after(SECOND * 1_000));
        assert_eq!(used(1_000), 7, "after a long pause");
    }

    #[test]
    fn refunds_reduce_usage() {
        let record = LimitRecord::default();
        record.record_charge(1_000, START);
        record.record_charge(1_000, START.after(SECOND * 20));
        assert_eq!(record.read().reserved(), 2_000);
        let now = START.after(SECOND * 21);
        record.record_end(1_000, 40, now);
        record.record_end(1_000, 1_200, now);
        let read = record.read();
        assert_eq!((read.reserved(), read.used_in_last_minute(now)), (0, 1_240));
        record.record_refund(10_000, now);
        assert_eq!(record.read().used_in_last_minute(now), 0);
    }

    #[test]
    fn limit_keeps_its_learning_time_until_it_changes() {
        let record = LimitRecord::default();
        let reading = |limit, remaining| LimitReading {
            limit: Some(limit),
            remaining: Some(remaining),
            reset: None,
            window: SECOND * 60,
        };
        record.record_report(&reading(600, 599), ReportOrigin::Response, START);
        let later = START.after(SECOND);
        record.record_report(&reading(600, 598), ReportOrigin::Refusal, later);
        let read = record.read();
        assert_eq!(
            read.learned.map(|one| (one.at, one.from)),
            Some((START, ReportOrigin::Response))
        );
        assert_eq!(read.reported.map(|one| (one.remaining, one.at)), Some((598, later)));
        record.record_report(&reading(60, 0), ReportOrigin::Refusal, later);
        let learned = record.read().learned;
        assert_eq!(learned.map(|one| (one.amount, one.from)), Some((60, ReportOrigin::Refusal)));
    }

    #[test]
    fn shortage_ends_in_time_or_when_enough_is_refunded() {
        let record = LimitRecord::default();
        let until = START.after(SECOND * 40);
        record.record_shortage(Shortage { until, needed: Some(3_000) });
        record.record_shortage(Shortage { until: START.after(SECOND), needed: None });
        let is_exhausted = |level, now| record.read().is_exhausted(level, now);
        assert!(is_exhausted(Some(2_999), START) && is_exhausted(None, START));
        assert!(!is_exhausted(Some(3_000), START) && !is_exhausted(Some(0), until));
        record.record_shortage(Shortage { until, needed: None });
        assert!(
            is_exhausted(Some(3_000), START),
            "the provider refuses it whatever our bucket holds"
        );
    }

    #[test]
    fn longest_hold_wins() {
        let record = LimitRecord::default();
        record.record_hold(START.after(SECOND * 5), HoldCause::RateLimited);
        record.record_hold(START.after(SECOND), HoldCause::RequestsPerDay);
        assert_eq!(record.read().hold_cause(START), Some(HoldCause::RateLimited));
        assert_eq!(record.read().hold_cause(START.after(SECOND * 5)), None);
    }
}
