//! Observers of calls: told of each call once, when it is over.

use std::fmt;
use std::time::Duration;

use http::StatusCode;
use tidegate_providers::{Endpoint, Provider, Usage};

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The provider answered, to the end.
    Answered,
    /// The provider answered with an error, which the caller got.
    Failed,
    /// The answer broke off.
    Broken,
    /// The wait would have been too long.
    Refused,
    /// The provider could not be reached, or did not answer.
    Unreachable,
    /// The request was wrong or too large, and nothing was sent.
    Rejected,
    /// The provider was left alone, since calls to it kept failing.
    BreakerOpen,
    /// The gateway was about to end.
    Drained,
    /// The caller went away.
    Cancelled,
}

impl Outcome {
    /// The name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Failed => "failed",
            Self::Broken => "broken",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Rejected => "rejected",
            Self::BreakerOpen => "breaker_open",
            Self::Drained => "drained",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A call that is over.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FinishedCall<'a> {
    /// Who was asked for.
    pub provider: &'a Provider,
    /// The model by its configured name, else `other`.
    pub model: &'a str,
    /// What of the API was used; `None` for paths that no limit counts.
    pub endpoint: Option<&'a Endpoint>,
    /// What became of it.
    pub outcome: Outcome,
    /// How long it was held, before all attempts together.
    pub wait: Duration,
    /// What it waited for longest, if it waited.
    pub limited_by: Option<&'static str>,
    /// How many attempts reached out to a provider.
    pub attempts: u32,
    /// How many of them were answered with 429.
    pub upstream_429s: u32,
    /// What it used, if the provider said.
    pub usage: Option<Usage>,
    /// The status that the caller got; `None` if it went away before.
    pub status: Option<StatusCode>,
}

/// An observer of calls. It runs on the path of a call and must not block.
pub trait CallObserver: Send + Sync + fmt::Debug {
    /// Called exactly once for each call, when the call is over.
    fn finished(&self, call: &FinishedCall<'_>);
}

/// Ignores every call.
#[derive(Debug)]
pub(crate) struct NoObserver;

impl CallObserver for NoObserver {
    fn finished(&self, _call: &FinishedCall<'_>) {}
}
