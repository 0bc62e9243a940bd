//! A call whose answer has begun: settled once, when the answer ends, fails or loses its caller.
//!
//! A failure after the head is one that no retry and no fallback can hide. It is classified like any
//! other, counted, and logged in one line without a word of the answer.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use tidegate_llm::CallError;
use tidegate_llm::rate_limit::Reservation;

use crate::call_observer::Outcome;
use crate::response::usage_reader::{BodyEnd, UsageReader};
use crate::state::call_context::CallContext;
use crate::upstream::attempt::UpstreamClient;

/// The longest id of a provider that is logged.
const LONGEST_ID: usize = 128;

/// A call whose answer has not ended.
pub(crate) struct PendingCall {
    usage_reader: UsageReader,
    reservation: Option<Reservation>,
    pub(crate) client: Arc<UpstreamClient>,
    pub(crate) context: Arc<CallContext>,
    /// The outcome of the call if the answer is complete.
    outcome: Outcome,
    /// What the provider calls the request.
    upstream_id: Option<HeaderValue>,
    is_settled: bool,
}

/// How an answer ends.
#[derive(Debug)]
pub(crate) enum Ending {
    Complete,
    Failed(CallError, Cause),
    /// The caller has gone.
    Left,
}

/// What ended an answer before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The provider reports an error in it.
    Reported,
    /// It ends without saying that it is over.
    EndedEarly,
    /// The connection broke.
    Connection,
    /// The provider stopped sending.
    IdleTimeout,
}

impl Cause {
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

    /// Keeps what the call was granted, until the answer ends.
    pub(crate) fn keep(&mut self, mut reservation: Reservation) {
        self.usage_reader.report_to(Some(&mut reservation));
        self.reservation = Some(reservation);
    }

    /// Whether the answer has announced its end. Callers close the connection then, before the body
    /// has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.is_settled || self.usage_reader.is_over()
    }

    /// Reads a part of the body.
    pub(crate) fn read(&mut self, data: &Bytes) {
        if self.is_settled {
            return;
        }
        let read = self.usage_reader.read(data, &self.client.provider);
        self.usage_reader.report_to(self.reservation.as_mut());
        match read {
            Ok(()) if self.usage_reader.is_over() => self.settle(Ending::Complete),
            Ok(()) => {}
            Err(error) => self.settle(Ending::Failed(error, Cause::Reported)),
        }
    }

    /// Settles the call. Only the first ending counts.
    pub(crate) fn settle(&mut self, ending: Ending) {
        if std::mem::replace(&mut self.is_settled, true) {
            return;
        }
        let end = match ending {
            Ending::Complete => BodyEnd::Complete,
            Ending::Failed(..) | Ending::Left => BodyEnd::Incomplete,
        };
        let provider = &self.client.provider;
        let read = self.usage_reader.end(end, self.reservation.as_mut(), provider);
        let ending = match (ending, read) {
            (Ending::Complete, Err(error)) => {
                let is_reported = matches!(error, CallError::Provider(_));
                let cause = if is_reported { Cause::Reported } else { Cause::EndedEarly };
                Ending::Failed(error, cause)
            }
            (ending, _) => ending,
        };
        let reservation = self.reservation.take();
        if let Some(measured) = reservation.as_ref().map(Reservation::measured) {
            let is_reported = !measured.is_input_estimated || !measured.is_output_estimated;
            if is_reported || self.usage_reader.uses_tokens() {
                self.context.set_usage(measured);
            } else {
                self.context.no_usage();
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
                self.failed(&error, cause);
                if let Some(reservation) = reservation {
                    reservation.broke_off(&error, None);
                }
            }
            Ending::Left => drop(reservation),
        }
    }

    fn failed(&self, error: &CallError, cause: Cause) {
        let class = error.class();
        self.context.answer_failed(class);
        if cause == Cause::IdleTimeout {
            // Logged where the time ran out.
            return;
        }
        let told = self.upstream_id.as_ref().and_then(|id| id.to_str().ok());
        let told = told.or_else(|| error.failure()?.request_id.as_deref());
        tracing::warn!(
            provider = %self.client.provider,
            class = class.name(),
            cause = cause.name(),
            request_id = %self.context.id,
            upstream_request_id = told.filter(|id| id.len() <= LONGEST_ID),
            "answer failed after it had begun"
        );
    }
}
