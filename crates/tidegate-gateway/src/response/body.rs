//! The body of a response to a caller.
//!
//! A provider's body is forwarded as it arrives, after the bytes that were read ahead. Token usage
//! is read on the way. The call is settled when the body ends, fails, or is dropped because the
//! caller disconnected.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::error::BoxError;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tidegate_llm::{CallError, ConnectionError, ConnectionFailure};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::request::body::size_hint_with_prefix;
use crate::response::pending_call::{Ending, FailureCause, PendingCall};
use crate::response::provider_body::ProviderBody;
use crate::response::usage_stripper::UsageStripper;

/// The body of a response to a caller: a provider's response or an error.
pub struct ResponseBody(Kind);

enum Kind {
    Buffered(Option<Bytes>),
    Streamed(Box<StreamedResponse>),
}

/// Why a response body failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResponseBodyError {
    /// The provider closed the connection early.
    #[error("the provider closed the connection before the end of its response")]
    ConnectionLost(#[source] BoxError),
    /// The provider sent nothing for the idle timeout.
    #[error("the provider stopped sending: {0}")]
    TimedOut(#[source] ConnectionError),
}

/// A provider's response while it is forwarded.
struct StreamedResponse {
    /// Bytes that were read ahead.
    first: Option<Bytes>,
    rest: ProviderBody,
    /// Removes usage that the caller did not request.
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
                let mut stripped = first.map(|first| stripper.strip(&first)).unwrap_or_default();
                if rest.is_end_stream() {
                    stripped = [stripped, stripper.finish()].concat().into();
                }
                Some(stripped)
            }
            None => first,
        };
        let first = first.filter(|first| !first.is_empty());
        let (timeout, last_received, call) = (None, Instant::now(), Some(call));
        let mut response = StreamedResponse { first, rest, stripper, timeout, last_received, call };
        if let Some(call) = response.call.as_mut().filter(|call| call.has_ended()) {
            // The whole response was read ahead.
            call.settle(Ending::Complete);
        }
        if response.first.is_none() && response.rest.is_end_stream() {
            // The server does not poll a body that is already at its end.
            response.finish();
        }
        Self(Kind::Streamed(Box::new(response)))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ResponseBodyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> PolledFrame {
        match &mut self.0 {
            Kind::Buffered(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Streamed(response) => response.poll(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Buffered(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Kind::Streamed(response) => response.call.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Buffered(bytes) => {
                size_hint_with_prefix(bytes.as_ref(), &SizeHint::with_exact(0))
            }
            Kind::Streamed(response) if response.stripper.is_some() => SizeHint::default(),
            Kind::Streamed(response) => {
                size_hint_with_prefix(response.first.as_ref(), &response.rest.size_hint())
            }
        }
    }
}

type PolledFrame = Poll<Option<Result<Frame<Bytes>, ResponseBodyError>>>;

impl StreamedResponse {
    fn poll(&mut self, context: &mut Context<'_>) -> PolledFrame {
        if let Some(first) = self.first.take() {
            if self.rest.is_end_stream() {
                // The server may not poll again.
                self.finish();
            }
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        loop {
            let Some(call) = &mut self.call else { return Poll::Ready(None) };
            let frame = match Pin::new(&mut self.rest).poll_frame(context) {
                Poll::Pending => return self.poll_timeout(context),
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(Some(Err(error))) => {
                    self.abort(ConnectionFailure::Closed, None, FailureCause::Connection);
                    return Poll::Ready(Some(Err(ResponseBodyError::ConnectionLost(error))));
                }
                Poll::Ready(None) => {
                    self.finish();
                    return Poll::Ready(self.stripper_remainder().map(Ok));
                }
            };
            self.last_received = Instant::now();
            if let Some(data) = frame.data_ref() {
                call.read(data);
            }
            let is_last = self.rest.is_end_stream();
            if is_last {
                // The server may not poll again.
                self.finish();
            }
            if let Some(frame) = self.strip_frame(frame, is_last) {
                return Poll::Ready(Some(Ok(frame)));
            }
        }
    }

    /// Returns the frame to forward; `None` if everything is held back for now.
    fn strip_frame(&mut self, frame: Frame<Bytes>, is_last: bool) -> Option<Frame<Bytes>> {
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

    /// Returns what the stripper still holds at the end of the stream.
    fn stripper_remainder(&mut self) -> Option<Frame<Bytes>> {
        let held = self.stripper.as_mut().map(UsageStripper::finish)?;
        (!held.is_empty()).then(|| Frame::data(held))
    }

    /// Polls the idle timeout. The timer is polled only while nothing arrives, and reset only when
    /// it fires.
    fn poll_timeout(&mut self, context: &mut Context<'_>) -> PolledFrame {
        let Some(call) = &self.call else { return Poll::Ready(None) };
        let idle = call.client.destination.timeouts.idle;
        let deadline = self.last_received + idle;
        let timeout = self.timeout.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        while timeout.as_mut().poll(context).is_ready() {
            if Instant::now() >= deadline {
                if call.has_ended() {
                    // The response is complete; the provider just did not close the connection.
                    self.finish();
                    return Poll::Ready(None);
                }
                let error = || ConnectionError::Idle(idle);
                tracing::warn!(
                    provider = %call.client.provider,
                    timeout = "idle",
                    after = ?idle,
                    "provider stopped sending; response aborted"
                );
                self.abort(
                    ConnectionFailure::TimedOut,
                    Some(error().into()),
                    FailureCause::IdleTimeout,
                );
                return Poll::Ready(Some(Err(ResponseBodyError::TimedOut(error()))));
            }
            timeout.as_mut().reset(deadline);
        }
        Poll::Pending
    }

    fn finish(&mut self) {
        if let Some(mut call) = self.call.take() {
            call.settle(Ending::Complete);
        }
    }

    /// Settles the call as failed and closes the connection to the provider.
    fn abort(&mut self, kind: ConnectionFailure, source: Option<BoxError>, cause: FailureCause) {
        self.rest = ProviderBody::default();
        if let Some(mut call) = self.call.take() {
            let provider = call.client.provider.clone();
            let error = CallError::Connection { provider, kind, source };
            call.settle(Ending::Failed(error, cause));
        }
    }
}

impl Drop for StreamedResponse {
    /// Settles the call if the caller disconnected.
    fn drop(&mut self) {
        if let Some(mut call) = self.call.take() {
            call.settle(Ending::CallerGone);
        }
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").field("size", &self.size_hint()).finish()
    }
}
