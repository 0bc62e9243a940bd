//! Texts of errors of calls that were not sent: what is closed, until when, and what to do.

use std::fmt;
use std::time::Duration;

use tidegate::pacer::AcquireError;
use tidegate_providers::{Dimension, Failure, Provider};

use super::CallError;

/// Describes a call without a permit.
pub(super) struct NoPermitText<'e> {
    pub(super) provider: &'e Provider,
    pub(super) source: &'e AcquireError,
    pub(super) limited_by: Option<&'static str>,
    pub(super) after: Option<Duration>,
}

impl fmt::Display for NoPermitText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { provider, source, limited_by, after } = *self;
        let (in_time, advice) = match source {
            AcquireError::TooLong { .. } | AcquireError::TimedOut(_) | AcquireError::WouldWait => {
                (" in time", Some("allow a longer wait"))
            }
            AcquireError::QueueFull(_) => ("", Some("send fewer calls at once")),
            _ => ("", None),
        };
        write!(f, "no permit{in_time} for a call to {provider}, nothing was sent: {source}")?;
        if let Some(limit) = limited_by {
            write!(f, " (limited by {limit})")?;
        }
        match (after, advice) {
            (Some(after), Some(advice)) => {
                write!(f, "; retry in {:.3}s, or {advice}", after.as_secs_f64())
            }
            (None, Some(advice)) => write!(f, "; retry later, or {advice}"),
            _ => Ok(()),
        }
    }
}

/// Describes a call that an exhausted quota refuses. The failure has the class of an earlier call,
/// with the time that is left.
pub(super) struct QuotaText<'e>(pub(super) &'e Failure);

impl fmt::Display for QuotaText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(failure) = self;
        let provider = &failure.provider;
        let is_configured = is_configured_day(failure);
        if is_configured {
            write!(f, "not sent: the configured requests per day for {provider} are used up")?;
        } else {
            write!(
                f,
                "not sent: a quota of {provider} is exhausted ({failure} to an earlier call)"
            )?;
        }
        if let Some(after) = failure.class.after() {
            write!(f, "; calls are refused for another {:.0}s", after.as_secs_f64().ceil())?;
        }
        let limit = if is_configured { "limit" } else { "quota" };
        write!(f, "; wait, raise the {limit} or use another key")
    }
}

/// Returns whether the quota is a configured limit of requests per day.
pub(super) fn is_configured_day(failure: &Failure) -> bool {
    failure.kind.as_deref() == Some(Dimension::RequestsPerDay.name())
}

/// Describes a call that failed after some attempts.
pub(super) struct AttemptsText<'e>(pub(super) u32, pub(super) &'e CallError);

impl fmt::Display for AttemptsText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(attempts, last) = self;
        let plural = if *attempts == 1 { "" } else { "s" };
        let which = if last.is_refusal() { "and there was no other" } else { "the last one" };
        write!(f, "{attempts} attempt{plural} failed, {which}: {last}")
    }
}
