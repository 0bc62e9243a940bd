//! What an account reports about its limits, which need not be accurate.
//!
//! Reporting does not affect enforcement: an account admits and rejects the same calls whatever it
//! reports.

use crate::calendar::SECOND;
use crate::limits::quota::{LimitSnapshot, LimitStatus};

/// What an account reports about its limits in response headers, if its dialect does.
///
/// ```
/// use tidegate_sim::{Account, Dialect, Limits, Reporting};
///
/// // Anthropic rounds what remains to thousands.
/// let account = Account::new(Dialect::Anthropic, "main", "sk-ant-1")
///     .model("claude-haiku", Limits::new().tokens_per_minute(50_000))
///     .reporting(Reporting::Rounded { step: 1_000 });
/// # let _ = account;
/// ```
///
/// Except for [`Never`](Self::Never), error messages, `retry-after` and the bodies of Gemini do not
/// change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reporting {
    /// Accurate limits, remaining amounts and resets. This is the default.
    #[default]
    Accurate,
    /// Remaining amounts are rounded to the nearest multiple of a step, but never above the limit.
    /// Limits and resets are accurate.
    Rounded {
        /// The step, in requests or tokens; 0 rounds nothing.
        step: u64,
    },
    /// Reports the limit per minute together with what remains of the current second: a sixtieth of
    /// the limit, rounded up, minus what was admitted in this second. The reset is always one
    /// second. Seconds are not enforced, and limits per day are accurate.
    /// [`phase`](crate::Limits::phase) also shifts the seconds.
    PerSecond,
    /// The remaining amount is constant. Limits and resets are accurate.
    Constant {
        /// The remaining amount of every limit.
        remaining: u64,
    },
    /// Reports nothing: no headers about limits, no `retry-after`, and no limits or waits in error
    /// bodies. Statuses, types and codes remain those of the dialect.
    Never,
}

/// The time for which headers of successful responses report limits. Rejections always report the
/// limits at the time of the rejection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReportTime {
    /// Right after the call was admitted and charged, like OpenAI. Excludes later calls and the
    /// settlement of this one.
    Admission,
    /// When the headers are sent. This is the default.
    #[default]
    Response,
}

impl Reporting {
    /// Returns the limits to report.
    pub(crate) fn report(self, snapshot: LimitSnapshot) -> LimitSnapshot {
        match self {
            Self::Accurate => snapshot,
            Self::Rounded { .. } | Self::Constant { .. } => {
                snapshot.map(|limit_status| self.limit_status(limit_status))
            }
            Self::PerSecond => of_a_second(snapshot),
            Self::Never => LimitSnapshot::default(),
        }
    }

    /// Returns one limit to report, when its use in the current second is unknown.
    pub(crate) fn limit_status(self, limit_status: LimitStatus) -> LimitStatus {
        let remaining = match self {
            Self::Accurate | Self::PerSecond | Self::Never => limit_status.remaining,
            Self::Rounded { step } => nearest(limit_status.remaining, step).min(limit_status.limit),
            Self::Constant { remaining } => remaining,
        };
        LimitStatus { remaining, ..limit_status }
    }
}

fn of_a_second(snapshot: LimitSnapshot) -> LimitSnapshot {
    let admitted = snapshot.this_second;
    let second = |limit_status: Option<LimitStatus>, used: u64| {
        let limit = limit_status?.limit;
        Some(LimitStatus {
            limit,
            remaining: limit.div_ceil(60).saturating_sub(used),
            reset: SECOND,
        })
    };
    let requests = second(snapshot.requests, admitted.requests);
    let tokens = second(snapshot.tokens, admitted.total());
    LimitSnapshot {
        requests,
        slice: snapshot.slice.and(requests),
        tokens,
        second_tokens: tokens,
        input: second(snapshot.input, admitted.input),
        output: second(snapshot.output, admitted.output),
        ..snapshot
    }
}

/// Rounds to the nearest multiple of `step`, half up.
fn nearest(number: u64, step: u64) -> u64 {
    let step = step.max(1);
    let (below, rest) = (number - number % step, number % step);
    if rest >= step.div_ceil(2) && rest > 0 { below.saturating_add(step) } else { below }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::charging::CallCharge;

    const GAUGE: LimitStatus = LimitStatus { limit: 1_700, remaining: 1_499, reset: 7 };

    fn snapshot(limit_status: LimitStatus) -> LimitSnapshot {
        let this_second = CallCharge { requests: 3, input: 20, output: 10 };
        LimitSnapshot {
            requests: Some(limit_status),
            day: Some(limit_status),
            tokens: Some(limit_status),
            this_second,
            ..LimitSnapshot::default()
        }
    }

    #[test]
    fn numbers_are_rounded_to_the_nearest_multiple() {
        for (number, step, rounded) in [
            (1_499, 1_000, 1_000),
            (1_500, 1_000, 2_000),
            (2, 5, 0),
            (3, 5, 5),
            (0, 1, 0),
            (7, 1, 7),
            (7, 0, 7),
            (u64::MAX, 1_000, u64::MAX),
        ] {
            assert_eq!(nearest(number, step), rounded, "{number} by {step}");
        }
    }

    #[test]
    fn rounded_number_does_not_exceed_the_limit() {
        let coarse = Reporting::Rounded { step: 1_000 };
        assert_eq!(coarse.limit_status(GAUGE), LimitStatus { remaining: 1_000, ..GAUGE });
        let fuller = LimitStatus { remaining: 1_500, ..GAUGE };
        assert_eq!(coarse.limit_status(fuller), LimitStatus { remaining: 1_700, ..GAUGE });
        assert_eq!(
            coarse.report(snapshot(fuller)).day,
            Some(LimitStatus { remaining: 1_700, ..GAUGE })
        );
    }

    #[test]
    fn per_second_report_leaves_the_day_unchanged() {
        let reported = Reporting::PerSecond.report(snapshot(GAUGE));
        let second = |remaining| Some(LimitStatus { limit: 1_700, remaining, reset: SECOND });
        // A sixtieth of 1,700 is 28.3.
        assert_eq!((reported.requests, reported.tokens), (second(26), second(0)));
        assert_eq!((reported.day, reported.input), (Some(GAUGE), None));
    }

    #[test]
    fn exact_constant_and_silent_reports() {
        let snapshot = snapshot(GAUGE);
        assert_eq!(Reporting::default().report(snapshot), snapshot);
        let constant = Reporting::Constant { remaining: 9_999 }.report(snapshot);
        assert_eq!(constant.tokens, Some(LimitStatus { remaining: 9_999, ..GAUGE }));
        assert_eq!(Reporting::Never.report(snapshot), LimitSnapshot::default());
    }
}
