//! One problem document, and the response that carries it.

use std::borrow::Cow;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use serde::{Serialize, Serializer};

use super::ProblemType;
use crate::field::RetryAfter;

/// The media type of a problem document.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// A field of a request and the rule that it breaks.
///
/// ```
/// use tidegate_http::problem::{FieldError, Problem, ProblemType};
/// let errors = [FieldError { field: "cost".into(), rule: "must be at least 1".into() }];
/// let problem = Problem::new(ProblemType::InvalidRequest, "the cost is wrong").errors(&errors);
/// assert_eq!(problem.response().status(), 400);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// The path of the field; empty for the whole body.
    pub field: String,
    /// The rule.
    pub rule: String,
}

/// A problem document: `type`, `title`, `status`, `detail`, and what Tidegate adds to them.
///
/// | member | present if |
/// | --- | --- |
/// | `retry_after_ms` | it is known when to try again; the response then has `Retry-After` and `retry-after-ms` as well |
/// | `violated-policies`, `limit`, `remaining` | a limit refuses |
/// | `level`, `reason` | an admission refuses |
/// | `errors` | fields of the request are wrong |
///
/// It serialises itself, so that it can also be a part of a larger document.
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
    /// A problem of this type, with its usual status.
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

    /// With another status than the usual one of its type.
    pub const fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// With the time after which a retry is worth it, in the document and in header fields.
    pub const fn retry_after(mut self, retry_after: Option<RetryAfter>) -> Self {
        self.retry_after = retry_after;
        self
    }

    /// With the fields that are wrong.
    pub const fn errors(mut self, errors: &'a [FieldError]) -> Self {
        self.errors = errors;
        self
    }

    /// With another URI than that of its type.
    pub(super) const fn uri(mut self, uri: &'a str) -> Self {
        self.uri = uri;
        self
    }

    /// The document as JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        // A document of texts and numbers is always serialized.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The response: status, media type, when to try again, and the document as its body.
    #[must_use]
    pub fn response(&self) -> Response<Vec<u8>> {
        let mut response = Response::new(self.to_json());
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        // Room for what the caller adds, without growing twice.
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
