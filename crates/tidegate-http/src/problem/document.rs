//! One problem document, and the response that carries it.

use std::borrow::Cow;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use serde::{Serialize, Serializer};

use super::ProblemType;
use crate::field::RetryAfter;

/// Media type of problem documents.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// An invalid field of a request.
///
/// ```
/// use tidegate_http::problem::{FieldError, Problem, ProblemType};
/// let errors = [FieldError { field: "cost".into(), rule: "must be at least 1".into() }];
/// let problem = Problem::new(ProblemType::InvalidRequest, "the cost is wrong").errors(&errors);
/// assert_eq!(problem.response().status(), 400);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// Path of the field; empty for the whole body.
    pub field: String,
    /// The rule that it violates.
    pub rule: String,
}

/// A problem document: `type`, `title`, `status`, `detail`, and extension members.
///
/// | member | present if |
/// | --- | --- |
/// | `retry_after_ms` | the time to retry is known; the response then also has `Retry-After` and `retry-after-ms` |
/// | `violated-policies`, `limit`, `remaining` | a limit denied the request |
/// | `level`, `reason` | an admission rejected the request |
/// | `errors` | fields of the request are invalid |
///
/// It implements `Serialize`, so it can be embedded in a larger document.
///
/// ```
/// use std::time::Duration;
/// use tidegate_http::field::RetryAfter;
/// use tidegate_http::problem::{Problem, ProblemType};
///
/// let problem = Problem::new(ProblemType::TemporaryReducedCapacity, "the store does not answer")
///     .retry_after(Some(RetryAfter::from(Duration::from_millis(1_200))));
/// let response = problem.response();
/// assert_eq!(response.status(), 503);
/// assert_eq!(response.headers()["content-type"], "application/problem+json");
/// assert_eq!(response.headers()["retry-after"], "2");
/// assert_eq!(response.headers()["retry-after-ms"], "1200");
/// let body: serde_json::Value = serde_json::from_slice(response.body())?;
/// assert_eq!(body["retry_after_ms"], 1_200);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Serialize)]
#[must_use]
pub struct Problem<'a> {
    #[serde(rename = "type")]
    uri: &'a str,
    title: &'static str,
    #[serde(serialize_with = "number")]
    status: StatusCode,
    detail: Cow<'a, str>,
    #[serde(rename = "violated-policies", skip_serializing_if = "Vec::is_empty")]
    pub(super) violated_policies: Vec<&'a str>,
    #[serde(
        rename = "retry_after_ms",
        serialize_with = "millis",
        skip_serializing_if = "Option::is_none"
    )]
    retry_after: Option<RetryAfter>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) limit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remaining: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) level: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    errors: &'a [FieldError],
}

impl<'a> Problem<'a> {
    /// Creates a problem of this type, with the usual status.
    pub fn new(kind: ProblemType, detail: impl Into<Cow<'a, str>>) -> Self {
        Self {
            uri: kind.uri(),
            title: kind.title(),
            status: kind.status(),
            detail: detail.into(),
            violated_policies: Vec::new(),
            retry_after: None,
            limit: None,
            remaining: None,
            level: None,
            reason: None,
            errors: &[],
        }
    }

    /// Sets a status other than the usual one of the type.
    pub const fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// Sets the time to retry, in the document and in header fields.
    pub const fn retry_after(mut self, retry_after: Option<RetryAfter>) -> Self {
        self.retry_after = retry_after;
        self
    }

    /// Sets the invalid fields.
    pub const fn errors(mut self, errors: &'a [FieldError]) -> Self {
        self.errors = errors;
        self
    }

    /// Sets a URI other than that of the type.
    pub(super) const fn uri(mut self, uri: &'a str) -> Self {
        self.uri = uri;
        self
    }

    /// Serializes the document as JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        // Serializing strings and numbers does not fail.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Builds the response: status, media type, retry hint, and the document as body.
    #[must_use]
    pub fn response(&self) -> Response<Vec<u8>> {
        let mut response = Response::new(self.to_json());
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        // Space for the headers that callers add, without growing twice.
        headers.reserve(8);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(retry_after) = self.retry_after {
            retry_after.write(headers);
        }
        response
    }
}

fn number<S: Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}

fn millis<S: Serializer>(wait: &Option<RetryAfter>, serializer: S) -> Result<S::Ok, S::Error> {
    wait.map(RetryAfter::millis).serialize(serializer)
}
