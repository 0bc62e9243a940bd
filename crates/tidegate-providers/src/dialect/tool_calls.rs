//! Tool calls of a stream, and which of them are already named.

use serde_json::Value;

use crate::chat::ToolCall;
use crate::reply::{Event, MAX_CALLS};

/// Tool calls of one response so far.
#[derive(Debug, Default)]
pub(super) struct Calls {
    named: Vec<bool>,
}

/// A tool call received in one piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct CompleteCall<'a> {
    pub(super) id: Option<&'a str>,
    pub(super) name: &'a str,
    pub(super) arguments: &'a Value,
    pub(super) signature: Option<&'a str>,
}

impl Calls {
    pub(super) fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// Adds a new call.
    pub(super) fn next(&mut self, part: ToolCall) -> Option<Event> {
        self.part(self.named.len(), part)
    }

    /// Adds a call received in one piece, with its arguments as an object. If the model sent no id,
    /// one that begins with `prefix` is generated.
    pub(super) fn complete(&mut self, prefix: &str, call: CompleteCall<'_>) -> Option<Event> {
        let generated = || format!("{prefix}{}", self.named.len());
        let arguments = call.arguments.as_object().map(|_| call.arguments.to_string());
        self.next(ToolCall {
            id: call.id.map_or_else(generated, str::to_owned),
            name: call.name.to_owned(),
            arguments: arguments.unwrap_or_else(|| "{}".to_owned()),
            signature: call.signature.map(str::to_owned),
        })
    }

    /// Adds a part of a call. Parts are concatenated, so id and name are dropped after the first:
    /// some servers repeat them with every part.
    pub(super) fn part(&mut self, index: usize, mut part: ToolCall) -> Option<Event> {
        if index >= MAX_CALLS {
            return None;
        }
        if self.named.len() <= index {
            self.named.resize(index + 1, false);
        }
        if let Some(named) = self.named.get_mut(index) {
            if *named {
                part.id.clear();
                part.name.clear();
            }
            *named |= !part.name.is_empty();
        }
        Some(Event::ToolCall { index, part })
    }
}
