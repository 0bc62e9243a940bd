//! Classification of provider errors by status and structured fields.
//!
//! Each provider has a table keyed by the status of the response and the names in the error (its
//! type, its code, the reasons in its details). The message is never used: `1500 tokens` is not a
//! 500, and providers reword their messages at any time. [`ClassificationRules`] of the user take
//! precedence.
//!
//! The tables classify a 403 as [`Class::CredentialRejected`]: another provider's credential may be
//! accepted. OpenRouter is the exception, where a 403 means that the input was flagged
//! ([`Class::BadRequest`]).

mod rules;
mod table;

use std::ptr;
use std::time::Duration;

use http::StatusCode;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use tidegate_core::WallTime;

pub use rules::ClassificationRules;
use table::Row;

use crate::dialect::Dialect;
use crate::failure::Class;
use crate::provider::Provider;
use crate::reported_limits::Dimension;

/// Properties of an error that classification uses.
#[derive(Debug)]
pub(crate) struct Evidence<'a> {
    pub(crate) dialect: Dialect,
    pub(crate) provider: &'a Provider,
    /// Status of the response, or the status that an error in a stream carries as its code.
    pub(crate) status: Option<StatusCode>,
    /// Type, code and reasons of the error.
    pub(crate) names: &'a [String],
    /// The exceeded quota, if it has a long window.
    pub(crate) quota: Option<Quota>,
    /// Delay until a retry, as the provider reports it.
    pub(crate) delay: Option<Duration>,
    /// The exceeded limit.
    pub(crate) dimension: Option<Dimension>,
    pub(crate) now: WallTime,
}

/// A quota with a long window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quota {
    /// Daily quota.
    Day,
    /// The limit is zero: nothing is allowed.
    Zero,
}

/// How a row of a table classifies an error.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RowClass {
    Fixed(Class),
    /// [`Class::RateLimited`] with the delay and dimension that the provider reports.
    RateLimited,
    /// [`Class::ExhaustedQuota`] until this reset.
    Exhausted(QuotaReset),
}

/// When an exhausted quota resets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum QuotaReset {
    /// Unknown: the account owner must pay or raise a limit.
    Unknown,
    /// After the delay that the provider reports.
    AsReported,
    /// At midnight Pacific time, when Google's daily quotas reset.
    PacificMidnight,
    /// On the first of the next month, UTC.
    UtcMonth,
}

/// Classifies an error. Also returns whether its status forbids a retry regardless of the class.
pub(crate) fn class(evidence: &Evidence<'_>, rules: &ClassificationRules) -> (Class, bool) {
    if let Some(class) = rules.find(evidence) {
        return (with_reported(class, evidence), false);
    }
    let is_final = evidence.status.is_some_and(|it| !rules.retries(evidence.dialect, it.as_u16()));
    let row = rows(evidence.dialect).find(|row| row.matches(evidence));
    let class = row.map_or_else(|| unknown(evidence.status), |row| row.class().resolve(evidence));
    // A status that the user lists is retried even if the tables do not retry it.
    let is_listed = evidence.status.is_some_and(|it| rules.lists(it.as_u16()));
    let is_status_only = row.is_none_or(Row::is_status_only);
    match class {
        Class::BadRequest if is_listed && is_status_only => (Class::Transient, false),
        class => (class, is_final),
    }
}

/// Returns the classification table of a provider as lines of text, in order of precedence.
///
/// ```
/// use tidegate_providers::Dialect;
/// use tidegate_providers::classify::table_rows;
/// let rows: Vec<String> = table_rows(Dialect::OpenAi).collect();
/// assert!(rows.contains(&"any insufficient_quota: long_quota".to_owned()));
/// assert!(rows.contains(&"429: rate_limited".to_owned()));
/// ```
pub fn table_rows(dialect: Dialect) -> impl Iterator<Item = String> {
    let is_first = move |row: &&Row| {
        rows(dialect)
            .find(|other| other.has_same_conditions(row))
            .is_some_and(|first| ptr::eq(first, *row))
    };
    rows(dialect).filter(is_first).map(ToString::to_string)
}

/// Returns all rows, including those that an earlier row with the same conditions overrides.
fn rows(dialect: Dialect) -> impl Iterator<Item = &'static Row> {
    table::of(dialect).into_iter().flatten()
}

