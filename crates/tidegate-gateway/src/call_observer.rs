//! Observers of calls, which are notified of each call once, when it ends.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tidegate_providers::{Class, Endpoint, Provider, Usage};

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The provider's response was complete.
    Answered,
    /// The provider responded with an error, which was forwarded.
    Failed,
    /// The response was aborted.
    Broken,
    /// Our own limits refused it: no permit in time, a full queue or an exhausted quota. Nothing was
    /// sent.
    Refused,
    /// The provider could not be reached or did not respond.
    Unreachable,
    /// The request was invalid or too large; nothing was sent.
    Rejected,
    /// The circuit breaker of the provider was open.
    BreakerOpen,
    /// The gateway was draining.
    Drained,
    /// The caller disconnected.
    Cancelled,
}

impl Outcome {
    /// Returns the value of the metrics label `outcome`.
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

/// A call that has ended.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FinishedCall<'a> {
    /// The provider that the caller named.
    pub provider: &'a Provider,
    /// The model, if it is configured by name; otherwise `other`.
    pub model: &'a str,
    /// The endpoint; `None` for free requests.
    pub endpoint: Option<&'a Endpoint>,
    /// How the call ended.
    pub outcome: Outcome,
    /// Time spent waiting, summed over all attempts.
    pub wait: Duration,
    /// The limit that the call waited for longest, or that refused it.
    pub limited_by: Option<&'static str>,
    /// Number of attempts sent to a provider.
    pub attempts: u32,
    /// Number of attempts that a provider answered with 429.
    pub upstream_429s: u32,
    /// Tokens used, as reported by the provider or counted by the gateway. `None` if no provider
    /// processed the call.
    pub usage: Option<Usage>,
    /// The provider that processed the call: the named one or a fallback.
    pub served_by: Option<&'a Provider>,
    /// Class of the failure if the response failed after it had started.
    pub response_failure: Option<Class>,
    /// The status sent to the caller; `None` if it disconnected before.
    pub status: Option<StatusCode>,
    /// Total duration of the call.
    pub duration: Duration,
    /// Set only if an observer [wants details](CallObserver::wants_details).
    pub details: Option<CallDetails<'a>>,
}

/// Details of a call for access logs.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CallDetails<'a> {
    /// The `x-tidegate-request-id` of the response.
    pub request_id: &'a str,
    /// The tenant that the call was queued for: the name given by the caller, or its address and a
    /// hash of its key.
    pub tenant: Option<&'a str>,
    /// The model as the caller named it, up to 256 bytes.
    pub model: Option<&'a str>,
    /// Reserved input and output tokens.
    pub reserved: Option<(u64, u64)>,
}

/// An observer of finished calls. It runs on the path of a call and must not block.
pub trait CallObserver: Send + Sync + fmt::Debug {
    /// Called exactly once for each call, when the call has ended.
    fn finished(&self, call: &FinishedCall<'_>);

    /// Returns whether [details](FinishedCall::details) are wanted for calls that start now. They
    /// are kept while a call runs, so an observer that does not need them avoids the cost.
    fn wants_details(&self) -> bool {
        false
    }
}

/// The observers of a gateway.
#[derive(Debug, Default)]
pub(crate) struct CallObservers(Vec<Arc<dyn CallObserver>>);

impl CallObservers {
    pub(crate) fn add(&mut self, observer: Arc<dyn CallObserver>) {
        self.0.push(observer);
    }
}

impl CallObserver for CallObservers {
    fn finished(&self, call: &FinishedCall<'_>) {
        self.0.iter().for_each(|observer| observer.finished(call));
    }

    fn wants_details(&self) -> bool {
        self.0.iter().any(|observer| observer.wants_details())
    }
}
