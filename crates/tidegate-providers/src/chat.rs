//! A chat: what is asked of a model, in words that every provider has a form for.
//!
//! A chat names no model and no provider: the same one can be put to another when the first fails.
//! What only one provider knows goes into [`Chat::extra`].

use std::fmt;

use serde_json::{Map, Value};

use crate::redacted::Redacted;

/// How a response is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// In one piece.
    Whole,
    /// As a stream of events.
    Stream,
}

/// What is asked of a model. See [`Chat::user`] for the short form.
///
/// ```
/// use tidegate_providers::{Chat, Message};
/// let chat = Chat::user("Name three rivers.").system("Answer in one line.").max_tokens(50);
/// assert_eq!(chat.messages, [Message::user("Name three rivers.")]);
/// assert!(!format!("{chat:?}").contains("rivers"));
/// ```
///
/// `Debug` shows no text of it, here and in all its parts.
#[derive(Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Chat {
    /// What the model is told before the conversation.
    pub system: Option<String>,
    /// The conversation so far, the oldest first.
    pub messages: Vec<Message>,
    /// What the model may call.
    pub tools: Vec<Tool>,
    /// The most tokens of an answer; the provider's default if unset.
    pub max_tokens: Option<u64>,
    /// How freely it answers; the provider's default if unset.
    pub temperature: Option<f64>,
    /// The share of likely words that it chooses from; the provider's default if unset.
    pub top_p: Option<f64>,
    /// Texts at which an answer ends.
    pub stop: Vec<String>,
    /// More members of the request's body, as they are; they win over those made from the rest. An
    /// object is put together with the object of the same name, if there is one.
    pub extra: Map<String, Value>,
}

/// One turn of a conversation.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Message {
    /// Of the person.
    User(String),
    /// Of the model: its words and the calls that it wants made.
    Assistant {
        /// Its words.
        text: String,
        /// The calls.
        calls: Vec<ToolCall>,
    },
    /// What came of a call.
    Tool {
        /// Which call.
        id: String,
        /// The name of the tool that was called.
        name: String,
        /// What came of it.
        content: String,
    },
}

impl Message {
    /// Words of the person.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User(text.into())
    }

    /// Words of the model.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::Assistant { text: text.into(), calls: Vec::new() }
    }
}

/// Something that a model may call.
#[derive(Clone, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it does, for the model.
    pub description: Option<String>,
    /// What it takes, as a JSON Schema.
    pub parameters: Value,
}

/// A call that a model wants made.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// What the answer to it refers to.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments, as JSON text.
    pub arguments: String,
    /// What the provider wants to see again with the call, if it said so (Gemini does).
    pub signature: Option<String>,
}

impl Chat {
    /// A conversation that begins with words of the person.
    pub fn user(text: impl Into<String>) -> Self {
        Self { messages: vec![Message::user(text)], ..Self::default() }
    }

    /// A conversation so far.
    pub fn new(messages: impl IntoIterator<Item = Message>) -> Self {
        Self { messages: messages.into_iter().collect(), ..Self::default() }
    }

    /// What the model is told before the conversation.
    #[must_use]
    pub fn system(mut self, text: impl Into<String>) -> Self {
        self.system = Some(text.into());
        self
    }

    /// Another turn.
    #[must_use]
    pub fn message(mut self, message: Message) -> Self {
        self.messages.push(message);
        self
    }

    /// Something that the model may call.
    #[must_use]
    pub fn tool(mut self, tool: Tool) -> Self {
        self.tools.push(tool);
        self
    }

    /// The most tokens of an answer.
    #[must_use]
    pub const fn max_tokens(mut self, tokens: u64) -> Self {
        self.max_tokens = Some(tokens);
        self
    }

    /// A text at which the answer ends.
    #[must_use]
    pub fn stop(mut self, text: impl Into<String>) -> Self {
        self.stop.push(text.into());
        self
    }

    /// The share of likely words that it chooses from.
    #[must_use]
    pub const fn top_p(mut self, share: f64) -> Self {
        self.top_p = Some(share);
        self
    }

    /// How freely it answers.
    #[must_use]
    pub const fn temperature(mut self, temperature: f64) -> Self {
        self.temperature = Some(temperature);
        self
    }

    /// A member of the request's body that only some providers know.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.extra.insert(name.into(), value.into());
        self
    }

    /// All texts that a provider counts as input, and how many turns there are.
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
