//! Problem documents (RFC 9457) of the HTTP API.
//!
//! They name fields and rules, never keys or costs from the request.

use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use axum::response::{IntoResponse, Response};
use tidegate::StoreError;
use tidegate::guard::NotCalled;
use tidegate_config::Violation;
use tidegate_core::ReceiptError;
use tidegate_http::field::RetryAfter;
use tidegate_http::host::HostError;
use tidegate_http::problem::{FieldError, Problem as Document, ProblemType};

use crate::listener::bounds::MAX_BODY;
use crate::permits::PermitsError;

/// Why a request got no decision. Nothing was spent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error("{}", format_errors(.0))]
    Invalid(Vec<FieldError>),
    #[error("the body is not JSON: {0}")]
    Malformed(serde_json::Error),
    #[error("the body is incomplete")]
    Incomplete,
    #[error("the body did not arrive in time")]
    SlowBody,
    #[error("the body must have at most {MAX_BODY} bytes")]
    TooLarge,
    #[error("the body must be JSON, with exactly one header content-type: application/json")]
    NotJsonType,
    /// There is nothing at this path. The text lists what is available.
    #[error("{0}")]
    NotFound(String),
    #[error("this path does not support this method; the header `allow` lists those it does")]
    Method,
    #[error("{}{}", .0, host_hint(.0))]
    Host(#[from] HostError),
    #[error("{}", public_message(.0))]
    Store(StoreError),
    #[error(transparent)]
    Permits(#[from] PermitsError),
    #[error("the queue is full: at most {0} requests can wait; retry later")]
    QueueFull(usize),
    #[error("the server is shutting down and rejects requests that would wait")]
    Stopping,
    #[error("cannot wait for a permit: {0}")]
    CannotWait(String),
}

impl From<Vec<Violation>> for Problem {
    fn from(violations: Vec<Violation>) -> Self {
        let error = |violation: Violation| FieldError {
            field: violation.key,
            rule: violation.rule.to_string(),
        };
        Self::Invalid(truncate_errors(violations.into_iter().map(error)))
    }
}

/// Maximum number of errors in a problem, and maximum length of a field and of a rule in bytes. A
/// body of 64 KiB can contain ten thousand errors, and each appears twice: in `errors` and in
/// `detail`.
const MAX_ERRORS: usize = 20;
const MAX_FIELD: usize = 128;
const MAX_RULE: usize = 512;

/// Returns the first errors, and the number of those left out.
pub(crate) fn truncate_errors(
    errors: impl ExactSizeIterator<Item = FieldError>,
) -> Vec<FieldError> {
    let more = errors.len().saturating_sub(MAX_ERRORS);
    let cut = |mut text: String, most: usize| {
        if text.len() > most {
            let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            text.truncate(end);
            text.push_str("...");
        }
        text
    };
    let first = errors.take(MAX_ERRORS);
    let mut first: Vec<_> = first
        .map(|FieldError { field, rule }| FieldError {
            field: cut(field, MAX_FIELD),
            rule: cut(rule, MAX_RULE),
        })
        .collect();
    if more > 0 {
        first.push(FieldError { field: String::new(), rule: format!("has {more} more errors") });
    }
    first
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Receipt(error) => Self::Invalid(vec![FieldError {
                field: "receipt".to_owned(),
                rule: receipt_rule(error),
            }]),
            other => Self::Store(other),
        }
    }
}

/// Describes a receipt error without its subject, which is the name of the field.
pub(super) fn receipt_rule(error: ReceiptError) -> String {
    let text = error.to_string();
    text.strip_prefix("the receipt ").map(str::to_owned).unwrap_or(text)
}

/// Returns a hint for a host that is not served.
fn host_hint(error: &HostError) -> &'static str {
    match error {
        HostError::ForeignHost => "; to serve it, add it to `allowed_hosts` under [listen]",
        _ => "",
    }
}

/// Formats field errors on one line.
pub(crate) fn format_errors(errors: &[FieldError]) -> String {
    let texts: Vec<_> = errors
        .iter()
        .map(|FieldError { field, rule }| match field.as_str() {
            "" => format!("the body {rule}"),
            field => format!("{field} {rule}"),
        })
        .collect();
    texts.join("; ")
}

/// Describes a store error to callers, without the cause, which is logged.
fn public_message(error: &StoreError) -> String {
    match error {
        StoreError::Rejected(_) => "the store cannot execute this operation".to_owned(),
        StoreError::Unavailable(_) => "the store is unavailable".to_owned(),
        other => other.to_string(),
    }
}

impl Problem {
    fn kind(&self) -> ProblemType {
        match self {
            Self::Invalid(_) => ProblemType::InvalidRequest,
            Self::Store(error) if error.is_caller_error() => ProblemType::InvalidRequest,
            Self::Malformed(_) | Self::Incomplete => ProblemType::MalformedBody,
            Self::SlowBody => ProblemType::SlowBody,
            Self::TooLarge => ProblemType::BodyTooLarge,
            Self::NotJsonType => ProblemType::NotJson,
            Self::NotFound(_) => ProblemType::NotFound,
            Self::Method => ProblemType::MethodNotAllowed,
            Self::Host(HostError::ForeignHost) => ProblemType::ForeignHost,
            Self::Host(HostError::ForeignOrigin) => ProblemType::ForeignOrigin,
            Self::Host(_) => ProblemType::NoHost,
            Self::Store(StoreError::Rejected(_)) => ProblemType::StoreRejected,
            Self::Store(_)
            | Self::Permits(_)
            | Self::QueueFull(_)
            | Self::Stopping
            | Self::CannotWait(_) => ProblemType::TemporaryReducedCapacity,
        }
    }

    /// Returns the store error, unless the caller caused it.
    pub(crate) fn store_error(&self) -> Option<&StoreError> {
        match self {
            Self::Store(error) if !error.is_caller_error() => Some(error),
            _ => None,
        }
    }

    /// Returns the problem document.
    pub(crate) fn document(&self) -> Document<'_> {
        let errors: &[FieldError] = match self {
            Self::Invalid(errors) => errors,
            _ => &[],
        };
        let retry_after = self.retry_after().map(RetryAfter::from);
        Document::new(self.kind(), self.to_string()).errors(errors).retry_after(retry_after)
    }

    /// Returns when to retry, if known.
    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Store(StoreError::Unavailable(reason)) => match reason.downcast_ref()? {
                NotCalled::Down { retry_after } => Some(*retry_after),
                _ => None,
            },
            // Another node may serve the retry, or this one after its restart.
            Self::Permits(_) | Self::QueueFull(_) | Self::Stopping | Self::CannotWait(_) => {
                Some(Duration::from_secs(1))
            }
            _ => None,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.document().response().map(Body::from);
        if let Self::SlowBody = self {
            // The rest of the body may still arrive and must not be parsed as a request.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
