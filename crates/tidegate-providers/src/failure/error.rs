//! The error type for failures reported by a provider.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use http::StatusCode;

use super::class::Class;
use crate::provider::Provider;
use crate::reported_limits::ReportedLimits;

/// Error reported by a provider, by an error status or in the middle of a stream.
///
/// Neither `Display` nor `Debug` shows the provider's message, which may quote the request.
#[derive(Clone)]
#[non_exhaustive]
pub struct Failure {
    /// The provider that reported the error.
    pub provider: Provider,
    /// What the caller can do about it.
    pub class: Class,
    /// Status of the response: 200 for an error inside a stream.
    pub status: StatusCode,
    /// Type or code of the error, as the provider names it.
    pub kind: Option<String>,
    /// Message of the provider. It may quote the request, so do not log it.
    pub message: Option<String>,
    /// The provider's id of the request, for support cases.
    pub request_id: Option<String>,
    /// Limits reported with the error.
    pub reported_limits: ReportedLimits,
    /// Delay until a retry, if the provider reports it, for any class.
    pub after: Option<Duration>,
    /// Whether the status is not among those that are retried for this provider.
    pub is_final: bool,
}

impl Failure {
    /// Creates a failure of which only the class and the status are known.
    #[must_use]
    pub fn new(provider: Provider, class: Class, status: StatusCode) -> Self {
        let reported_limits = ReportedLimits::new();
        let after = class.after();
        Self {
            provider,
            class,
            status,
            kind: None,
            message: None,
            request_id: None,
            reported_limits,
            after,
            is_final: false,
        }
    }

    /// Returns whether the call may be retried: both class and status allow it.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        !self.is_final && self.class.is_retryable()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let provider = &self.provider;
        if self.status.is_success() {
            write!(f, "{provider} failed after its response began")?;
        } else {
            write!(f, "{provider} answered {}", self.status.as_u16())?;
        }
        if let Some(kind) = &self.kind {
            write!(f, " {kind}")?;
        }
        if let Some(id) = &self.request_id {
            write!(f, " (request id {id})")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure")
            .field("provider", &self.provider)
            .field("class", &self.class)
            .field("status", &self.status)
            .field("kind", &self.kind)
            .field("request_id", &self.request_id)
            .field("reported_limits", &self.reported_limits)
            .field("after", &self.after)
            .finish_non_exhaustive()
    }
}

impl Error for Failure {}
