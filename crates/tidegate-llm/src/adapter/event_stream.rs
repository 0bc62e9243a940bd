//! A streamed response, decoded as it arrives.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use http_body::Body;
use tidegate::clock::wall_now;
use tidegate_providers::response::{DecodeError, Decoder};
use tidegate_providers::{Event, Failure};
use tokio::time::{Instant, Sleep, sleep};

use super::Settings;
use super::body::BodyError;
use super::head::Head;
use crate::call::{BoxError, CallError, ConnectionFailure};

/// Maximum time from the end marker of a stream to the end of its body. Reading the end of the body
/// makes the connection reusable.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Stream of the events in a body.
pub(super) struct EventStream<B> {
    /// `None` when nothing more is to be read.
    body: Option<Pin<Box<B>>>,
    decoder: Decoder,
    /// Events not returned yet.
    ready: VecDeque<Event>,
    /// Error to return after them.
    error: Option<CallError>,
    /// Expires when the provider sends nothing for too long, or does not close a finished stream.
    idle_timer: Pin<Box<Sleep>>,
    settings: Arc<Settings>,
    head: Head,
}

impl<B> EventStream<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    pub(super) fn new(body: B, settings: Arc<Settings>, head: Head) -> Self {
        Self {
            body: Some(Box::pin(body)),
            decoder: Decoder::new(settings.target.dialect()),
            ready: VecDeque::new(),
            error: None,
            idle_timer: Box::pin(sleep(settings.timeout)),
            settings,
            head,
        }
    }

    /// Waits until the response has content, has ended or has failed.
    pub(super) async fn wait_for_content(&mut self) -> Result<(), CallError> {
        while !self.ready.iter().any(is_content) {
            if let Some(error) = self.error.take() {
                return Err(error);
            }
            if self.body.is_none() {
                break;
            }
            poll_fn(|context| self.poll_frame(context)).await;
        }
        Ok(())
    }

    /// Reads one more frame of the body.
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(body) = &mut self.body else { return Poll::Ready(()) };
        let frame = body.as_mut().poll_frame(context);
        // Data after the end marker does not extend the timeout.
        let is_late = self.decoder.is_finished() && self.idle_timer.deadline() <= Instant::now();
        if is_late || frame.is_pending() && self.idle_timer.as_mut().poll(context).is_ready() {
            self.finish(Err(BodyError::Connection(ConnectionFailure::TimedOut, None)));
            return Poll::Ready(());
        }
        let frame = ready!(frame);
        match frame {
            Some(Ok(frame)) => {
                let Ok(data) = frame.into_data() else { return Poll::Ready(()) };
                if self.decoder.is_finished() {
                    return Poll::Ready(());
                }
                let mut events = Vec::new();
                let read = self.decoder.feed(&data, &mut events);
                self.push(read, events);
                let is_finished = self.decoder.is_finished();
                let span = if is_finished { CLOSE_TIMEOUT } else { self.settings.timeout };
                self.idle_timer.as_mut().reset(Instant::now() + span);
            }
            Some(Err(error)) => {
                self.finish(Err(BodyError::Connection(
                    ConnectionFailure::Closed,
                    Some(error.into()),
                )));
            }
            None => self.finish(Ok(())),
        }
        Poll::Ready(())
    }

    /// Handles the end or failure of the body. A failure after the end marker is ignored.
    fn finish(&mut self, ended: Result<(), BodyError>) {
        self.body = None;
        if self.decoder.is_finished() {
            return;
        }
        match ended {
            Ok(()) => {
                let mut events = Vec::new();
                let read = self.decoder.end(&mut events);
                self.push(read, events);
            }
            Err(error) => self.error = Some(self.settings.body_error(error)),
        }
    }

    fn push(&mut self, read: Result<(), DecodeError>, events: Vec<Event>) {
        self.ready.extend(events);
        if let Err(error) = read {
            self.body = None;
            self.error = Some(self.settings.decode_error(error, &self.head));
        }
    }
}

/// Returns whether an event is content: usage may precede it.
fn is_content(event: &Event) -> bool {
    !matches!(event, Event::Usage(_))
}

impl<B> Stream for EventStream<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Item = Result<Event, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            if let Some(error) = mem::take(&mut self.error) {
                return Poll::Ready(Some(Err(error)));
            }
            if self.body.is_none() {
                return Poll::Ready(None);
            }
            ready!(self.poll_frame(context));
        }
    }
}

impl Settings {
    /// Converts the error of a body that could not be read to its end.
    pub(super) fn body_error(&self, error: BodyError) -> CallError {
        match error {
            BodyError::Connection(kind, source) => self.connection_error(kind, source),
            BodyError::TooLong(error) => {
                CallError::InvalidResponse { provider: self.provider.clone(), source: error.into() }
            }
        }
    }

    /// Converts a decoding error, or an error that the provider reports in the response.
    pub(super) fn decode_error(&self, error: DecodeError, head: &Head) -> CallError {
        match error {
            DecodeError::ProviderError(body) => {
                let (dialect, provider) = (self.target.dialect(), &self.provider);
                head.failed(Failure::in_stream(dialect, provider, &body, &self.rules, wall_now()))
            }
            DecodeError::Truncated => self
                .connection_error(ConnectionFailure::Closed, Some(DecodeError::Truncated.into())),
            error => {
                CallError::InvalidResponse { provider: self.provider.clone(), source: error.into() }
            }
        }
    }
}