/// Classifies an error by its status alone. Returns `None` if the status is not an error.
///
/// ```
/// use http::StatusCode;
/// use tidegate_providers::{Class, Dialect, classify};
/// let class = |status| classify::class_of_status(Dialect::Ollama, status);
/// assert_eq!(class(StatusCode::BAD_GATEWAY), Some(Class::Transient));
/// assert_eq!(class(StatusCode::OK), None);
/// ```
#[must_use]
pub fn class_of_status(dialect: Dialect, status: StatusCode) -> Option<Class> {
    if !(status.is_client_error() || status.is_server_error()) {
        return None;
    }
    let row =
        rows(dialect).find(|row| row.status() == Some(status.as_u16()) && row.is_status_only());
    Some(row.map_or_else(|| unknown(Some(status)), |row| row.class().without_details()))
}

/// Returns the statuses after which a call to a provider is retried, unless
/// [`ClassificationRules::retry_statuses`] replaces them. An error whose name rules out a retry,
/// such as an exhausted quota, is not retried regardless of its status.
///
/// For OpenAI, Anthropic and Ollama these are the statuses that they document as retryable. The
/// lists of other providers include the statuses of common reverse proxies and CDNs.
///
/// ```
/// use tidegate_providers::Dialect;
/// use tidegate_providers::classify::retryable_statuses;
/// assert_eq!(retryable_statuses(Dialect::Anthropic), [429, 500, 529]);
/// ```
#[must_use]
pub const fn retryable_statuses(dialect: Dialect) -> &'static [u16] {
    match dialect {
        Dialect::OpenAi => &[429, 500, 503],
        Dialect::Anthropic => &[429, 500, 529],
        Dialect::Ollama => &[429, 500, 502],
        Dialect::Groq => {
            &[408, 409, 425, 429, 498, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529]
        }
        // A 402 for the budget of calls in flight resolves when those calls end.
        Dialect::OpenRouter => {
            &[402, 408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529]
        }
        _ => &[408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529],
    }
}

/// Statuses that are never retried, whatever the rules: the request or its credential is at fault.
pub const NEVER_RETRIED: [u16; 5] = [400, 401, 403, 404, 413];

/// Classifies a status that no table has. Without a status, a stream broke off for unknown reasons.
fn unknown(status: Option<StatusCode>) -> Class {
    match status {
        Some(status) if status.is_server_error() => Class::Transient,
        Some(_) => Class::BadRequest,
        None => Class::Transient,
    }
}

impl RowClass {
    fn resolve(self, evidence: &Evidence<'_>) -> Class {
        match self {
            Self::Fixed(class) => class,
            Self::RateLimited => with_reported(self.without_details(), evidence),
            Self::Exhausted(reset) => Class::ExhaustedQuota { after: reset.delay(evidence) },
        }
    }

    /// Returns the class without the details of a particular error.
    fn without_details(self) -> Class {
        match self {
            Self::Fixed(class) => class,
            Self::RateLimited => Class::RateLimited { after: None, dimension: None },
            Self::Exhausted(_) => Class::ExhaustedQuota { after: None },
        }
    }
}

impl QuotaReset {
    fn delay(self, evidence: &Evidence<'_>) -> Option<Duration> {
        match self {
            Self::Unknown => None,
            Self::AsReported => evidence.delay,
            Self::PacificMidnight => {
                until("America/Los_Angeles", evidence.now, |today| today.saturating_add(1.day()))
            }
            Self::UtcMonth => {
                until("UTC", evidence.now, |today| today.first_of_month().saturating_add(1.month()))
            }
        }
    }
}

impl Evidence<'_> {
    fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }
}

/// Returns the time until the start of the day `next(today)` in a time zone.
fn until(zone: &str, now: WallTime, next: impl FnOnce(Date) -> Date) -> Option<Duration> {
    let zone = TimeZone::get(zone).ok()?;
    let instant = Timestamp::from_nanosecond(now.as_nanos().into()).ok()?;
    let end = next(instant.to_zoned(zone.clone()).date()).to_zoned(zone).ok()?;
    let end = u64::try_from(end.timestamp().as_second()).ok()?;
    Some(Duration::from_secs(end).saturating_sub(Duration::from_nanos(now.as_nanos())))
}

/// Adds the reported delay and dimension to a class that has none.
fn with_reported(class: Class, evidence: &Evidence<'_>) -> Class {
    match class {
        Class::RateLimited { after, dimension } => Class::RateLimited {
            after: after.or(evidence.delay),
            dimension: dimension.or(evidence.dimension),
        },
        other => other,
    }
}
