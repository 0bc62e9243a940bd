//! Why a request is refused, independent of the protocol.
//!
//! HTTP renders a refusal as a [problem document](crate::problem), gRPC as a status. A refusal
//! contains names of limits and numbers, never keys.

use http::StatusCode;

use crate::field::{Report, RetryAfter};
use crate::key::MissingKeyError;

/// Cause of a refusal; it determines the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalCause {
    /// The caller is over a limit of its own.
    Limit,
    /// The service is overloaded.
    BackPressure,
    /// The store of the limits is unavailable.
    Store,
    /// The request has no key to charge.
    MissingKey(MissingKeyError),
}

impl RefusalCause {
    /// Returns the response status: 429 for the caller's own limit, 503 for overload and store
    /// failures, 400, 401 or 500 for a missing key.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Limit => StatusCode::TOO_MANY_REQUESTS,
            Self::BackPressure | Self::Store => StatusCode::SERVICE_UNAVAILABLE,
            Self::MissingKey(MissingKeyError::BadRequest) => StatusCode::BAD_REQUEST,
            Self::MissingKey(MissingKeyError::Unauthorized) => StatusCode::UNAUTHORIZED,
            Self::MissingKey(MissingKeyError::NoPeer) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// A refused request: the cause, the state of its limits, and when to retry.
///
/// ```
/// use tidegate_http::{RefusalCause, Refusal};
/// let refusal = Refusal::new(RefusalCause::BackPressure).with_level("backpressure", "queue_depth");
/// assert_eq!(refusal.cause().status(), 503);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Refusal<'a> {
    cause: RefusalCause,
    reports: &'a [Report<'a>],
    retry: Option<RetryAfter>,
    rejection: Option<(&'a str, &'a str)>,
}

impl<'a> Refusal<'a> {
    /// Creates a refusal with a cause and no further details.
    pub const fn new(cause: RefusalCause) -> Self {
        Self { cause, reports: &[], retry: None, rejection: None }
    }

    /// Adds the state of the limits.
    pub const fn limits(mut self, reports: &'a [Report<'a>]) -> Self {
        self.reports = reports;
        self
    }

    /// Sets the retry hint; `None` if a retry cannot succeed or the time is unknown.
    pub const fn retry(mut self, retry: Option<RetryAfter>) -> Self {
        self.retry = retry;
        self
    }

    /// Sets the level that rejected the request, and the reason.
    pub const fn with_level(mut self, level: &'a str, reason: &'a str) -> Self {
        self.rejection = Some((level, reason));
        self
    }

    /// Returns the cause.
    #[must_use]
    pub const fn cause(&self) -> RefusalCause {
        self.cause
    }

    /// Returns the state of every limit that the request would have been charged to.
    #[must_use]
    pub const fn reports(&self) -> &'a [Report<'a>] {
        self.reports
    }

    /// Returns the limits that denied the request.
    pub fn violated(&self) -> impl Iterator<Item = &'a Report<'a>> {
        self.reports.iter().filter(|report| report.retry().is_some())
    }

    /// Returns the one limit to report where a format has space for only one.
    #[must_use]
    pub fn binding(&self) -> Option<&'a Report<'a>> {
        Report::binding(self.reports)
    }

    /// Returns when to retry, if known.
    #[must_use]
    pub const fn retry_after(&self) -> Option<RetryAfter> {
        self.retry
    }

    /// Returns the level that rejected the request, if there are levels.
    #[must_use]
    pub fn level(&self) -> Option<&'a str> {
        self.rejection.map(|(level, _)| level)
    }

    /// Returns why that level rejected the request.
    #[must_use]
    pub fn reason(&self) -> Option<&'a str> {
        self.rejection.map(|(_, reason)| reason)
    }
}
