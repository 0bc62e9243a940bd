//! An answer that is read while it comes.

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
use super::body::Unread;
use super::head::Head;
use crate::call::{BoxError, Broken, CallError};

/// How long an answer that is over may take to close, whatever still comes. An end that is read
/// leaves the connection fit for the next call.
const CLOSING: Duration = Duration::from_secs(1);

/// A body, and the events that come out of it.
pub(super) struct Reading<B> {
    /// `None` when nothing more is to be read.
    body: Option<Pin<Box<B>>>,
    decoder: Decoder,
    /// Events that are not handed out yet, and what comes after them.
    ready: VecDeque<Event>,
    failed: Option<CallError>,
    /// Runs out when the provider is silent for too long, or slow to close what is over.
    patience: Pin<Box<Sleep>>,
    settings: Arc<Settings>,
    head: Head,
}

impl<B> Reading<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    pub(super) fn new(body: B, settings: Arc<Settings>, head: Head) -> Self {
        Self {
            body: Some(Box::pin(body)),
            decoder: Decoder::new(settings.target.dialect()),
            ready: VecDeque::new(),
            failed: None,
            patience: Box::pin(sleep(settings.timeout)),
            settings,
            head,
        }
    }

    /// Waits for the first words, or whatever else the answer has instead of them.
    pub(super) async fn begin(&mut self) -> Result<(), CallError> {
        while !self.ready.iter().any(has_begun) {
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            if self.body.is_none() {
                break;
            }
            poll_fn(|context| self.poll_more(context)).await;
        }
        Ok(())
    }

    /// Reads one more piece.
    fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(body) = &mut self.body else { return Poll::Ready(()) };
        let frame = body.as_mut().poll_frame(context);
        // What comes after the end does not put off the closing.
        let is_late = self.decoder.is_over() && self.patience.deadline() <= Instant::now();
        if is_late || frame.is_pending() && self.patience.as_mut().poll(context).is_ready() {
            self.finish(Err(Unread::Broken(Broken::TimedOut, None)));
            return Poll::Ready(());
        }
        let frame = ready!(frame);
        match frame {
            Some(Ok(frame)) => {
                let Ok(data) = frame.into_data() else { return Poll::Ready(()) };
                if self.decoder.is_over() {
                    return Poll::Ready(());
                }
                let mut events = Vec::new();
                let read = self.decoder.feed(&data, &mut events);
                self.take(read, events);
                let is_over = self.decoder.is_over();
                let span = if is_over { CLOSING } else { self.settings.timeout };
                self.patience.as_mut().reset(Instant::now() + span);
            }
            Some(Err(error)) => {
                self.finish(Err(Unread::Broken(Broken::Cut, Some(error.into()))));
            }
            None => self.finish(Ok(())),
        }
        Poll::Ready(())
    }

    /// The body is at its end, or will not get there. If the answer is over, that is all the same.
    fn finish(&mut self, ended: Result<(), Unread>) {
        self.body = None;
        if self.decoder.is_over() {
            return;
        }
        match ended {
            Ok(()) => {
                let mut events = Vec::new();
                let read = self.decoder.end(&mut events);
                self.take(read, events);
            }
            Err(unread) => self.failed = Some(self.settings.unread(unread)),
        }
    }

    fn take(&mut self, read: Result<(), DecodeError>, events: Vec<Event>) {
        self.ready.extend(events);
        if let Err(error) = read {
            self.body = None;
            self.failed = Some(self.settings.misread(error, &self.head));
        }
    }
}

/// Whether an answer has begun with this: counts may come before anything is said.
fn has_begun(event: &Event) -> bool {
    !matches!(event, Event::Usage(_))
}

impl<B> Stream for Reading<B>
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
            if let Some(error) = mem::take(&mut self.failed) {
                return Poll::Ready(Some(Err(error)));
            }
            if self.body.is_none() {
                return Poll::Ready(None);
            }
            ready!(self.poll_more(context));
        }
    }
}

impl Settings {
    /// A body that did not come to its end.
    pub(super) fn unread(&self, unread: Unread) -> CallError {
        match unread {
            Unread::Broken(broken, source) => self.broken(broken, source),
            Unread::TooLong(error) => {
                CallError::Unreadable { provider: self.provider.clone(), source: error.into() }
            }
        }
    }

    /// An answer that cannot be read, or that says that it failed.
    pub(super) fn misread(&self, error: DecodeError, head: &Head) -> CallError {
        match error {
            DecodeError::Failed(body) => {
                let (dialect, provider) = (self.target.dialect(), &self.provider);
                head.failed(Failure::in_stream(dialect, provider, &body, &self.rules, wall_now()))
            }
            DecodeError::Cut => self.broken(Broken::Cut, Some(DecodeError::Cut.into())),
            error => {
                CallError::Unreadable { provider: self.provider.clone(), source: error.into() }
            }
        }
    }
}
