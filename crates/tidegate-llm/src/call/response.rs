//! Responses to calls, as a stream of events.
//!
//! A response holds the permit of its call until its end. Dropping it early settles the permit with
//! the usage so far.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use tidegate_providers::{Event, Provider, Reply, ReportedLimits, Usage};

use super::error::CallError;

/// Events as they arrive.
type Events = Pin<Box<dyn Stream<Item = Result<Event, CallError>> + Send>>;

/// The permit of a call whose response has begun. Dropping it settles it with the usage so far.
pub(crate) trait ResponsePermit: Send {
    /// Records an event of the response.
    fn record_event(&mut self, event: &Event);

    /// Settles a complete response, with its usage if the provider reported it.
    fn complete(self: Box<Self>, usage: Option<Usage>);

    /// Settles an interrupted response, with its usage if the provider reported it.
    fn interrupted(self: Box<Self>, error: &CallError, usage: Option<Usage>);
}

/// Response to a call. Read it event by event, or all of it with
/// [`into_reply`](Self::into_reply).
#[must_use = "dropping a response aborts it"]
pub struct CallResponse {
    provider: Provider,
    reported_limits: ReportedLimits,
    request_id: Option<String>,
    /// Events received already.
    ready: VecDeque<Event>,
    /// Events still to come.
    events: Option<Events>,
    permits: Vec<Box<dyn ResponsePermit>>,
    usage: Option<Usage>,
}

impl CallResponse {
    /// Creates a response from a complete reply.
    pub fn complete(provider: Provider, reply: Reply) -> Self {
        let calls = reply.calls.into_iter().enumerate();
        let texts =
            [(reply.reasoning, Event::Reasoning as fn(String) -> Event), (reply.text, Event::Text)];
        let texts = texts.into_iter().filter(|(text, _)| !text.is_empty());
        let ready = texts
            .map(|(text, event)| event(text))
            .chain(calls.map(|(index, part)| Event::ToolCall { index, part }))
            .chain(reply.usage.map(Event::Usage))
            .chain(reply.stop.map(Event::Stop))
            .collect();
        Self { ready, usage: reply.usage, ..Self::empty(provider) }
    }

    /// Creates a response from a stream of events.
    pub fn streamed(provider: Provider, events: Events) -> Self {
        Self { events: Some(events), ..Self::empty(provider) }
    }

    fn empty(provider: Provider) -> Self {
        Self {
            provider,
            reported_limits: ReportedLimits::new(),
            request_id: None,
            ready: VecDeque::new(),
            events: None,
            permits: Vec::new(),
            usage: None,
        }
    }

    /// Sets the limits and the request id that the head of the response reported.
    pub fn with_head(mut self, reported: ReportedLimits, request_id: Option<String>) -> Self {
        (self.reported_limits, self.request_id) = (reported, request_id);
        self
    }

    /// Returns the provider that responded.
    #[must_use]
    pub const fn provider(&self) -> &Provider {
        &self.provider
    }

    /// Returns the provider's id of the request, for support cases.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }

    /// Returns the next event; `None` at the end.
    ///
    /// # Errors
    /// Fails if the provider fails midway, with the same error as for a failure at the start.
    pub async fn next(&mut self) -> Option<Result<Event, CallError>> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    /// Reads the whole response.
    ///
    /// # Errors
    /// Fails if the provider fails midway.
    pub async fn into_reply(mut self) -> Result<Reply, CallError> {
        let mut reply = Reply::default();
        while let Some(event) = self.next().await {
            reply.add(event?);
        }
        Ok(reply)
    }
}

impl Stream for CallResponse {
    type Item = Result<Event, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(event) = self.ready.pop_front() {
            return Poll::Ready(Some(Ok(event)));
        }
        let Some(events) = &mut self.events else { return Poll::Ready(None) };
        let next = match events.as_mut().poll_next(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(next) => next,
        };
        match &next {
            Some(Ok(event)) => self.record(event),
            Some(Err(error)) => {
                self.events = None;
                let usage = self.usage;
                self.permits.drain(..).for_each(|permit| permit.interrupted(error, usage));
            }
            None => {
                self.events = None;
                self.settle();
            }
        }
        Poll::Ready(next)
    }
}

impl CallResponse {
    fn record(&mut self, event: &Event) {
        if let Event::Usage(usage) = event {
            self.usage = Some(*usage);
        }
        self.permits.iter_mut().for_each(|permit| permit.record_event(event));
    }

    fn settle(&mut self) {
        let usage = self.usage;
        self.permits.drain(..).for_each(|permit| permit.complete(usage));
    }
}

impl CallResponse {
    /// Returns the limits that the head of the response reported.
    pub(crate) const fn reported_limits(&self) -> &ReportedLimits {
        &self.reported_limits
    }

    /// Attaches a permit of the call, which is settled with the real usage.
    pub(crate) fn keep(&mut self, mut permit: impl ResponsePermit + 'static) {
        // The provider charges for events received already, even if the caller never reads them.
        self.ready.iter().for_each(|event| permit.record_event(event));
        self.permits.push(Box::new(permit));
        if self.events.is_none() {
            self.settle();
        }
    }
}

impl fmt::Debug for CallResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallResponse")
            .field("provider", &self.provider)
            .field("reported_limits", &self.reported_limits)
            .field("usage", &self.usage)
            .finish_non_exhaustive()
    }
}
