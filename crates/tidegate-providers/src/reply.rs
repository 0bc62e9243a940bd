//! Output of a model, as events of a stream or as a complete reply.

use std::fmt;

use crate::chat::ToolCall;
use crate::redacted::Redacted;
use crate::usage::Usage;

/// Event of a response. `Debug` shows no text of it.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// Text of the reply.
    Text(String),
    /// Reasoning text, where the provider exposes it.
    Reasoning(String),
    /// Part of a tool call. Parts with the same index belong together.
    ToolCall {
        /// Index of the call within the response.
        index: usize,
        /// Fragment of the call; append its texts to those of earlier fragments.
        part: ToolCall,
    },
    /// Text of a further choice, if the request asked for several. Only the first choice becomes
    /// the reply; all of them count as output.
    Alternative(String),
    /// Usage so far. A later event replaces an earlier one.
    Usage(Usage),
    /// Why the model stopped.
    Stop(StopReason),
}

impl Event {
    /// Returns the text in the event that counts as output of the model, if any.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(words) | Self::Reasoning(words) | Self::Alternative(words) => Some(words),
            Self::ToolCall { part, .. } => Some(&part.arguments),
            Self::Usage(_) | Self::Stop(_) => None,
        }
    }
}

/// Why a model stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// The reply is complete.
    End,
    /// The maximum number of output tokens was reached.
    Length,
    /// The model requests tool calls.
    Tools,
    /// A content filter stopped it.
    Filtered,
    /// Any other reason, as the provider names it.
    Other(String),
}

/// Complete reply of a model. `Debug` shows no text of it.
#[derive(Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Reply {
    /// Text of the reply.
    pub text: String,
    /// Reasoning text, where the provider exposes it.
    pub reasoning: String,
    /// Tool calls requested by the model.
    pub calls: Vec<ToolCall>,
    /// Why the model stopped, if the provider says so.
    pub stop: Option<StopReason>,
    /// Usage, if the provider reports it.
    pub usage: Option<Usage>,
}

impl Reply {
    /// Creates a reply that consists of text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Applies an event to the reply.
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

/// Maximum number of tool calls in a response; further ones are ignored.
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
