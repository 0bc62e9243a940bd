//! Problem documents (RFC 9457): why a request was refused, for programs and for people.
//!
//! They name limits and numbers, never keys.

use std::borrow::Cow;

use serde::Serialize;

use crate::key::Unkeyed;
use crate::refusal::{Cause, Refusal};

/// The media type of a problem document.
pub const CONTENT_TYPE: &str = "application/problem+json";

/// The types of problems, which are URIs. The defaults are those of the IETF draft for limits,
/// and names of ours for the rest.
///
/// ```
/// use tidegate_http::problem::Problems;
/// use tidegate_http::{Cause, Refusal};
///
/// let problems = Problems::default().quota_exceeded("https://example.org/problems/quota");
/// let body = problems.document(&Refusal::new(Cause::Limit));
/// let body: serde_json::Value = serde_json::from_slice(&body)?;
/// assert_eq!(body["type"], "https://example.org/problems/quota");
/// assert_eq!(body["status"], 429);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Problems {
    quota_exceeded: Cow<'static, str>,
    reduced_capacity: Cow<'static, str>,
}

impl Problems {
    /// Another type for a caller over its limit (status 429).
    #[must_use]
    pub fn quota_exceeded(mut self, uri: impl Into<Cow<'static, str>>) -> Self {
        self.quota_exceeded = uri.into();
        self
    }

    /// Another type for a service that cannot serve anybody now (status 503).
    #[must_use]
    pub fn reduced_capacity(mut self, uri: impl Into<Cow<'static, str>>) -> Self {
        self.reduced_capacity = uri.into();
        self
    }

    /// The document that tells of a refusal, as JSON.
    #[must_use]
    pub fn document(&self, refusal: &Refusal<'_>) -> Vec<u8> {
        let (r#type, title) = self.kind(refusal.cause());
        let binding = refusal.binding();
        let document = Document {
            r#type,
            title,
            status: refusal.cause().status().as_u16(),
            detail: detail(refusal),
            violated_policies: refusal.violated().map(crate::field::Report::name).collect(),
            retry_after_ms: refusal.retry_after().map(crate::field::RetryAfter::millis),
            limit: binding.map(crate::field::Report::quota),
            remaining: binding.map(crate::field::Report::remaining),
            level: refusal.level(),
            reason: refusal.reason(),
        };
        // A document of texts and numbers is always serialized.
        serde_json::to_vec(&document).unwrap_or_default()
    }

    fn kind(&self, cause: Cause) -> (&str, &'static str) {
        match cause {
            Cause::Limit => (&self.quota_exceeded, "Quota exceeded"),
            Cause::BackPressure | Cause::Store => {
                (&self.reduced_capacity, "Temporarily reduced capacity")
            }
            Cause::Unkeyed(Unkeyed::BadRequest | Unkeyed::Unauthorized) => {
                ("urn:tidegate:problem:no-key", "Nobody to charge")
            }
            Cause::Unkeyed(Unkeyed::NoPeer) => {
                ("urn:tidegate:problem:no-peer", "Limits are set up incompletely")
            }
        }
    }
}

impl Default for Problems {
    fn default() -> Self {
        let draft = |name| Cow::Borrowed(name);
        Self {
            quota_exceeded: draft("https://iana.org/assignments/http-problem-types#quota-exceeded"),
            reduced_capacity: draft(
                "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
            ),
        }
    }
}

#[derive(Serialize)]
struct Document<'a> {
    r#type: &'a str,
    title: &'static str,
    status: u16,
    detail: &'static str,
    #[serde(rename = "violated-policies", skip_serializing_if = "Vec::is_empty")]
    violated_policies: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

fn detail(refusal: &Refusal<'_>) -> &'static str {
    match (refusal.cause(), refusal.retry_after()) {
        (Cause::Limit, Some(_)) => "The request is over the limit for now; nothing was charged.",
        (Cause::Limit, None) => {
            "The request is over the limit and waiting does not help: it costs more than the limit \
             can hold, or the allowance is used up. Nothing was charged."
        }
        (Cause::BackPressure, _) => "The service has more to do than it can.",
        (Cause::Store, _) => "The limits cannot be checked at the moment.",
        (Cause::Unkeyed(Unkeyed::BadRequest), _) => {
            "The request lacks what it would be charged to."
        }
        (Cause::Unkeyed(Unkeyed::Unauthorized), _) => {
            "The request lacks the credential that it would be charged to."
        }
        (Cause::Unkeyed(Unkeyed::NoPeer), _) => {
            "The server does not know the address of its peer, and so not whom to charge."
        }
    }
}
