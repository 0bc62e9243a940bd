//! How far a provider's reports about one limit are trusted.
//!
//! Some providers report the remaining amount of another window, a constant, or a rounded number. A
//! report that is too high is exposed by a refusal. One that is too low never is, and would slow
//! calls down for nothing, so it counts only once confirmed: by a refusal when nothing was reported
//! to remain, or because the remaining amount and the reset time are consistent.

use std::time::Duration;

use tidegate_core::Time;
use tidegate_providers::LimitReading;

/// How long a refusal confirms or disproves reports.
const PROOF_LIFETIME: Duration = Duration::from_secs(300);

/// What is known about the reports of one limit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReportTrust {
    /// First reported amount.
    first: Option<u64>,
    /// Whether later reports differed.
    varied: bool,
    /// Greatest common divisor of all reported amounts: some providers round.
    divisor: u64,
    /// When a refusal last confirmed a report.
    confirmed_at: Option<Time>,
    /// When a call was last refused although enough was reported to remain.
    disproved_at: Option<Time>,
}

/// What a refusal says about reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// It confirms them.
    For,
    /// It contradicts them.
    Against,
}

/// What a report may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trust {
    pub(super) may_lower: bool,
    pub(super) may_raise: bool,
    /// Possible rounding error of a report.
    pub(super) rounding: u64,
}

impl ReportTrust {
    /// Assesses a reported amount.
    pub(super) fn assess(&mut self, reading: &LimitReading, now: Time) -> Trust {
        if let Some(remaining) = reading.remaining {
            self.varied |= *self.first.get_or_insert(remaining) != remaining;
            self.divisor = greatest_common_divisor(self.divisor, remaining);
        }
        let recent = |when: Option<Time>| when.is_some_and(|when| now.since(when) < PROOF_LIFETIME);
        let is_disproved = recent(self.disproved_at);
        let may_lower = recent(self.confirmed_at) || self.varied && is_consistent(reading);
        let rounding = self.rounding();
        Trust { may_lower: may_lower && !is_disproved, may_raise: !is_disproved, rounding }
    }

    /// Records a refusal of a call that needed `needed` while `remaining` was reported.
    pub(super) fn refused(&mut self, remaining: u64, needed: u64, now: Time) -> Proof {
        if remaining >= needed.saturating_add(self.rounding()) {
            self.disproved_at = Some(now);
            return Proof::Against;
        }
        self.confirmed_at = Some(now);
        Proof::For
    }

    /// Possible rounding error. A single value does not reveal rounding.
    const fn rounding(&self) -> u64 {
        if self.varied { self.divisor / 2 } else { 0 }
    }
}

/// Returns whether the remaining amount and the reset time belong to the same window.
fn is_consistent(reading: &LimitReading) -> bool {
    let (Some(limit), Some(remaining), Some(reset)) =
        (reading.limit, reading.remaining, reading.reset)
    else {
        return false;
    };
    let missing = u128::from(limit.saturating_sub(remaining));
    let refill = reading.window.as_nanos().saturating_mul(missing) / u128::from(limit.max(1));
    // Some providers report whole seconds.
    let slack = Duration::from_secs(1).as_nanos();
    reset.as_nanos() + slack >= refill
        && reset.as_nanos() <= refill * 2 + slack
        && reset.as_nanos() * 2 >= refill
}

fn greatest_common_divisor(mut one: u64, mut other: u64) -> u64 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time::from_nanos(1);

    fn reading(remaining: u64, reset: u64) -> LimitReading {
        let reset = Some(Duration::from_secs(reset));
        let window = Duration::from_secs(60);
        LimitReading { limit: Some(600), remaining: Some(remaining), reset, window }
    }

    #[test]
    fn consistent_report_is_trusted() {
        let mut trust = ReportTrust::default();
        trust.assess(&reading(590, 1), START);
        assert!(trust.assess(&reading(0, 60), START).may_lower);
        assert!(trust.assess(&reading(300, 30), START).may_lower);
    }

    #[test]
    fn remainder_of_a_second_does_not_lower_the_bucket() {
        let mut trust = ReportTrust::default();
        for remaining in [9, 8, 3, 0] {
            assert!(!trust.assess(&reading(remaining, 1), START).may_lower, "{remaining}");
        }
    }

    #[test]
    fn constant_report_does_not_lower_the_bucket() {
        let mut trust = ReportTrust::default();
        for _ in 0..10 {
            assert!(!trust.assess(&reading(0, 60), START).may_lower);
        }
    }

    #[test]
    fn refusal_confirms_or_disproves_reports_for_a_while() {
        let mut trust = ReportTrust::default();
        trust.refused(0, 1, START);
        let assessed = trust.assess(&reading(0, 1), START);
        assert!(assessed.may_lower && assessed.may_raise);
        trust.refused(5, 1, START);
        let assessed = trust.assess(&reading(0, 1), START);
        assert!(!assessed.may_lower && !assessed.may_raise);
        assert!(trust.assess(&reading(0, 1), START.after(PROOF_LIFETIME)).may_raise);
    }

    #[test]
    fn rounded_reports_are_detected() {
        let mut trust = ReportTrust::default();
        for (remaining, rounding) in [(8_000, 0), (7_000, 500), (0, 500), (5_000, 500), (4_999, 0)]
        {
            let assessed = trust.assess(&reading(remaining, 1), START);
            assert_eq!(assessed.rounding, rounding, "{remaining}");
        }
    }
}
