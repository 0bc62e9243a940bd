//! The classifier: what to do about an error, by its status and its structured fields.
//!
//! Tables decide, one for each provider: the status of the answer, and the names that the
//! provider gives the error (its type, its code, the reasons in its details). The text of a message
//! is never looked at: `1500 tokens` is no 500, and a provider may word its errors anew on any day.
//! What only its words would tell apart is classed as what its fields say. [`Rules`] of the user
//! come first.
//!
//! Of a 403 the tables say [`Class::CredentialRejected`]: this credential may not do this, and another
//! provider's may. Only at OpenRouter it is [`Class::BadRequest`], since there the input was
//! flagged.

mod rules;
mod table;

use std::ptr;
use std::time::Duration;

use http::StatusCode;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use tidegate_core::WallTime;

pub use rules::Rules;
use table::Row;

use crate::dialect::Dialect;
use crate::failure::Class;
use crate::provider::Provider;
use crate::reported_limits::Dimension;

/// What is known of an error apart from its text.
#[derive(Debug)]
pub(crate) struct Evidence<'a> {
    pub(crate) dialect: Dialect,
    pub(crate) provider: &'a Provider,
    /// Of the answer, or the one that an error in a stream names.
    pub(crate) status: Option<StatusCode>,
    /// Type, code and reasons.
    pub(crate) names: &'a [String],
    /// The quota that was exceeded, if it is a long one.
    pub(crate) quota: Option<Quota>,
    /// When to come back, as the provider has it.
    pub(crate) delay: Option<Duration>,
    /// Which limit it was.
    pub(crate) dimension: Option<Dimension>,
    pub(crate) now: WallTime,
}

/// What a long quota is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quota {
    /// A day.
    Day,
    /// Nothing at all is allowed.
    Nothing,
}

/// What a row of a table comes to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verdict {
    Is(Class),
    /// A rate limit, with the delay and the dimension that were told.
    Limited,
    /// A long quota.
    Spent(Until),
}

/// When a long quota is there again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// Nobody knows: somebody has to pay, or to raise a limit.
    Unknown,
    /// As the provider says.
    AsReported,
    /// Midnight on the Pacific coast, where Google's days end.
    PacificDay,
    /// The first of the next month, in UTC.
    UtcMonth,
}

/// What to do about an error: its class, and whether its status is final whatever the class says.
pub(crate) fn class(evidence: &Evidence<'_>, rules: &Rules) -> (Class, bool) {
    if let Some(class) = rules.find(evidence) {
        return (fill(class, evidence), false);
    }
    let is_final = evidence.status.is_some_and(|it| !rules.retries(evidence.dialect, it.as_u16()));
    let row = rows(evidence.dialect).find(|row| row.fits(evidence));
    let class = row.map_or_else(|| unknown(evidence.status), |row| row.verdict().class(evidence));
    // Whoever lists a status that no table retries means that a retry may help.
    let is_listed = evidence.status.is_some_and(|it| rules.lists(it.as_u16()));
    let is_bare = row.is_none_or(Row::is_bare);
    match class {
        Class::BadRequest if is_listed && is_bare => (Class::Transient, false),
        class => (class, is_final),
    }
}

/// What is known of a provider's errors, as lines of text: the one that decides first before those
/// after it.
///
/// ```
/// use tidegate_providers::Dialect;
/// use tidegate_providers::classify::table;
/// let rows: Vec<String> = table(Dialect::OpenAi).collect();
/// assert!(rows.contains(&"any insufficient_quota: long_quota".to_owned()));
/// assert!(rows.contains(&"429: rate_limited".to_owned()));
/// ```
pub fn table(dialect: Dialect) -> impl Iterator<Item = String> {
    let is_first = move |row: &&Row| {
        rows(dialect)
            .find(|other| other.is_for_the_same(row))
            .is_some_and(|first| ptr::eq(first, *row))
    };
    rows(dialect).filter(is_first).map(ToString::to_string)
}

/// The same with those that others come before.
fn rows(dialect: Dialect) -> impl Iterator<Item = &'static Row> {
    table::of(dialect).into_iter().flatten()
}

/// The class of a status alone, when nothing else is known of the error; `None` if the status is
/// no error.
///
/// ```
/// use http::StatusCode;
/// use tidegate_providers::{Class, Dialect, classify};
/// let class = |status| classify::status(Dialect::Ollama, status);
/// assert_eq!(class(StatusCode::BAD_GATEWAY), Some(Class::Transient));
/// assert_eq!(class(StatusCode::OK), None);
/// ```
#[must_use]
pub fn status(dialect: Dialect, status: StatusCode) -> Option<Class> {
    if !(status.is_client_error() || status.is_server_error()) {
        return None;
    }
    let row = rows(dialect).find(|row| row.status() == Some(status.as_u16()) && row.is_bare());
    Some(row.map_or_else(|| unknown(Some(status)), |row| row.verdict().bare()))
}

/// The statuses after which a call to a provider is tried again, unless [`Rules::retry_statuses`]
/// says otherwise: exactly these. An error whose name says that no retry helps, such as an exhausted
/// quota, is not retried whatever its status.
///
/// For OpenAI, Anthropic and Ollama these are the statuses that they document as worth a retry.
/// Others stand behind proxies of many kinds, so what those answer for them is in their list.
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
        // Of its 402s, those for calls under way are over when the calls are.
        Dialect::OpenRouter => {
            &[402, 408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529]
        }
        _ => &[408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529],
    }
}

/// Statuses that say what is wrong with a request or its credential: nobody can have them retried.
pub const NEVER_RETRIED: [u16; 5] = [400, 401, 403, 404, 413];

/// A status that no table has. Without one, an answer has broken off for reasons unknown.
fn unknown(status: Option<StatusCode>) -> Class {
    match status {
        Some(status) if status.is_server_error() => Class::Transient,
        Some(_) => Class::BadRequest,
        None => Class::Transient,
    }
}

impl Verdict {
    fn class(self, evidence: &Evidence<'_>) -> Class {
        match self {
            Self::Is(class) => class,
            Self::Limited => fill(self.bare(), evidence),
            Self::Spent(until) => Class::ExhaustedQuota { after: until.span(evidence) },
        }
    }

    /// The class without what an error tells.
    fn bare(self) -> Class {
        match self {
            Self::Is(class) => class,
            Self::Limited => Class::RateLimited { after: None, dimension: None },
            Self::Spent(_) => Class::ExhaustedQuota { after: None },
        }
    }
}

impl Until {
    fn span(self, evidence: &Evidence<'_>) -> Option<Duration> {
        match self {
            Self::Unknown => None,
            Self::AsReported => evidence.delay,
            Self::PacificDay => {
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

/// The time until the start of another day, counted from the present one of a time zone.
fn until(zone: &str, now: WallTime, next: impl FnOnce(Date) -> Date) -> Option<Duration> {
    let zone = TimeZone::get(zone).ok()?;
    let instant = Timestamp::from_nanosecond(now.as_nanos().into()).ok()?;
    let end = next(instant.to_zoned(zone.clone()).date()).to_zoned(zone).ok()?;
    let end = u64::try_from(end.timestamp().as_second()).ok()?;
    Some(Duration::from_secs(end).saturating_sub(Duration::from_nanos(now.as_nanos())))
}

/// A class with what the error tells, where it says nothing itself.
fn fill(class: Class, evidence: &Evidence<'_>) -> Class {
    match class {
        Class::RateLimited { after, dimension } => Class::RateLimited {
            after: after.or(evidence.delay),
            dimension: dimension.or(evidence.dimension),
        },
        other => other,
    }
}
