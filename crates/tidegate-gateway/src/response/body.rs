//! The body of a response to a caller.
//!
//! The body of an answer passes as it comes, after the bytes that were read ahead. Token usage is
//! read from it on the way. The call is settled when the body ends, when it breaks off, and when it
//! is dropped because the caller has gone.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::error::BoxError;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tidegate_llm::{Broken, CallError, ConnectionError};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::request::body::size_with;
use crate::response::pending_call::{Cause, Ending, PendingCall};
use crate::response::provider_body::ProviderBody;
use crate::response::usage_stripper::UsageStripper;

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
    TimedOut(#[source] ConnectionError),
}

/// The answer of a provider while it passes.
struct StreamedAnswer {
    /// What was read ahead.
    first: Option<Bytes>,
    rest: ProviderBody,
    /// Takes out the usage that the caller did not ask for.
    stripper: Option<UsageStripper>,
    timeout: Option<Pin<Box<Sleep>>>,
    last_received: Instant,
    /// `None` once the call is settled.
    call: Option<PendingCall>,
}

impl ResponseBody {
    pub(crate) const fn buffered(bytes: Bytes) -> Self {
        Self(Kind::Buffered(Some(bytes)))
    }

    pub(crate) fn streamed(
        first: Option<Bytes>,
        rest: ProviderBody,
        mut stripper: Option<UsageStripper>,
        call: PendingCall,
    ) -> Self {
        let first = match &mut stripper {
            Some(stripper) => {
                let mut passed = first.map(|first| stripper.strip(&first)).unwrap_or_default();
                if rest.is_end_stream() {
                    passed = [passed, stripper.finish()].concat().into();
                }
                Some(passed)
            }
            None => first,
        };
        let first = first.filter(|first| !first.is_empty());
        let (timeout, last_received, call) = (None, Instant::now(), Some(call));
        let mut answer = StreamedAnswer { first, rest, stripper, timeout, last_received, call };
        if let Some(call) = answer.call.as_mut().filter(|call| call.is_over()) {
            // All of it was read ahead.
            call.settle(Ending::Complete);
        }
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
            Kind::Streamed(answer) if answer.stripper.is_some() => SizeHint::default(),
            Kind::Streamed(answer) => size_with(answer.first.as_ref(), &answer.rest.size_hint()),
        }
    }
}

type PolledFrame = Poll<Option<Result<Frame<Bytes>, ResponseBodyError>>>;

impl StreamedAnswer {
    fn poll(&mut self, context: &mut Context<'_>) -> PolledFrame {
        if let Some(first) = self.first.take() {
            if self.rest.is_end_stream() {
                // The server may not poll again.
                self.end();
            }
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        loop {
            let Some(call) = &mut self.call else { return Poll::Ready(None) };
            let frame = match Pin::new(&mut self.rest).poll_frame(context) {
                Poll::Pending => return self.poll_timeout(context),
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(Some(Err(error))) => {
                    self.break_off(Broken::Cut, None, Cause::Connection);
                    return Poll::Ready(Some(Err(ResponseBodyError::Cut(error))));
                }
                Poll::Ready(None) => {
                    self.end();
                    return Poll::Ready(self.held_back().map(Ok));
                }
            };
            self.last_received = Instant::now();
            if let Some(data) = frame.data_ref() {
                call.read(data);
            }
            let is_last = self.rest.is_end_stream();
            if is_last {
                // The server may not poll again.
                self.end();
            }
            if let Some(frame) = self.passed(frame, is_last) {
                return Poll::Ready(Some(Ok(frame)));
            }
        }
    }

    /// What the caller gets of a frame; `None` if that is nothing yet.
    fn passed(&mut self, frame: Frame<Bytes>, is_last: bool) -> Option<Frame<Bytes>> {
        let Some(stripper) = &mut self.stripper else { return Some(frame) };
        let data = match frame.into_data() {
            Ok(data) => stripper.strip(&data),
            Err(trailers) => return Some(trailers),
        };
        let data = match is_last {
            true => [data, stripper.finish()].concat().into(),
            false => data,
        };
        (!data.is_empty()).then(|| Frame::data(data))
    }

    /// What was held back of a stream that has ended.
    fn held_back(&mut self) -> Option<Frame<Bytes>> {
        let held = self.stripper.as_mut().map(UsageStripper::finish)?;
        (!held.is_empty()).then(|| Frame::data(held))
    }

    /// The timer is polled only while nothing arrives, and reset only when it fires.
    fn poll_timeout(&mut self, context: &mut Context<'_>) -> PolledFrame {
        let Some(call) = &self.call else { return Poll::Ready(None) };
        let idle = call.client.base.timeouts.idle;
        let end = self.last_received + idle;
        let timeout = self.timeout.get_or_insert_with(|| Box::pin(sleep_until(end)));
        while timeout.as_mut().poll(context).is_ready() {
            if Instant::now() >= end {
                if call.is_over() {
                    // Nothing is missing; the provider has not closed the connection.
                    self.end();
                    return Poll::Ready(None);
                }
                let error = || ConnectionError::Idle(idle);
                tracing::warn!(
                    provider = %call.client.provider,
                    timeout = "idle",
                    after = ?idle,
                    "provider stopped sending; answer broken off"
                );
                self.break_off(Broken::TimedOut, Some(error().into()), Cause::IdleTimeout);
                return Poll::Ready(Some(Err(ResponseBodyError::TimedOut(error()))));
            }
            timeout.as_mut().reset(end);
        }
        Poll::Pending
    }

    fn end(&mut self) {
        if let Some(mut call) = self.call.take() {
            call.settle(Ending::Complete);
        }
    }

    /// Settles the call, and closes the connection to the provider.
    fn break_off(&mut self, broken: Broken, source: Option<BoxError>, cause: Cause) {
        self.rest = ProviderBody::default();
        if let Some(mut call) = self.call.take() {
            let provider = call.client.provider.clone();
            let error = CallError::Connection { provider, broken, source };
            call.settle(Ending::Failed(error, cause));
        }
    }
}

impl Drop for StreamedAnswer {
    /// The caller has gone.
    fn drop(&mut self) {
        if let Some(mut call) = self.call.take() {
            call.settle(Ending::Left);
        }
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").field("size", &self.size_hint()).finish()
    }
}
