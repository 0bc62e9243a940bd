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

use crate::chat::ToolCall;
use crate::error::CallError;
use crate::hidden::Hidden;
use crate::provider::Provider;
use crate::rate_limit::Reservation;
use crate::told::Told;
use crate::usage::Usage;

/// A piece of an answer. `Debug` shows no text of it.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// Words.
    Text(String),
    /// Words of reasoning, where the provider shows them.
    Reasoning(String),
    /// A part of a call that the model wants made: parts with the same index belong together.
    ToolCall {
        /// Which of the calls of this answer.
        index: usize,
        /// What came of it; texts are to be put together.
        part: ToolCall,
    },
    /// What the call has used so far. A later one replaces an earlier one.
    Usage(Usage),
    /// Why the answer ends.
    Stop(StopReason),
}

/// Why an answer ends.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// It is complete.
    End,
    /// It is as long as was allowed.
    Length,
    /// The model wants tools called.
    Tools,
    /// It was held back by a filter.
    Filtered,
    /// Another one, in the provider's words.
    Other(String),
}

/// A whole answer. `Debug` shows no text of it.
#[derive(Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Reply {
    /// The words.
    pub text: String,
    /// Words of reasoning, where the provider shows them.
    pub reasoning: String,
    /// The calls that the model wants made.
    pub calls: Vec<ToolCall>,
    /// Why it ended, if the provider said.
    pub stop: Option<StopReason>,
    /// What it used, if the provider said.
    pub usage: Option<Usage>,
}

impl Reply {
    /// Puts an event to what there is.
    pub fn add(&mut self, event: Event) {
        match event {
            Event::Text(text) => self.text.push_str(&text),
            Event::Reasoning(text) => self.reasoning.push_str(&text),
            Event::ToolCall { index, part } => {
                let calls = self.calls.len().max(index.saturating_add(1).min(MAX_CALLS));
                self.calls.resize_with(calls, ToolCall::default);
                let Some(call) = self.calls.get_mut(index) else { return };
                call.id.push_str(&part.id);
                call.name.push_str(&part.name);
                call.arguments.push_str(&part.arguments);
                call.signature = part.signature.or(call.signature.take());
            }
            Event::Usage(usage) => self.usage = Some(usage),
            Event::Stop(stop) => self.stop = Some(stop),
        }
    }
}

/// No answer has more calls than this; those beyond are not followed.
pub(crate) const MAX_CALLS: usize = 1_024;

/// Events as they come.
pub type Events = Pin<Box<dyn Stream<Item = Result<Event, CallError>> + Send>>;

/// An answer: read it event by event, or [`whole`](Self::whole).
#[must_use = "an answer that is not read is broken off"]
pub struct Answer {
    provider: Provider,
    told: Told,
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
            told: Told::nothing(),
            request_id: None,
            ready: VecDeque::new(),
            events: None,
            reservation: None,
            usage: None,
        }
    }

    /// With what its head told about limits, and the provider's name for the request.
    pub fn told(mut self, told: Told, request_id: Option<String>) -> Self {
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

/// An answer of a call that holds a permit.
pub trait Answered {
    /// What its head told about limits.
    fn told(&self) -> &Told;

    /// Takes the reservation of the call, to be settled with what the call turns out to use.
    fn keep(&mut self, reservation: Reservation);
}

impl Answered for Answer {
    fn told(&self) -> &Told {
        &self.told
    }

    fn keep(&mut self, mut reservation: Reservation) {
        // What is here already was made, whether anybody reads it or not.
        self.ready.iter().for_each(|event| reservation.came(event));
        self.reservation = Some(reservation);
        if self.events.is_none() {
            self.settle();
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.debug_tuple("Text").field(&Hidden(text)).finish(),
            Self::Reasoning(text) => f.debug_tuple("Reasoning").field(&Hidden(text)).finish(),
            Self::ToolCall { index, part } => {
                f.debug_struct("ToolCall").field("index", index).field("part", part).finish()
            }
            Self::Usage(usage) => f.debug_tuple("Usage").field(usage).finish(),
            Self::Stop(reason) => f.debug_tuple("Stop").field(reason).finish(),
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("text", &Hidden(&self.text))
            .field("reasoning", &Hidden(&self.reasoning))
            .field("calls", &self.calls)
            .field("stop", &self.stop)
            .field("usage", &self.usage)
            .finish()
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
