//! Problem documents (RFC 9457): what is wrong, for programs and for people.
//!
//! They name fields and rules, never keys or costs that were sent.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tidegate::StoreError;
use tidegate::guard::NotAsked;
use tidegate_config::Fault;

use crate::listener::bounds::MAX_BODY;

/// Why a request is not answered with a decision. Nothing was spent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error("{}", told(.0))]
    Invalid(Vec<FieldError>),
    #[error("the body is not JSON: {0}")]
    Malformed(serde_json::Error),
    #[error("the body ended before it was complete")]
    Incomplete,
    #[error("the body did not arrive in time")]
    SlowBody,
    #[error("a body has at most {MAX_BODY} bytes")]
    TooLarge,
    #[error("the body must be JSON and say so, once: content-type: application/json")]
    NotJsonType,
    #[error(
        "there is nothing at this path; see /v1/take, peek, reserve, settle, hold, reset, batch and /healthz"
    )]
    NotFound,
    #[error("this path does not take this method; the header `allow` says which it takes")]
    Method,
    #[error("a request names its host, once, in the header `host`")]
    NoHost,
    #[error(
        "this door does not serve that host; add it to `allowed_hosts` under [listen] if it should"
    )]
    ForeignHost,
    #[error("pages of another origin may not ask here")]
    ForeignOrigin,
    #[error(transparent)]
    Store(StoreError),
}

/// A field and the rule that it breaks.
#[derive(Debug, Serialize)]
pub(crate) struct FieldError {
    pub(crate) field: String,
    pub(crate) rule: String,
}

impl From<Fault> for FieldError {
    fn from(fault: Fault) -> Self {
        Self { field: fault.key, rule: fault.rule.to_string() }
    }
}

impl From<Vec<Fault>> for Problem {
    fn from(faults: Vec<Fault>) -> Self {
        Self::Invalid(faults.into_iter().map(FieldError::from).collect())
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Receipt(error) => Self::Invalid(vec![FieldError {
                field: "receipt".to_owned(),
                rule: error.to_string(),
            }]),
            other => Self::Store(other),
        }
    }
}

pub(crate) fn told(errors: &[FieldError]) -> String {
    let told: Vec<_> = errors
        .iter()
        .map(|FieldError { field, rule }| match field.as_str() {
            "" => format!("the body {rule}"),
            field => format!("{field} {rule}"),
        })
        .collect();
    told.join("; ")
}

/// The status, the type and the title of a problem, which are the same whenever it occurs.
pub(crate) type Kind = (StatusCode, &'static str, &'static str);

/// The document itself.
#[derive(Serialize)]
pub(crate) struct Document<'a> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: String,
    /// As in the header, for those who get many documents in one answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    errors: &'a [FieldError],
}

impl<'a> Document<'a> {
    pub(crate) fn new(kind: Kind, detail: String, errors: &'a [FieldError]) -> Self {
        let (status, r#type, title) = kind;
        let status = status.as_u16();
        Self { r#type, title, status, detail, retry_after_ms: None, errors }
    }

    /// The answer that tells of a problem.
    pub(crate) fn response(&self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::BAD_REQUEST);
        // A document of texts and numbers is always serialized.
        let body = serde_json::to_vec(self).unwrap_or_default();
        let content_type = HeaderValue::from_static("application/problem+json");
        (status, [(header::CONTENT_TYPE, content_type)], body).into_response()
    }
}

/// For bodies: whole milliseconds, rounded up.
pub(crate) fn whole_millis(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// For the header `retry-after`: rounded up, and never at once.
pub(crate) fn whole_seconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000_000)).unwrap_or(u64::MAX).max(1)
}

impl Problem {
    fn kind(&self) -> Kind {
        match self {
            Self::Invalid(_) => invalid(),
            Self::Store(error) if error.is_callers_fault() => invalid(),
            Self::Malformed(_) | Self::Incomplete => {
                (StatusCode::BAD_REQUEST, "urn:tidegate:problem:malformed-body", "Malformed body")
            }
            Self::SlowBody => {
                (StatusCode::REQUEST_TIMEOUT, "urn:tidegate:problem:slow-body", "Slow body")
            }
            Self::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "urn:tidegate:problem:body-too-large",
                "Body too large",
            ),
            Self::NotJsonType => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "urn:tidegate:problem:not-json",
                "Not declared as JSON",
            ),
            Self::NotFound => {
                (StatusCode::NOT_FOUND, "urn:tidegate:problem:not-found", "Not found")
            }
            Self::Method => (
                StatusCode::METHOD_NOT_ALLOWED,
                "urn:tidegate:problem:method-not-allowed",
                "Method not allowed",
            ),
            Self::NoHost => (StatusCode::BAD_REQUEST, "urn:tidegate:problem:no-host", "No host"),
            Self::ForeignHost => (
                StatusCode::MISDIRECTED_REQUEST,
                "urn:tidegate:problem:foreign-host",
                "Foreign host",
            ),
            Self::ForeignOrigin => {
                (StatusCode::FORBIDDEN, "urn:tidegate:problem:foreign-origin", "Foreign origin")
            }
            Self::Store(StoreError::Rejected(_)) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "urn:tidegate:problem:store-rejected",
                "The store works, but cannot do this",
            ),
            Self::Store(_) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "urn:tidegate:problem:store",
                "The store cannot answer",
            ),
        }
    }

    /// What is wrong with the store, if that is the problem.
    pub(crate) fn trouble(&self) -> Option<&StoreError> {
        match self {
            Self::Store(error) if !error.is_callers_fault() => Some(error),
            _ => None,
        }
    }

    /// The document that tells of it.
    pub(crate) fn document(&self) -> Document<'_> {
        let errors: &[FieldError] = match self {
            Self::Invalid(errors) => errors,
            _ => &[],
        };
        let document = Document::new(self.kind(), self.to_string(), errors);
        Document { retry_after_ms: self.retry_after().map(whole_millis), ..document }
    }

    /// When to try again, if that is known.
    fn retry_after(&self) -> Option<Duration> {
        let Self::Store(StoreError::Unavailable(reason)) = self else { return None };
        match reason.downcast_ref()? {
            NotAsked::Down { retry_after } => Some(*retry_after),
            _ => None,
        }
    }
}

const fn invalid() -> Kind {
    (StatusCode::BAD_REQUEST, "urn:tidegate:problem:invalid-request", "Invalid request")
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.document().response();
        if let Self::SlowBody = self {
            // The rest of the body may still come, and must not be taken for a request.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(wait) = self.retry_after() {
            response.headers_mut().insert(header::RETRY_AFTER, whole_seconds(wait).into());
        }
        response
    }
}
