//! The body of a response to a caller.
//!
//! The body of an answer passes as it comes, after the bytes that were read ahead. Token usage is
//! read from it on the way. The call is settled when the body ends, when it breaks off, and when it
//! is dropped because the caller has gone.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tidegate_llm::rate_limit::Reservation;
use tidegate_llm::{BoxError, Broken, CallError, TimeoutError};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::call_observer::Outcome;
use crate::request::body::{IncomingBody, size_with};
use crate::response::usage_reader::UsageReader;
use crate::state::call_context::CallContext;
use crate::upstream::attempt::UpstreamClient;

/// The body of a response to a caller: the answer of a provider, or an error.
pub struct ResponseBody(Kind);

enum Kind {
    Buffered(Option<Bytes>),
    Streamed(Box<StreamedAnswer>),
}

/// Why an answer breaks off.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResponseBodyError {
    /// The provider broke the connection.
    #[error("the provider broke off its answer")]
    Cut(#[source] BoxError),
    /// The provider sent nothing for as long as the idle time-out.
    #[error("the provider stopped sending: {0}")]
    TimedOut(#[source] TimeoutError),
}

/// The answer of a provider while it passes.
struct StreamedAnswer {
    /// What was read ahead.
    first: Option<Bytes>,
    rest: IncomingBody,
    timeout: Option<Pin<Box<Sleep>>>,
    last_received: Instant,
    /// `None` once the call is settled.
    call: Option<PendingCall>,
}

/// A call whose answer has not ended.
pub(crate) struct PendingCall {
    pub(crate) usage_reader: UsageReader,
    pub(crate) reservation: Option<Reservation>,
    pub(crate) client: Arc<UpstreamClient>,
    pub(crate) context: Arc<CallContext>,
    /// The outcome of the call if the answer is complete.
    pub(crate) outcome: Outcome,
}

impl ResponseBody {
    pub(crate) const fn buffered(bytes: Bytes) -> Self {
        Self(Kind::Buffered(Some(bytes)))
    }

    pub(crate) fn streamed(first: Option<Bytes>, rest: IncomingBody, call: PendingCall) -> Self {
        let (timeout, last_received) = (None, Instant::now());
        let mut answer = StreamedAnswer { first, rest, timeout, last_received, call: Some(call) };
        if answer.first.is_none() && answer.rest.is_end_stream() {
            // A body that is at its end is not polled.
            answer.end();
        }
        Self(Kind::Streamed(Box::new(answer)))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ResponseBodyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> PolledFrame {
        match &mut self.0 {
            Kind::Buffered(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Streamed(answer) => answer.poll(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Buffered(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Kind::Streamed(answer) => answer.call.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Buffered(bytes) => size_with(bytes.as_ref(), &SizeHint::with_exact(0)),
            Kind::Streamed(answer) => size_with(answer.first.as_ref(), &answer.rest.size_hint()),
        }
    }
}

type PolledFrame = Poll<Option<Result<Frame<Bytes>, ResponseBodyError>>>;

impl StreamedAnswer {
    fn poll(&mut self, context: &mut Context<'_>) -> PolledFrame {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let Some(call) = &mut self.call else { return Poll::Ready(None) };
        match Pin::new(&mut self.rest).poll_frame(context) {
            Poll::Pending => self.poll_timeout(context),
            Poll::Ready(Some(Ok(frame))) => {
                self.last_received = Instant::now();
                if let Some(data) = frame.data_ref() {
                    call.read(data);
                }
                if self.rest.is_end_stream() {
                    // The server may not poll again.
                    self.end();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                self.break_off(Broken::Cut, None);
                Poll::Ready(Some(Err(ResponseBodyError::Cut(error))))
            }
            Poll::Ready(None) => {
                self.end();
                Poll::Ready(None)
            }
        }
    }

    /// The timer is polled only while nothing arrives, and reset only when it fires.
    fn poll_timeout(&mut self, context: &mut Context<'_>) -> PolledFrame {
        let Some(call) = &self.call else { return Poll::Ready(None) };
        let idle = call.client.base.timeouts.idle;
        let end = self.last_received + idle;
        let timeout = self.timeout.get_or_insert_with(|| Box::pin(sleep_until(end)));
        while timeout.as_mut().poll(context).is_ready() {
            if Instant::now() >= end {
                if call.usage_reader.is_over() {
                    // Nothing is missing; the provider has not closed the connection.
                    self.end();
                    return Poll::Ready(None);
                }
                let error = TimeoutError::Idle(idle);
                tracing::warn!(
                    provider = %call.client.provider,
                    timeout = error.name(),
                    after = ?idle,
                    "provider stopped sending; answer broken off"
                );
                self.break_off(Broken::TimedOut, Some(error.into()));
                return Poll::Ready(Some(Err(ResponseBodyError::TimedOut(error))));
            }
            timeout.as_mut().reset(end);
        }
        Poll::Pending
    }

    fn end(&mut self) {
        if let Some(call) = self.call.take() {
            call.end();
        }
    }

    /// Settles the call, and closes the connection to the provider.
    fn break_off(&mut self, broken: Broken, source: Option<BoxError>) {
        self.rest = IncomingBody::default();
        if let Some(call) = self.call.take() {
            call.break_off(broken, source);
        }
    }
}

impl PendingCall {
    /// Reads a part of the body.
    fn read(&mut self, data: &Bytes) {
        let read = self.usage_reader.read(data, &self.client.provider);
        self.usage_reader.report_to(self.reservation.as_mut());
        self.note_usage();
        match read {
            Ok(()) if self.usage_reader.is_over() => {
                // Callers close the connection after the last event, before the body has ended.
                self.complete();
            }
            Ok(()) => {}
            Err(error) => {
                if let Some(reservation) = self.reservation.take() {
                    reservation.broke_off(&error, self.usage_reader.usage());
                }
                self.outcome = Outcome::Broken;
            }
        }
    }

    fn note_usage(&self) {
        if let Some(usage) = self.usage_reader.usage() {
            self.context.set_usage(usage);
        }
    }

    fn complete(&mut self) {
        if let Some(reservation) = self.reservation.take() {
            reservation.complete(self.usage_reader.usage());
        }
        self.context.set_outcome(self.outcome);
    }

    fn end(mut self) {
        self.usage_reader.end(self.reservation.as_mut());
        self.note_usage();
        self.complete();
    }

    fn break_off(self, broken: Broken, source: Option<BoxError>) {
        self.context.set_outcome(Outcome::Broken);
        if let Some(reservation) = self.reservation {
            let provider = self.client.provider.clone();
            let error = CallError::Connection { provider, broken, source };
            reservation.broke_off(&error, self.usage_reader.usage());
        }
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").field("size", &self.size_hint()).finish()
    }
}
