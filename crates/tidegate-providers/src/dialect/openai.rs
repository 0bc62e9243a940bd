//! OpenAI's Chat Completions API, and that of compatible providers.
//!
//! Text may be a list of parts (Mistral), reasoning has two names, and a stream reports usage in
//! one of two places (Groq).

use serde_json::{Map, Value, json};

use super::family::{self, Progress, Route, State};
use super::json::{count, is_error, list, set, text};
use super::responses;
use crate::chat::Mode;
use crate::chat::{Chat, Message, Tool, ToolCall};
use crate::dialect::Dialect;
use crate::reply::{Event, StopReason};
use crate::response::DecodeError;
use crate::usage::Usage;

/// Returns the route of chat requests.
pub(crate) fn route(dialect: Dialect) -> Route {
    let root = match dialect {
        Dialect::Groq => "/openai/v1",
        Dialect::OpenRouter => "/api/v1",
        Dialect::DeepSeek => "",
        _ => "/v1",
    };
    Route { root, rest: "/chat/completions".to_owned() }
}

/// Builds the body of a request.
pub(crate) fn body(dialect: Dialect, model: &str, chat: &Chat, mode: Mode) -> Map<String, Value> {
    let system = chat.system.as_ref().map(|text| json!({ "role": "system", "content": text }));
    let messages: Vec<Value> =
        system.into_iter().chain(chat.messages.iter().map(message)).collect();
    let mut body = Map::new();
    set(&mut body, "model", Some(model));
    set(&mut body, "messages", Some(messages));
    set(&mut body, "tools", tools(&chat.tools));
    set(&mut body, max_tokens(dialect), chat.max_tokens);
    set(&mut body, "temperature", chat.temperature);
    set(&mut body, "top_p", chat.top_p);
    set(&mut body, "stop", (!chat.stop.is_empty()).then(|| chat.stop.clone()));
    if mode == Mode::Stream {
        set(&mut body, "stream", Some(true));
        // Mistral reports usage anyway, and rejects unknown members.
        if dialect != Dialect::Mistral {
            set(&mut body, "stream_options", Some(json!({ "include_usage": true })));
        }
    }
    body
}

/// Returns the name of the output limit. OpenAI renamed it, and its reasoning models reject the old
/// name, on Azure too. All other providers accept the old name, and some only that.
const fn max_tokens(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::OpenAi | Dialect::Azure => "max_completion_tokens",
        _ => "max_tokens",
    }
}

fn message(message: &Message) -> Value {
    match message {
        Message::User(text) => json!({ "role": "user", "content": text }),
        Message::Assistant { text, calls } if calls.is_empty() => {
            json!({ "role": "assistant", "content": text })
        }
        Message::Assistant { text, calls } => {
            let text = (!text.is_empty()).then_some(text);
            let calls: Vec<Value> = calls.iter().map(call).collect();
            json!({ "role": "assistant", "content": text, "tool_calls": calls })
        }
        Message::Tool { id, content, .. } => {
            json!({ "role": "tool", "tool_call_id": id, "content": content })
        }
    }
}

fn call(call: &ToolCall) -> Value {
    let arguments = if call.arguments.is_empty() { "{}" } else { &call.arguments };
    json!({
        "id": call.id,
        "type": "function",
        "function": { "name": call.name, "arguments": arguments },
    })
}

/// Encodes tools. Ollama uses the same form.
pub(crate) fn tools(tools: &[Tool]) -> Option<Vec<Value>> {
    let described = |tool: &Tool| {
        let mut function = Map::new();
        set(&mut function, "name", Some(tool.name.as_str()));
        set(&mut function, "description", tool.description.as_deref());
        set(&mut function, "parameters", Some(tool.parameters.clone()));
        json!({ "type": "function", "function": function })
    };
    (!tools.is_empty()).then(|| tools.iter().map(described).collect())
}

/// Decodes responses.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    state: State,
}

impl family::Reader for Reader {
    fn read(&mut self, chunk: &Value, events: &mut Vec<Event>) -> Result<(), DecodeError> {
        if responses::is_event(chunk) {
            return responses::read(chunk, &mut self.state, events);
        }
        self.read_choices(chunk, "delta", events)
    }

    fn read_whole(&mut self, body: &Value, events: &mut Vec<Event>) -> Result<(), DecodeError> {
        self.read_choices(body, "message", events)?;
        let has_choices = !list(body, "choices").is_empty();
        if has_choices { Ok(()) } else { Err(DecodeError::Missing("choices")) }
    }

