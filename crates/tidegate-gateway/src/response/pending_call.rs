//! A call whose response has started. It is settled once: when the response ends, fails or is
//! dropped.
//!
//! Retries and fallbacks cannot hide a failure after the response head was sent. Such a failure is
//! classified and counted like any other, and logged in one line without any text of the response.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use tidegate_llm::CallError;
use tidegate_llm::rate_limit::Reservation;

use crate::call_observer::Outcome;
use crate::response::usage_reader::{BodyEnd, UsageReader};
use crate::state::call_context::CallContext;
use crate::upstream::attempt::UpstreamClient;

/// Maximum length of a provider's request id in the log.
const MAX_ID_LEN: usize = 128;

/// A call whose response has not ended.
pub(crate) struct PendingCall {
    usage_reader: UsageReader,
    reservation: Option<Reservation>,
    pub(crate) client: Arc<UpstreamClient>,
    pub(crate) context: Arc<CallContext>,
    /// Outcome of the call if the response is complete.
    outcome: Outcome,
    /// The provider's id of the request.
    upstream_id: Option<HeaderValue>,
    is_settled: bool,
}

/// How a response ends.
#[derive(Debug)]
pub(crate) enum Ending {
    Complete,
    Failed(CallError, FailureCause),
    /// The caller disconnected.
    CallerGone,
}

/// Why a response failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureCause {
    /// The provider reported an error in the response.
    Reported,
    /// The body ended without its end marker.
    EndedEarly,
    /// The connection broke.
    Connection,
    /// The provider stopped sending.
    IdleTimeout,
}

impl FailureCause {
    const fn name(self) -> &'static str {
        match self {
            Self::Reported => "reported",
            Self::EndedEarly => "ended_early",
            Self::Connection => "connection",
            Self::IdleTimeout => "idle_timeout",
        }
    }
}

impl PendingCall {
    pub(crate) const fn new(
        usage_reader: UsageReader,
        client: Arc<UpstreamClient>,
        context: Arc<CallContext>,
        outcome: Outcome,
        upstream_id: Option<HeaderValue>,
    ) -> Self {
        Self {
            usage_reader,
            reservation: None,
            client,
            context,
            outcome,
            upstream_id,
            is_settled: false,
        }
    }

    /// Attaches the reservation, which is settled when the response ends.
    pub(crate) fn attach_reservation(&mut self, mut reservation: Reservation) {
        self.usage_reader.report_to(Some(&mut reservation));
        self.reservation = Some(reservation);
    }

    /// Whether the response has announced its end. Callers may then close the connection before the
    /// body ends.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_settled || self.usage_reader.has_ended()
    }

    /// Reads a part of the body.
    pub(crate) fn read(&mut self, data: &Bytes) {
        if self.is_settled {
            return;
        }
        let read = self.usage_reader.read(data, &self.client.provider);
        self.usage_reader.report_to(self.reservation.as_mut());
        match read {
            Ok(()) if self.usage_reader.has_ended() => self.settle(Ending::Complete),
            Ok(()) => {}
            Err(error) => self.settle(Ending::Failed(error, FailureCause::Reported)),
        }
    }

    /// Settles the call. Only the first call has an effect.
    pub(crate) fn settle(&mut self, ending: Ending) {
        if std::mem::replace(&mut self.is_settled, true) {
            return;
        }
        let end = match ending {
            Ending::Complete => BodyEnd::Complete,
            Ending::Failed(..) | Ending::CallerGone => BodyEnd::Incomplete,
        };
        let provider = &self.client.provider;
        let read = self.usage_reader.finish(end, self.reservation.as_mut(), provider);
        let ending = match (ending, read) {
            (Ending::Complete, Err(error)) => {
                let is_reported = matches!(error, CallError::Provider(_));
                let cause =
                    if is_reported { FailureCause::Reported } else { FailureCause::EndedEarly };
                Ending::Failed(error, cause)
            }
            (ending, _) => ending,
        };
        let reservation = self.reservation.take();
        if let Some(measured) = reservation.as_ref().map(Reservation::usage) {
            let has_reported_usage = !measured.is_input_estimated || !measured.is_output_estimated;
            if has_reported_usage || self.usage_reader.uses_tokens() {
                self.context.set_usage(measured);
            } else {
                self.context.clear_sent_input();
            }
        }
        match ending {
            Ending::Complete => {
                self.context.set_outcome(self.outcome);
                if let Some(reservation) = reservation {
                    reservation.complete(None);
                }
            }
            Ending::Failed(error, cause) => {
                self.record_failure(&error, cause);
                if let Some(reservation) = reservation {
                    reservation.interrupted(&error, None);
                }
            }
            Ending::CallerGone => drop(reservation),
        }
    }

    fn record_failure(&self, error: &CallError, cause: FailureCause) {
        let class = error.class();
        self.context.response_failed(class);
        if cause == FailureCause::IdleTimeout {
            // Logged where the timeout fired.
            return;
        }
        let upstream_id = self.upstream_id.as_ref().and_then(|id| id.to_str().ok());
        let upstream_id = upstream_id.or_else(|| error.failure()?.request_id.as_deref());
        tracing::warn!(
            provider = %self.client.provider,
            class = class.name(),
            cause = cause.name(),
            request_id = %self.context.id,
            upstream_request_id = upstream_id.filter(|id| id.len() <= MAX_ID_LEN),
            "response failed after it had started"
        );
    }
}
