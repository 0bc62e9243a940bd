//! The error that a provider answered with.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use http::StatusCode;

use super::class::Class;
use crate::provider::Provider;
use crate::reported_limits::ReportedLimits;

/// An error that a provider answered with, as a status or in the middle of a stream.
///
/// Neither `Display` nor `Debug` has the text of the provider, since that may quote the request.
#[derive(Clone)]
#[non_exhaustive]
pub struct Failure {
    /// Who answered.
    pub provider: Provider,
    /// What helps.
    pub class: Class,
    /// The status of the answer: 200 if it failed in the middle.
    pub status: StatusCode,
    /// The type or the code of the error, as the provider calls it.
    pub kind: Option<String>,
    /// What the provider says about it. It may quote the request: not for logs.
    pub message: Option<String>,
    /// What the provider calls this request, for its support.
    pub request_id: Option<String>,
    /// What was reported about limits.
    pub reported_limits: ReportedLimits,
    /// When to come back, if the provider said so, also of classes that have no such time.
    pub after: Option<Duration>,
    /// Whether its status is none of those after which calls to this provider are tried again.
    pub is_final: bool,
}

impl Failure {
    /// A failure of which nothing but the status is known.
    #[must_use]
    pub fn new(provider: Provider, class: Class, status: StatusCode) -> Self {
        let reported_limits = ReportedLimits::nothing();
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

    /// Whether the same call may be tried again: its class and its status allow it.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        !self.is_final && self.class.is_retryable()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let provider = &self.provider;
        if self.status.is_success() {
            write!(f, "{provider} broke off its answer")?;
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
