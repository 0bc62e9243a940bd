//! Ollama's chat API: lines of JSON, options in a nested object, arguments as objects.

use serde_json::{Map, Value, json};

use super::family::{self, Progress, Route, State};
use super::json::{arguments, count, is_error, list, set, text};
use super::openai;
use super::tool_calls::CompleteCall;
use crate::chat::Mode;
use crate::chat::{Chat, Message, ToolCall};
use crate::reply::{Event, StopReason};
use crate::request::RequestError;
use crate::response::DecodeError;
use crate::usage::Usage;

/// Prefix of call ids that we generate if the model sends none.
const GENERATED_ID: &str = "ollama-call-";

/// Returns the route of chat requests.
pub(crate) fn route() -> Route {
    Route { root: "/api", rest: "/chat".to_owned() }
}

/// Builds the body of a request.
pub(crate) fn body(
    model: &str,
    chat: &Chat,
    mode: Mode,
) -> Result<Map<String, Value>, RequestError> {
    let mut options = Map::new();
    set(&mut options, "num_predict", chat.max_tokens);
    set(&mut options, "temperature", chat.temperature);
    set(&mut options, "top_p", chat.top_p);
    set(&mut options, "stop", (!chat.stop.is_empty()).then(|| chat.stop.clone()));
    let system = chat.system.as_ref().map(|text| json!({ "role": "system", "content": text }));
    let messages = chat.messages.iter().map(message).collect::<Result<Vec<_>, _>>()?;
    let messages: Vec<Value> = system.into_iter().chain(messages).collect();
    let mut body = Map::new();
    set(&mut body, "model", Some(model));
    set(&mut body, "messages", Some(messages));
    set(&mut body, "tools", openai::tools(&chat.tools));
    set(&mut body, "options", (!options.is_empty()).then_some(options));
    // Ollama streams by default.
    set(&mut body, "stream", Some(mode == Mode::Stream));
    Ok(body)
}

fn message(message: &Message) -> Result<Value, RequestError> {
    Ok(match message {
        Message::User(text) => json!({ "role": "user", "content": text }),
        Message::Assistant { text, calls } if calls.is_empty() => {
            json!({ "role": "assistant", "content": text })
        }
        Message::Assistant { text, calls } => {
            let encode = |call: &ToolCall| {
                let function = json!({ "name": call.name, "arguments": arguments(call)? });
                Ok(json!({ "function": function }))
            };
            let calls = calls.iter().map(encode).collect::<Result<Vec<_>, RequestError>>()?;
            json!({ "role": "assistant", "content": text, "tool_calls": calls })
        }
        // Ollama matches results to calls by tool name and order.
        Message::Tool { name, content, .. } => {
            json!({ "role": "tool", "tool_name": name, "content": content })
        }
    })
}

/// Decodes responses.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    state: State,
}

impl family::Reader for Reader {
    fn read(&mut self, line: &Value, events: &mut Vec<Event>) -> Result<(), DecodeError> {
        if is_error(line) {
            return Err(DecodeError::failed(line));
        }
        let message = &line["message"];
        events.extend(text(message, "thinking").map(|words| Event::Reasoning(words.to_owned())));
        // `/api/generate` puts the text elsewhere.
        let words = text(message, "content").or_else(|| text(line, "response"));
        events.extend(words.map(|words| Event::Text(words.to_owned())));
        for call in list(message, "tool_calls") {
            let function = &call["function"];
            let call = CompleteCall {
                id: text(call, "id"),
                name: text(function, "name").unwrap_or_default(),
                arguments: &function["arguments"],
                signature: None,
            };
            events.extend(self.state.calls.complete(GENERATED_ID, call));
        }
        if line["done"] == true {
            self.state.progress = Progress::Over;
            self.state.stop = text(line, "done_reason").map(stop_reason).or(Some(StopReason::End));
            events.extend(used(line).map(Event::Usage));
        }
        Ok(())
    }

    fn read_whole(&mut self, body: &Value, events: &mut Vec<Event>) -> Result<(), DecodeError> {
        self.read(body, events)?;
        match self.state.progress {
            Progress::Over => Ok(()),
            Progress::Open | Progress::Complete => Err(DecodeError::Missing("done")),
        }
    }

    fn state(&mut self) -> &mut State {
        &mut self.state
    }
}

fn stop_reason(reason: &str) -> StopReason {
    match reason {
        "stop" => StopReason::End,
        "length" => StopReason::Length,
        other => StopReason::Other(other.to_owned()),
    }
}

/// Reads the usage, which only the last line has. A count of zero may be omitted.
pub(crate) fn used(line: &Value) -> Option<Usage> {
    let has_counts = ["prompt_eval_count", "eval_count"].iter().any(|name| line[*name].is_u64());
    has_counts.then(|| Usage {
        input: count(line, "prompt_eval_count"),
        output: count(line, "eval_count"),
        cache_read: count(line, "prompt_eval_cached_count"),
        ..Usage::default()
    })
}
