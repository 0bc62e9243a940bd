//! What a provider says is left, against what our bucket says. Pure arithmetic.
//!
//! The provider's bucket holds a minute's worth, ours a second's: ours is for spacing, theirs is
//! the truth. As long as theirs holds more than a call can cost, nothing is refused, so ours is
//! lowered only where theirs is nearly empty, as when others use the same key. Where theirs holds
//! more than an eighth although callers wait, there is something to spare, stored from before or
//! because our estimates are too high, and ours is topped up.

/// A provider's bucket is drawn on until this part of it is left, or some of the largest calls.
const SPARE: u64 = 8;

/// How a limit stands, here and there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// What our bucket holds; below zero it is in debt.
    pub(crate) level: i128,
    /// What it can hold.
    pub(crate) capacity: u64,
    /// What the provider allows in a window.
    pub(crate) limit: u64,
    /// What the provider had left when it answered.
    pub(crate) remaining: u64,
    /// What was charged here since the call left that was answered, and what the provider's bucket
    /// was given in that time.
    pub(crate) charged_since: u64,
    pub(crate) refilled_since: u64,
    /// The largest charge of late.
    pub(crate) largest: u64,
    /// Whether ours may be topped up: estimates can be wrong, counts of calls cannot.
    pub(crate) upward: Upward,
}

/// Whether a bucket may be topped up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upward {
    Yes,
    No,
}

/// By how much our bucket is to be corrected: above zero it is charged, below zero it is given.
/// Zero if it is not worth the trouble.
pub(crate) fn correction(standing: &Standing) -> i64 {
    // Nobody knows whether the answer was written before or after the calls that left since.
    let unseen = standing.charged_since.saturating_sub(standing.refilled_since);
    let left = i128::from(standing.remaining) - i128::from(unseen);
    let reserve = i128::from(standing.largest.min(standing.limit / 2));
    let most = left - reserve;
    let spare = i128::from((standing.limit / SPARE).max(standing.largest.saturating_mul(4)));
    let least = (left - spare).min(i128::from(standing.capacity));
    let delta = if standing.level > most {
        standing.level - most
    } else if standing.upward == Upward::Yes && standing.level < least {
        standing.level - least
    } else {
        0
    };
    let worth = i128::from((standing.capacity / 50).max(1));
    if delta.abs() < worth { 0 } else { i64::try_from(delta).unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 90,000 tokens a minute, 1,500 a second.
    fn tokens(level: i128, remaining: u64) -> Standing {
        Standing {
            level,
            capacity: 1_500,
            limit: 90_000,
            remaining,
            charged_since: 0,
            refilled_since: 0,
            largest: 1_000,
            upward: Upward::Yes,
        }
    }

    #[test]
    fn a_provider_that_has_enough_is_not_argued_with() {
        for remaining in [2_500, 6_000, 10_000] {
            assert_eq!(correction(&tokens(1_500, remaining)), 0, "{remaining}");
            assert_eq!(correction(&tokens(-500, remaining)), 0, "{remaining}");
        }
    }

    #[test]
    fn what_others_have_used_is_waited_for() {
        assert_eq!(correction(&tokens(1_500, 2_000)), 500, "down to 1,000: one call may go");
        assert_eq!(correction(&tokens(0, 0)), 1_000, "into debt, until there is enough for a call");
        assert_eq!(correction(&tokens(-1_000, 0)), 0, "once, not with every answer");
    }

    #[test]
    fn estimates_that_were_too_high_are_given_back() {
        assert_eq!(correction(&tokens(-3_000, 80_000)), -4_500);
        assert_eq!(correction(&tokens(0, 12_250)), -1_000);
        let counted = Standing { upward: Upward::No, ..tokens(-3_000, 80_000) };
        assert_eq!(correction(&counted), 0);
    }

    #[test]
    fn calls_in_flight_are_allowed_for() {
        let in_flight = Standing { charged_since: 5_000, ..tokens(1_500, 7_000) };
        assert_eq!(correction(&in_flight), 500);
        let refilled = Standing { refilled_since: 4_900, ..in_flight };
        assert_eq!(correction(&refilled), 0);
    }

    #[test]
    fn trifles_are_left_alone() {
        assert_eq!(correction(&tokens(1_500, 2_490)), 0);
    }
}
