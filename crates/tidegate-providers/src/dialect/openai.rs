//! OpenAI's chat completions, and those of everybody who speaks them.
//!
//! What differs between providers is named where it matters. One choice is read; texts may be lists
//! of parts (Mistral), reasoning has two names, and the counts of a stream two places (Groq).

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

/// Where a chat goes.
pub(crate) fn route(dialect: Dialect) -> Route {
    let root = match dialect {
        Dialect::Groq => "/openai/v1",
        Dialect::OpenRouter => "/api/v1",
        Dialect::DeepSeek => "",
        _ => "/v1",
    };
    Route { root, rest: "/chat/completions".to_owned() }
}

/// The body of a request.
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
        // Mistral tells the usage unasked, and refuses members that it does not know.
        if dialect != Dialect::Mistral {
            set(&mut body, "stream_options", Some(json!({ "include_usage": true })));
        }
    }
    body
}

/// What bounds the answer. OpenAI has renamed it, and its models that reason refuse the old name, at
/// Azure too. Others know the old name all, and some of them only that.
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

/// Tools in the form that Ollama has taken over.
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

/// Reads answers.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    state: State,
}

impl family::Reader for Reader {
    fn read(&mut self, chunk: &Value, events: &mut Vec<Event>) -> Result<(), DecodeError> {
        if responses::is_event(chunk) {
            return responses::read(chunk, &mut self.state, events);
        }
        self.take(chunk, "delta", events)
    }

    fn read_whole(&mut self, body: &Value, events: &mut Vec<Event>) -> Result<(), DecodeError> {
        self.take(body, "message", events)?;
        let is_answered = !list(body, "choices").is_empty();
        if is_answered { Ok(()) } else { Err(DecodeError::Missing("choices")) }
    }

    fn state(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Reader {
    fn take(
        &mut self,
        body: &Value,
        said: &str,
        events: &mut Vec<Event>,
    ) -> Result<(), DecodeError> {
        let choices = list(body, "choices");
        let choice = choices.iter().find(|choice| count(choice, "index") == 0);
        // OpenRouter fails in a chunk that may still have words in it.
        if is_error(body) || choice.is_some_and(|choice| choice["finish_reason"] == "error") {
            return Err(DecodeError::failed(body));
        }
        if let Some(choice) = choice {
            self.words(&choice[said], events);
            // Completions of a prompt, which came before chats.
            events.extend(text(choice, "text").map(|words| Event::Text(words.to_owned())));
            if let Some(reason) = text(choice, "finish_reason") {
                self.state.stop = Some(stop_reason(reason));
                self.state.progress = Progress::Complete;
            }
        }
        let others = choices.iter().filter(|choice| count(choice, "index") != 0);
        events.extend(others.flat_map(|other| alternative(other, said)));
        let usage = [&body["usage"], &body["x_groq"]["usage"]];
        let usage = usage.into_iter().find(|usage| usage.is_object());
        events.extend(usage.map(|usage| Event::Usage(used(usage))));
        Ok(())
    }

    fn words(&mut self, message: &Value, events: &mut Vec<Event>) {
        let reasoning = text(message, "reasoning_content").or_else(|| text(message, "reasoning"));
        events.extend(reasoning.map(|words| Event::Reasoning(words.to_owned())));
        // A refusal is what the model says instead.
        let words = text(message, "content").or_else(|| text(message, "refusal"));
        events.extend(words.map(|words| Event::Text(words.to_owned())));
        for part in list(message, "content") {
            let thoughts = list(part, "thinking").iter().filter_map(|part| text(part, "text"));
            events.extend(thoughts.map(|words| Event::Reasoning(words.to_owned())));
            events.extend(text(part, "text").map(|words| Event::Text(words.to_owned())));
        }
        // Calls as they were before there were several.
        let call = text(&message["function_call"], "arguments");
        events.extend(call.map(|words| Event::Text(words.to_owned())));
        for (place, call) in list(message, "tool_calls").iter().enumerate() {
            let index = call["index"].as_u64().map_or(Some(place), |index| index.try_into().ok());
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

/// The words of a choice that is not the first.
fn alternative<'a>(choice: &'a Value, said: &str) -> impl Iterator<Item = Event> + 'a {
    let message = &choice[said];
    let words = ["content", "refusal", "reasoning_content", "reasoning"];
    let words = words.into_iter().filter_map(|name| text(message, name));
    let parts = list(message, "content").iter().filter_map(|part| text(part, "text"));
    let calls = list(message, "tool_calls").iter();
    let calls = calls.filter_map(|call| text(&call["function"], "arguments"));
    let all = words.chain(parts).chain(calls).chain(text(choice, "text"));
    all.map(|words| Event::Alternative(words.to_owned()))
}

/// Arguments as text; some servers write them as an object.
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
        // DeepSeek has its own name for it.
        cache_read: count(input, "cached_tokens").max(count(usage, "prompt_cache_hit_tokens")),
        cache_write: count(input, "cache_write_tokens"),
        reasoning: count(&usage["completion_tokens_details"], "reasoning_tokens"),
        ..Usage::default()
    }
}
