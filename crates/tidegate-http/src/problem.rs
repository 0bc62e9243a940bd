//! Problem documents (RFC 9457): why a request is refused, for programs and for people.
//!
//! [`ProblemType`] is the table of types, [`Problem`] is one document, and [`ProblemRenderer`]
//! builds one from a [`Refusal`]. Documents contain names of limits and fields, rules and numbers,
//! never keys.

mod document;
mod kind;

use std::borrow::Cow;

pub use document::{FieldError, PROBLEM_JSON, Problem};
pub use kind::ProblemType;

use crate::field::Report;
use crate::key::MissingKeyError;
use crate::refusal::{Refusal, RefusalCause};

/// Builds problem documents from [`Refusal`]s, optionally with custom type URIs.
///
/// ```
/// use tidegate_http::problem::ProblemRenderer;
/// use tidegate_http::{RefusalCause, Refusal};
///
/// let problems = ProblemRenderer::default().quota_exceeded("https://example.org/problems/quota");
/// let refusal = Refusal::new(RefusalCause::Limit);
/// let body: serde_json::Value = serde_json::from_slice(&problems.document(&refusal).to_json())?;
/// assert_eq!(body["type"], "https://example.org/problems/quota");
/// assert_eq!(body["status"], 429);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ProblemRenderer {
    quota_exceeded: Option<Cow<'static, str>>,
    reduced_capacity: Option<Cow<'static, str>>,
}

impl ProblemRenderer {
    /// Sets the type URI for a caller over its limit (status 429).
    #[must_use]
    pub fn quota_exceeded(mut self, uri: impl Into<Cow<'static, str>>) -> Self {
        self.quota_exceeded = Some(uri.into());
        self
    }

    /// Sets the type URI for a service that is overloaded or cannot check limits (status 503).
    #[must_use]
    pub fn reduced_capacity(mut self, uri: impl Into<Cow<'static, str>>) -> Self {
        self.reduced_capacity = Some(uri.into());
        self
    }

    /// Builds the document for a refusal.
    pub fn document<'a>(&'a self, refusal: &Refusal<'a>) -> Problem<'a> {
        let (kind, uri) = self.kind(refusal.cause());
        let binding = refusal.binding();
        let mut problem = Problem::new(kind, detail(refusal))
            .status(refusal.cause().status())
            .retry_after(refusal.retry_after());
        if let Some(uri) = uri {
            problem = problem.uri(uri);
        }
        problem.violated_policies = refusal.violated().map(Report::name).collect();
        problem.limit = binding.map(Report::quota);
        problem.remaining = binding.map(Report::remaining);
        problem.level = refusal.level();
        problem.reason = refusal.reason();
        problem
    }

    /// Returns the problem type, and the custom URI that replaces its own.
    fn kind(&self, cause: RefusalCause) -> (ProblemType, Option<&str>) {
        match cause {
            RefusalCause::Limit => (ProblemType::QuotaExceeded, self.quota_exceeded.as_deref()),
            RefusalCause::BackPressure | RefusalCause::Store => {
                (ProblemType::TemporaryReducedCapacity, self.reduced_capacity.as_deref())
            }
            RefusalCause::MissingKey(
                MissingKeyError::BadRequest | MissingKeyError::Unauthorized,
            ) => (ProblemType::NoKey, None),
            RefusalCause::MissingKey(MissingKeyError::NoPeer) => (ProblemType::NoPeer, None),
        }
    }
}

fn detail(refusal: &Refusal<'_>) -> &'static str {
    match (refusal.cause(), refusal.retry_after()) {
        (RefusalCause::Limit, Some(_)) => {
            "The request is over the limit for now; nothing was charged."
        }
        (RefusalCause::Limit, None) => {
            "The request is over the limit, and waiting does not help: it costs more than the \
             capacity of the limit, or the allowance is used up. Nothing was charged."
        }
        (RefusalCause::BackPressure, _) => "The service is overloaded.",
        (RefusalCause::Store, _) => "Rate limits cannot be checked at the moment.",
        (RefusalCause::MissingKey(MissingKeyError::BadRequest), _) => {
            "The request has no key to charge."
        }
        (RefusalCause::MissingKey(MissingKeyError::Unauthorized), _) => {
            "The request has no credential to charge."
        }
        (RefusalCause::MissingKey(MissingKeyError::NoPeer), _) => {
            "The server does not know the peer address, so there is no key to charge. With \
             axum, serve the router with into_make_service_with_connect_info::<SocketAddr>(); with \
             another server, put a PeerAddr into the extensions of each request."
        }
    }
}
