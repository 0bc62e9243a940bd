//! A mock response streamed word by word.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use tidegate_providers::{Event, Provider, Reply};
use tokio::time::{Instant, Sleep, sleep};

use super::step::Ending;
use crate::call::CallError;

/// Events, each after a pause, optionally with an error at the end.
pub(super) struct EventStream {
    events: VecDeque<Event>,
    error: Option<CallError>,
    pause: Duration,
    /// When the next event is due; `None` without pauses.
    due: Option<Pin<Box<Sleep>>>,
}

impl EventStream {
    pub(super) fn new(provider: Provider, reply: Reply, ending: Ending, pause: Duration) -> Self {
        let mut events: VecDeque<Event> = VecDeque::new();
        events.extend(words(&reply.reasoning).map(Event::Reasoning));
        events.extend(words(&reply.text).map(Event::Text));
        let calls = reply.calls.into_iter().enumerate();
        events.extend(calls.map(|(index, part)| Event::ToolCall { index, part }));
        let error = match ending {
            Ending::Interrupted(fail) => Some(fail.in_stream(provider)),
            Ending::Complete => {
                events.extend(reply.usage.map(Event::Usage));
                events.extend(reply.stop.map(Event::Stop));
                None
            }
        };
        let due = (!pause.is_zero()).then(|| Box::pin(sleep(pause)));
        Self { events, error, pause, due }
    }
}

/// Splits a text into words, each with the space after it.
fn words(text: &str) -> impl Iterator<Item = String> {
    text.split_inclusive(' ').map(str::to_owned)
}

impl Stream for EventStream {
    type Item = Result<Event, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.events.is_empty() {
            return Poll::Ready(self.error.take().map(Err));
        }
        let next = Instant::now() + self.pause;
        if let Some(due) = &mut self.due {
            ready!(due.as_mut().poll(context));
            due.as_mut().reset(next);
        }
        Poll::Ready(self.events.pop_front().map(Ok))
    }
}
