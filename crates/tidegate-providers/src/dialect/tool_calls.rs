//! The calls of tools in a stream: which there were, and what of them was said already.

use serde_json::Value;

use crate::chat::ToolCall;
use crate::reply::{Event, MAX_CALLS};

/// The calls of one answer so far.
#[derive(Debug, Default)]
pub(super) struct Calls {
    named: Vec<bool>,
}

/// A call in one piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole<'a> {
    pub(super) id: Option<&'a str>,
    pub(super) name: &'a str,
    pub(super) arguments: &'a Value,
    pub(super) signature: Option<&'a str>,
}

impl Calls {
    pub(super) fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// A call that is new, with its index.
    pub(super) fn next(&mut self, part: ToolCall) -> Option<Event> {
        self.part(self.named.len(), part)
    }

    /// A call that comes in one piece, with the arguments as an object. Where the model gave it no
    /// name of its own, it gets one that begins with `prefix`.
    pub(super) fn whole(&mut self, prefix: &str, call: Whole<'_>) -> Option<Event> {
        let own = || format!("{prefix}{}", self.named.len());
        let arguments = call.arguments.as_object().map(|_| call.arguments.to_string());
        self.next(ToolCall {
            id: call.id.map_or_else(own, str::to_owned),
            name: call.name.to_owned(),
            arguments: arguments.unwrap_or_else(|| "{}".to_owned()),
            signature: call.signature.map(str::to_owned),
        })
    }

    /// A part of a call. A stream names a call once; servers that name it with every part would
    /// otherwise give it a name that is repeated.
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
