//! Why a request is refused, before anybody has decided how to say it.
//!
//! A refusal is the same for every protocol: it becomes a [problem document](crate::problem) here
//! and may become a status with trailers elsewhere. It holds names of limits and numbers, never
//! keys.

use http::StatusCode;

use crate::field::{Report, RetryAfter};
use crate::key::Unkeyed;

/// Who or what is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalCause {
    /// The caller is over a limit of its own.
    Limit,
    /// The service has more to do than it can.
    BackPressure,
    /// The store of the limits cannot answer.
    Store,
    /// The request has no key.
    Unkeyed(Unkeyed),
}

impl RefusalCause {
    /// The status of the answer: 429 for the caller's own limit, 503 for what the caller cannot
    /// help.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Limit => StatusCode::TOO_MANY_REQUESTS,
            Self::BackPressure | Self::Store => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unkeyed(Unkeyed::BadRequest) => StatusCode::BAD_REQUEST,
            Self::Unkeyed(Unkeyed::Unauthorized) => StatusCode::UNAUTHORIZED,
            Self::Unkeyed(Unkeyed::NoPeer) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// A request that is not served, and why.
///
/// ```
/// use tidegate_http::{RefusalCause, Refusal};
/// let refusal = Refusal::new(RefusalCause::BackPressure).at("backpressure", "queue_depth");
/// assert_eq!(refusal.cause().status(), 503);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Refusal<'a> {
    cause: RefusalCause,
    reports: &'a [Report<'a>],
    retry: Option<RetryAfter>,
    place: Option<(&'a str, &'a str)>,
}

impl<'a> Refusal<'a> {
    /// A refusal of which nothing but the cause is known.
    pub const fn new(cause: RefusalCause) -> Self {
        Self { cause, reports: &[], retry: None, place: None }
    }

    /// With how the limits stand.
    pub const fn limits(mut self, reports: &'a [Report<'a>]) -> Self {
        self.reports = reports;
        self
    }

    /// With a hint when to try again; `None` if there is no use in it, or nobody knows.
    pub const fn retry(mut self, retry: Option<RetryAfter>) -> Self {
        self.retry = retry;
        self
    }

    /// With the level at which the request was stopped, and why.
    pub const fn at(mut self, level: &'a str, reason: &'a str) -> Self {
        self.place = Some((level, reason));
        self
    }

    /// Who or what is to blame.
    #[must_use]
    pub const fn cause(&self) -> RefusalCause {
        self.cause
    }

    /// How all limits stand that the request was to be charged to.
    #[must_use]
    pub const fn reports(&self) -> &'a [Report<'a>] {
        self.reports
    }

    /// The limits that refuse.
    pub fn violated(&self) -> impl Iterator<Item = &'a Report<'a>> {
        self.reports.iter().filter(|report| report.retry().is_some())
    }

    /// The limit to tell where there is room for one.
    #[must_use]
    pub fn binding(&self) -> Option<&'a Report<'a>> {
        Report::binding(self.reports)
    }

    /// When to try again.
    #[must_use]
    pub const fn retry_after(&self) -> Option<RetryAfter> {
        self.retry
    }

    /// The level at which the request was stopped, if there are levels.
    #[must_use]
    pub fn level(&self) -> Option<&'a str> {
        self.place.map(|(level, _)| level)
    }

    /// Why it was stopped there.
    #[must_use]
    pub fn reason(&self) -> Option<&'a str> {
        self.place.map(|(_, reason)| reason)
    }
}