    fn state(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Reader {
    fn read_choices(
        &mut self,
        body: &Value,
        message_name: &str,
        events: &mut Vec<Event>,
    ) -> Result<(), DecodeError> {
        let choices = list(body, "choices");
        let choice = choices.iter().find(|choice| count(choice, "index") == 0);
        // OpenRouter reports errors in a chunk that may still contain text.
        if is_error(body) || choice.is_some_and(|choice| choice["finish_reason"] == "error") {
            return Err(DecodeError::failed(body));
        }
        if let Some(choice) = choice {
            self.read_message(&choice[message_name], events);
            // The legacy Completions API.
            events.extend(text(choice, "text").map(|words| Event::Text(words.to_owned())));
            if let Some(reason) = text(choice, "finish_reason") {
                self.state.stop = Some(stop_reason(reason));
                self.state.progress = Progress::Complete;
            }
        }
        let others = choices.iter().filter(|choice| count(choice, "index") != 0);
        events.extend(others.flat_map(|other| alternative(other, message_name)));
        let usage = [&body["usage"], &body["x_groq"]["usage"]];
        let usage = usage.into_iter().find(|usage| usage.is_object());
        events.extend(usage.map(|usage| Event::Usage(used(usage))));
        Ok(())
    }

    fn read_message(&mut self, message: &Value, events: &mut Vec<Event>) {
        let reasoning = text(message, "reasoning_content").or_else(|| text(message, "reasoning"));
        events.extend(reasoning.map(|words| Event::Reasoning(words.to_owned())));
        // A refusal replaces the content.
        let words = text(message, "content").or_else(|| text(message, "refusal"));
        events.extend(words.map(|words| Event::Text(words.to_owned())));
        for part in list(message, "content") {
            let thoughts = list(part, "thinking").iter().filter_map(|part| text(part, "text"));
            events.extend(thoughts.map(|words| Event::Reasoning(words.to_owned())));
            events.extend(text(part, "text").map(|words| Event::Text(words.to_owned())));
        }
        // The legacy form of a single call.
        let call = text(&message["function_call"], "arguments");
        events.extend(call.map(|words| Event::Text(words.to_owned())));
        for (position, call) in list(message, "tool_calls").iter().enumerate() {
            let index =
                call["index"].as_u64().map_or(Some(position), |index| index.try_into().ok());
            let member = |object: &Value, name| text(object, name).unwrap_or_default().to_owned();
            let function = &call["function"];
            let part = ToolCall {
                id: member(call, "id"),
                name: member(function, "name"),
                arguments: arguments(&function["arguments"]),
                signature: None,
            };
            events.extend(index.and_then(|index| self.state.calls.part(index, part)));
        }
    }
}

/// Returns the text of a choice other than the first.
fn alternative<'a>(choice: &'a Value, message_name: &str) -> impl Iterator<Item = Event> + 'a {
    let message = &choice[message_name];
    let words = ["content", "refusal", "reasoning_content", "reasoning"];
    let words = words.into_iter().filter_map(|name| text(message, name));
    let parts = list(message, "content").iter().filter_map(|part| text(part, "text"));
    let calls = list(message, "tool_calls").iter();
    let calls = calls.filter_map(|call| text(&call["function"], "arguments"));
    let all = words.chain(parts).chain(calls).chain(text(choice, "text"));
    all.map(|words| Event::Alternative(words.to_owned()))
}

/// Returns arguments as text. Some servers send an object.
fn arguments(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(_) => value.to_string(),
        _ => String::new(),
    }
}

fn stop_reason(reason: &str) -> StopReason {
    match reason {
        "stop" => StopReason::End,
        "length" | "model_length" => StopReason::Length,
        "tool_calls" | "function_call" => StopReason::Tools,
        "content_filter" => StopReason::Filtered,
        other => StopReason::Other(other.to_owned()),
    }
}

pub(crate) fn used(usage: &Value) -> Usage {
    if usage["input_tokens"].is_u64() {
        return responses::used(usage);
    }
    let input = &usage["prompt_tokens_details"];
    Usage {
        input: count(usage, "prompt_tokens"),
        output: count(usage, "completion_tokens"),
        // DeepSeek uses its own name.
        cache_read: count(input, "cached_tokens").max(count(usage, "prompt_cache_hit_tokens")),
        cache_write: count(input, "cache_write_tokens"),
        reasoning: count(&usage["completion_tokens_details"], "reasoning_tokens"),
        ..Usage::default()
    }
}
