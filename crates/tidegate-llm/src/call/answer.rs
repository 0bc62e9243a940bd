//! Answers: a stream of events, or all of it at once.
//!
//! An answer holds the permit of its call to its end. Dropping it in the middle gives the permit
//! back, charged with what has come until then.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use tidegate_providers::{Event, Provider, Reply, ReportedLimits, Usage};

use super::error::CallError;
use crate::rate_limit::Reservation;

/// Events as they come.
type Events = Pin<Box<dyn Stream<Item = Result<Event, CallError>> + Send>>;

/// An answer: read it event by event, or [`whole`](Self::whole).
#[must_use = "an answer that is not read is broken off"]
pub struct Answer {
    provider: Provider,
    told: ReportedLimits,
    request_id: Option<String>,
    /// What is known already.
    ready: VecDeque<Event>,
    /// What is still to come.
    events: Option<Events>,
    reservation: Option<Reservation>,
    usage: Option<Usage>,
}

impl Answer {
    /// An answer that is all here.
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

    /// An answer that comes piece by piece.
    pub fn streamed(provider: Provider, events: Events) -> Self {
        Self { events: Some(events), ..Self::empty(provider) }
    }

    fn empty(provider: Provider) -> Self {
        Self {
            provider,
            told: ReportedLimits::nothing(),
            request_id: None,
            ready: VecDeque::new(),
            events: None,
            reservation: None,
            usage: None,
        }
    }

    /// With what its head told about limits, and the provider's name for the request.
    pub fn told(mut self, told: ReportedLimits, request_id: Option<String>) -> Self {
        (self.told, self.request_id) = (told, request_id);
        self
    }

    /// Who answers.
    #[must_use]
    pub const fn provider(&self) -> &Provider {
        &self.provider
    }

    /// What the provider calls this request, for its support.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }

    /// The next event; `None` at the end.
    ///
    /// # Errors
    /// When the provider fails in the middle, typed as if it had failed at the start.
    pub async fn next(&mut self) -> Option<Result<Event, CallError>> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    /// All of it.
    ///
    /// # Errors
    /// When the provider fails in the middle.
    pub async fn whole(mut self) -> Result<Reply, CallError> {
        let mut reply = Reply::default();
        while let Some(event) = self.next().await {
            reply.add(event?);
        }
        Ok(reply)
    }
}

impl Stream for Answer {
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
            Some(Ok(event)) => self.note(event),
            Some(Err(error)) => {
                self.events = None;
                if let Some(reservation) = self.reservation.take() {
                    reservation.broke_off(error, self.usage);
                }
            }
            None => {
                self.events = None;
                self.settle();
            }
        }
        Poll::Ready(next)
    }
}

impl Answer {
    fn note(&mut self, event: &Event) {
        if let Event::Usage(usage) = event {
            self.usage = Some(*usage);
        }
        if let Some(reservation) = &mut self.reservation {
            reservation.came(event);
        }
    }

    fn settle(&mut self) {
        if let Some(reservation) = self.reservation.take() {
            reservation.complete(self.usage);
        }
    }
}

impl Answer {
    /// What its head told about limits.
    pub(crate) const fn reported_limits(&self) -> &ReportedLimits {
        &self.told
    }

    /// Takes the reservation of the call, to be settled with what the call turns out to use.
    pub(crate) fn keep(&mut self, mut reservation: Reservation) {
        // What is here already was made, whether anybody reads it or not.
        self.ready.iter().for_each(|event| reservation.came(event));
        self.reservation = Some(reservation);
        if self.events.is_none() {
            self.settle();
        }
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("provider", &self.provider)
            .field("told", &self.told)
            .field("usage", &self.usage)
            .finish_non_exhaustive()
    }
}
