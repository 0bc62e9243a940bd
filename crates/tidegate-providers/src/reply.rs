//! A reply: what a model answers, piece by piece or whole.

use std::fmt;

use crate::chat::ToolCall;
use crate::redacted::Redacted;
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
    /// Words of a further answer to the same request, where several were asked for. Only the first
    /// answer makes a reply, and all of them are counted.
    Alternative(String),
    /// What the call has used so far. A later one replaces an earlier one.
    Usage(Usage),
    /// Why the answer ends.
    Stop(StopReason),
}

impl Event {
    /// The words in it that are output of the model, if it has any.
    #[must_use]
    pub fn words(&self) -> Option<&str> {
        match self {
            Self::Text(words) | Self::Reasoning(words) | Self::Alternative(words) => Some(words),
            Self::ToolCall { part, .. } => Some(&part.arguments),
            Self::Usage(_) | Self::Stop(_) => None,
        }
    }
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
    /// A reply of words alone.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

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
            Event::Alternative(_) => {}
            Event::Usage(usage) => self.usage = Some(usage),
            Event::Stop(stop) => self.stop = Some(stop),
        }
    }
}

/// No answer has more calls than this; those beyond are not followed.
pub(crate) const MAX_CALLS: usize = 1_024;

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.debug_tuple("Text").field(&Redacted(text)).finish(),
            Self::Reasoning(text) => f.debug_tuple("Reasoning").field(&Redacted(text)).finish(),
            Self::ToolCall { index, part } => {
                f.debug_struct("ToolCall").field("index", index).field("part", part).finish()
            }
            Self::Alternative(text) => f.debug_tuple("Alternative").field(&Redacted(text)).finish(),
            Self::Usage(usage) => f.debug_tuple("Usage").field(usage).finish(),
            Self::Stop(reason) => f.debug_tuple("Stop").field(reason).finish(),
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("text", &Redacted(&self.text))
            .field("reasoning", &Redacted(&self.reasoning))
            .field("calls", &self.calls)
            .field("stop", &self.stop)
            .field("usage", &self.usage)
            .finish()
    }
}
