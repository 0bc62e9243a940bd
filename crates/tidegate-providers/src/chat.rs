//! Chats: requests to a model, independent of the provider.
//!
//! A chat names neither model nor provider, so the same chat can go to another one when the first
//! fails. Options that only one provider knows go into [`Chat::extra`].

use std::fmt;

use serde_json::{Map, Value};

use crate::redacted::Redacted;

/// How a response is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// In one piece.
    Complete,
    /// As a stream of events.
    Stream,
}

/// A conversation and the options for its continuation. [`Chat::user`] is the short form.
///
/// ```
/// use tidegate_providers::{Chat, Message};
/// let chat = Chat::user("Name three rivers.").system("Answer in one line.").max_tokens(50);
/// assert_eq!(chat.messages, [Message::user("Name three rivers.")]);
/// assert!(!format!("{chat:?}").contains("rivers"));
/// ```
///
/// `Debug` shows no text of the chat or any of its parts.
#[derive(Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Chat {
    /// System prompt.
    pub system: Option<String>,
    /// The conversation so far, oldest message first.
    pub messages: Vec<Message>,
    /// Tools that the model may call.
    pub tools: Vec<Tool>,
    /// Maximum number of output tokens; the provider's default if unset.
    pub max_tokens: Option<u64>,
    /// Sampling temperature; the provider's default if unset.
    pub temperature: Option<f64>,
    /// Nucleus sampling: probability mass to sample from; the provider's default if unset.
    pub top_p: Option<f64>,
    /// Stop sequences.
    pub stop: Vec<String>,
    /// Additional members of the request body, sent as they are. They override members made from
    /// the other fields; an object is merged with the object of the same name.
    pub extra: Map<String, Value>,
}

/// A message of a conversation.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Message {
    /// Message of the user.
    User(String),
    /// Message of the model: text and tool calls.
    Assistant {
        /// Text of the message.
        text: String,
        /// Tool calls requested by the model.
        calls: Vec<ToolCall>,
    },
    /// Result of a tool call.
    Tool {
        /// Id of the call.
        id: String,
        /// Name of the called tool.
        name: String,
        /// The result.
        content: String,
    },
}

impl Message {
    /// Creates a message of the user.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User(text.into())
    }

    /// Creates a message of the model without tool calls.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::Assistant { text: text.into(), calls: Vec::new() }
    }
}

/// A tool that a model may call.
#[derive(Clone, PartialEq)]
pub struct Tool {
    /// Name of the tool.
    pub name: String,
    /// Description for the model.
    pub description: Option<String>,
    /// JSON Schema of the arguments.
    pub parameters: Value,
}

/// A tool call requested by a model.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// Id that the result refers to.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Arguments as JSON text.
    pub arguments: String,
    /// Opaque value that the provider expects back with the call (Gemini's thought signature).
    pub signature: Option<String>,
}

impl Chat {
    /// Creates a chat from one message of the user.
    pub fn user(text: impl Into<String>) -> Self {
        Self { messages: vec![Message::user(text)], ..Self::default() }
    }

    /// Creates a chat from messages, oldest first.
    pub fn new(messages: impl IntoIterator<Item = Message>) -> Self {
        Self { messages: messages.into_iter().collect(), ..Self::default() }
    }

    /// Sets the system prompt.
    #[must_use]
    pub fn system(mut self, text: impl Into<String>) -> Self {
        self.system = Some(text.into());
        self
    }

    /// Appends a message.
    #[must_use]
    pub fn message(mut self, message: Message) -> Self {
        self.messages.push(message);
        self
    }

    /// Adds a tool that the model may call.
    #[must_use]
    pub fn tool(mut self, tool: Tool) -> Self {
        self.tools.push(tool);
        self
    }

    /// Sets the maximum number of output tokens.
    #[must_use]
    pub const fn max_tokens(mut self, tokens: u64) -> Self {
        self.max_tokens = Some(tokens);
        self
    }

    /// Adds a stop sequence.
    #[must_use]
    pub fn stop(mut self, text: impl Into<String>) -> Self {
        self.stop.push(text.into());
        self
    }

    /// Sets the probability mass to sample from (nucleus sampling).
    #[must_use]
    pub const fn top_p(mut self, mass: f64) -> Self {
        self.top_p = Some(mass);
        self
    }

    /// Sets the sampling temperature.
    #[must_use]
    pub const fn temperature(mut self, temperature: f64) -> Self {
        self.temperature = Some(temperature);
        self
    }

    /// Adds a member to the request body, for options that only some providers know.
    #[must_use]
    pub fn extra(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.extra.insert(name.into(), value.into());
        self
    }

    /// Returns all texts that a provider counts as input, except JSON schemas.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        let messages = self.messages.iter().flat_map(|message| {
            let (text, calls): (&str, &[ToolCall]) = match message {
                Message::User(text) => (text, &[]),
                Message::Assistant { text, calls } => (text, calls),
                Message::Tool { content, .. } => (content, &[]),
            };
            let calls = calls.iter().flat_map(|call| [&*call.name, &*call.arguments]);
            std::iter::once(text).chain(calls)
        });
        let tools = self.tools.iter().flat_map(|tool| {
            [Some(&*tool.name), tool.description.as_deref()].into_iter().flatten()
        });
        self.system.as_deref().into_iter().chain(messages).chain(tools)
    }
}

impl fmt::Debug for Chat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chat")
            .field("system", &self.system.as_deref().map(Redacted))
            .field("messages", &self.messages)
            .field("tools", &self.tools)
            .field("max_tokens", &self.max_tokens)
            .field("temperature", &self.temperature)
            .field("top_p", &self.top_p)
            .field("stop", &self.stop.len())
            .field("extra", &self.extra.len())
            .finish()
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(text) => f.debug_tuple("User").field(&Redacted(text)).finish(),
            Self::Assistant { text, calls } => f
                .debug_struct("Assistant")
                .field("text", &Redacted(text))
                .field("calls", calls)
                .finish(),
            Self::Tool { id, name, content } => f
                .debug_struct("Tool")
                .field("id", id)
                .field("name", name)
                .field("content", &Redacted(content))
                .finish(),
        }
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for ToolCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolCall")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("arguments", &Redacted(&self.arguments))
            .field("signature", &self.signature.as_deref().map(Redacted))
            .finish()
    }
}
