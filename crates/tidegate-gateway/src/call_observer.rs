//! Observers of calls: told of each call once, when it is over.

use std::fmt;
use std::time::Duration;

use http::StatusCode;
use tidegate_providers::{Class, Endpoint, Provider, Usage};

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
    /// What of the API was used; `None` for requests that are free.
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
    /// What it used, as the provider told it or as it was counted here. `None` if no provider did
    /// anything for it.
    pub usage: Option<Usage>,
    /// The provider that did what was used; not the one that was asked for if that is a fallback.
    pub used_at: Option<&'a Provider>,
    /// Why the answer failed after it had begun, if it did.
    pub answer_failure: Option<Class>,
    /// The status that the caller got; `None` if it went away before.
    pub status: Option<StatusCode>,
    /// How long all of it took.
    pub duration: Duration,
    /// What is told only to observers that [want it](CallObserver::wants_details).
    pub details: Option<CallDetails<'a>>,
}

/// What an access log shows of a call, beyond what is counted.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CallDetails<'a> {
    /// The `x-tidegate-request-id` of the answer.
    pub request_id: &'a str,
    /// On whose behalf the call was queued: a name that the caller chose, or its address and a hash of
    /// its key.
    pub tenant: Option<&'a str>,
    /// The model as the caller named it, up to 256 bytes.
    pub model: Option<&'a str>,
    /// Input and output tokens that were reserved for it.
    pub reserved: Option<(u64, u64)>,
}

/// An observer of calls. It runs on the path of a call and must not block.
pub trait CallObserver: Send + Sync + fmt::Debug {
    /// Called exactly once for each call, when the call is over.
    fn finished(&self, call: &FinishedCall<'_>);

    /// Whether it is to be told [details](FinishedCall::details) of calls that begin now. They are kept
    /// while a call is under way, so that whoever does not need them does not pay for them.
    fn wants_details(&self) -> bool {
        false
    }
}

/// Ignores every call.
#[derive(Debug)]
pub(crate) struct NoObserver;

impl CallObserver for NoObserver {
    fn finished(&self, _call: &FinishedCall<'_>) {}
}
