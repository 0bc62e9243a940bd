//! Responses to failed calls.
//!
//! The provider's own error is forwarded byte for byte, with the configured key masked. If there is
//! none, the gateway writes an error in the provider's format. The error of one call is never sent
//! in response to another call: only its class, status and retry time are kept.

use std::time::Duration;

use http::header::CONNECTION;
use http::{HeaderValue, Response};
use tidegate::pacer::AcquireError;
use tidegate_llm::{CallError, ConnectionFailure};
use tidegate_providers::{Class, Dialect, Dimension, Provider};

use crate::call_observer::Outcome;
use crate::headers;
use crate::proxy::Proxy;
use crate::request::body_reader::BodyError;
use crate::response::body::ResponseBody;
use crate::response::proxy_error::{self, ErrorKind, ProxyError};
use crate::response::upstream_response::add_call_headers;
use crate::state::call_context::{OriginalError, is_long_lasting};
use crate::state::queue_limits::QueueFull;

/// `retry-after` while draining. Another instance is expected to have taken over by then.
const DRAIN_RETRY_AFTER: Duration = Duration::from_secs(1);
/// `retry-after` if there is no better estimate.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

impl Proxy<'_> {
    /// Returns the response to a failed call: the provider's own error if this call has one.
    pub(crate) fn call_error_response(
        &self,
        dialect: Dialect,
        error: &CallError,
    ) -> Response<ResponseBody> {
        let is_closed = matches!(error, CallError::QuotaExhausted(_));
        let original = match error.failure() {
            Some(_) if !is_closed => self.context.original_error(),
            _ => None,
        };
        let mut response = match original {
            Some(original) => self.forward_error(original, error),
            None => {
                let (error, outcome) = self.describe_error(error);
                self.refuse(dialect, &error, outcome)
            }
        };
        let is_own_rate_limit =
            error.failure().is_none() && matches!(error.class(), Class::RateLimited { .. });
        let retries_exhausted = matches!(error, CallError::Exhausted { .. });
        let is_final = error.failure().is_some_and(|failure| failure.is_final);
        let may_retry = error.class().is_retryable()
            && !is_long_lasting(error.class())
            && may_succeed_soon(error);
        let may_retry = may_retry && !is_final;
        if !is_own_rate_limit && (retries_exhausted || !may_retry) {
            proxy_error::set_no_retry(response.headers_mut());
        }
        response
    }

    /// Returns the provider's own error.
    fn forward_error(&self, original: OriginalError, error: &CallError) -> Response<ResponseBody> {
        let OriginalError { status, headers, body } = original;
        let mut response = Response::new(ResponseBody::buffered(body));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        let headers = response.headers_mut();
        headers::remove_hop_by_hop(headers);
        if let (Class::RateLimited { .. }, Some(after)) = (error.class(), error.retry_after()) {
            proxy_error::extend_retry_after(headers, after);
        }
        add_call_headers(headers, &self.context, &self.route.client.label);
        self.context.set_status(status);
        self.context.set_outcome(Outcome::Failed);
        response
    }

    /// Returns the gateway's error for a failed call, and the outcome to record.
    fn describe_error(&self, error: &CallError) -> (ProxyError, Outcome) {
        let name = &self.route.upstream.name;
        match error {
            CallError::Exhausted { last, .. } => self.describe_error(last),
            CallError::FallbackFailed { first, .. } => self.describe_error(first),
            CallError::NoPermit { source, limited_by, after, .. } => match source {
                AcquireError::QueueFull(waiting) => {
                    let after = after.unwrap_or(DEFAULT_RETRY_AFTER);
                    (
                        queue_full_error(name.as_str(), *waiting, "with this key", after),
                        Outcome::Refused,
                    )
                }
                AcquireError::TooLong { .. }
                | AcquireError::TimedOut(_)
                | AcquireError::WouldWait => {
                    let limit = limited_by.or_else(|| self.route.provider_state.binding());
                    if let Some(limit) = limit {
                        self.context.set_limited_by(limit);
                    }
                    let after = after.unwrap_or(DEFAULT_RETRY_AFTER);
                    let verb = match source {
                        AcquireError::TimedOut(_) => "exceeded",
                        _ => "would exceed",
                    };
                    (wait_too_long_error(name.as_str(), verb, limit, after), Outcome::Refused)
                }
                AcquireError::NeverFits(limit) => {
                    tracing::debug!(provider = %name, limit, "call can never fit its limit");
                    let message = format!(
                        "Tidegate refused: the request has more tokens than {name} ever allows."
                    );
                    (ProxyError::new(ErrorKind::TooLarge, message), Outcome::Rejected)
                }
                _ => (internal_error(), Outcome::Rejected),
            },
            CallError::CircuitOpen { after, .. } => {
                (self.breaker_open_error(*after), Outcome::BreakerOpen)
            }
            CallError::Provider(failure) if failure.status.is_informational() => {
                let (provider, status) = (&failure.provider, failure.status);
                let message = format!(
                    "Tidegate: {provider} responded with {status}, which is not a final status."
                );
                (ProxyError::new(ErrorKind::Unreachable, message), Outcome::Unreachable)
            }
            CallError::QuotaExhausted(failure) | CallError::Provider(failure) => {
                let daily = Dimension::RequestsPerDay.name();
                let message = if failure.kind.as_deref() == Some(daily) {
                    self.context.set_limited_by(daily);
                    format!("Tidegate refused: the configured {daily} for {name} are used up.")
                } else {
                    format!("Tidegate refused: a quota of {name} is exhausted.")
                };
                let error = ProxyError::new(ErrorKind::Quota, message).with_status(failure.status);
                // A retry time that the provider did not state would be a guess.
                let after = failure.class.after().filter(|_| failure.after.is_some());
                (error.retry_after(after), Outcome::Refused)
            }
            CallError::Connection { provider, kind, .. } => {
                (connection_error(provider, *kind, error.connection_reason()), Outcome::Unreachable)
            }
            CallError::InvalidResponse { provider, .. } => {
                let message =
                    format!("Tidegate: {provider} sent a response that cannot be parsed.");
                (ProxyError::new(ErrorKind::Unreachable, message), Outcome::Unreachable)
            }
            _ => (internal_error(), Outcome::Rejected),
        }
    }

    /// Returns the error of a call that an open breaker refuses.
    fn breaker_open_error(&self, after: Duration) -> ProxyError {
        let (name, seconds) = (&self.route.upstream.name, after.as_secs_f64());
        let failure = self.route.provider_state.breaker().status().last_failure;
        let failure = failure.map(|failure| format!(" (last: {failure})")).unwrap_or_default();
        let message = format!(
            "Tidegate refused: calls to {name} kept failing{failure}, so its circuit breaker is \
             open. Retry in {seconds:.3}s."
        );
        ProxyError::new(ErrorKind::BreakerOpen, message).retry_after(Some(after))
    }

    /// Refuses a call that would have to wait because the queue is full.
    pub(crate) fn refuse_to_queue(
        &self,
        dialect: Dialect,
        full: QueueFull,
    ) -> Response<ResponseBody> {
        let name = self.route.upstream.name.as_str();
        let error = queue_full_error(name, full.max(), full.subject(), DEFAULT_RETRY_AFTER);
        self.refuse(dialect, &error, Outcome::Refused)
    }

    /// Refuses a request because of its body.
    pub(crate) fn refuse_body(
        &self,
        dialect: Dialect,
        error: &BodyError,
    ) -> Response<ResponseBody> {
        let kind = match error {
            BodyError::TooLarge { .. } => ErrorKind::TooLarge,
            BodyError::TooSlow => ErrorKind::TooSlow,
            BodyError::Broken(_) => ErrorKind::Invalid,
            BodyError::NoBufferSpace(_) => ErrorKind::Busy,
        };
        let message = format!("Tidegate refused: {error}. The request was not forwarded in full.");
        let after = (kind == ErrorKind::Busy).then_some(DEFAULT_RETRY_AFTER);
        let error = ProxyError::new(kind, message).retry_after(after);
        let mut response = self.refuse(dialect, &error, Outcome::Rejected);
        // The rest of the body is not read.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        response
    }

    pub(crate) fn refuse(
        &self,
        dialect: Dialect,
        error: &ProxyError,
        outcome: Outcome,
    ) -> Response<ResponseBody> {
        let mut response = error.response(dialect);
        add_call_headers(response.headers_mut(), &self.context, &self.route.client.label);
        self.context.set_status(response.status());
        self.context.set_outcome(outcome);
        response
    }
}

pub(crate) fn draining_error() -> ProxyError {
    let message = "Tidegate is shutting down and sends no more calls; retry in a moment.";
    ProxyError::new(ErrorKind::Draining, message).retry_after(Some(DRAIN_RETRY_AFTER))
}

pub(crate) fn internal_error() -> ProxyError {
    ProxyError::new(
        ErrorKind::Internal,
        "Tidegate failed to process this call because of an internal error.",
    )
}

/// Whether the connection failure, if any, may go away soon.
fn may_succeed_soon(error: &CallError) -> bool {
    match error {
        CallError::Connection { kind, .. } => kind.may_heal_soon(),
        CallError::FallbackFailed { first, .. } => may_succeed_soon(first),
        _ => true,
    }
}

/// Returns the error of a failed connection with its cause.
fn connection_error(
    provider: &Provider,
    failure: ConnectionFailure,
    reason: Option<String>,
) -> ProxyError {
    let (kind, what) = match failure {
        ConnectionFailure::TimedOut => (ErrorKind::Timeout, "did not answer in time"),
        ConnectionFailure::ConnectTimedOut => (ErrorKind::Timeout, "could not be reached"),
        ConnectionFailure::Closed => (ErrorKind::Unreachable, "closed the connection early"),
        _ => (ErrorKind::Unreachable, "could not be reached"),
    };
    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    ProxyError::new(kind, format!("Tidegate: {provider} {what}{reason}"))
}

fn queue_full_error(provider: &str, waiting: usize, subject: &str, after: Duration) -> ProxyError {
    let seconds = after.as_secs_f64();
    let message = format!(
        "Tidegate refused: the queue is full: {waiting} calls {subject} wait for {provider}, which \
         is the maximum. Retry in {seconds:.3}s."
    );
    ProxyError::new(ErrorKind::RateLimit, message).retry_after(Some(after))
}

fn wait_too_long_error(
    provider: &str,
    verb: &str,
    limit: Option<&str>,
    after: Duration,
) -> ProxyError {
    let seconds = after.as_secs_f64();
    let limited_by = limit.map(|limit| format!(" (limited by {limit})")).unwrap_or_default();
    let message = format!(
        "Tidegate refused: the wait for {provider} {verb} the maximum wait{limited_by}; nothing was \
         sent. Retry in {seconds:.3}s, or allow a longer wait."
    );
    ProxyError::new(ErrorKind::of_limit(limit), message).retry_after(Some(after))
}
