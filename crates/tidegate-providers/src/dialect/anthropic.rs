//! Anthropic's Messages API.

use serde_json::{Map, Value, json};

use super::family::{self, Progress, Route, State};
use super::json::{append, arguments, count, is_error, list, set, text};
use crate::chat::Mode;
use crate::chat::{Chat, Message, ToolCall};
use crate::reply::{Event, StopReason};
use crate::request::RequestError;
use crate::response::DecodeError;
use crate::usage::Usage;

/// Version of the API, sent with every request.
pub(crate) const VERSION: &str = "2023-06-01";

/// Maximum output tokens if a chat sets none, since Anthropic requires a number: 4,096, the most
/// that all of its models accept.
const DEFAULT_MAX_TOKENS: u64 = 4_096;

/// Returns the route of chat requests.
pub(crate) fn route() -> Route {
    Route { root: "/v1", rest: "/messages".to_owned() }
}

/// Builds the body of a request.
pub(crate) fn body(
    model: &str,
    chat: &Chat,
    mode: Mode,
) -> Result<Map<String, Value>, RequestError> {
    let mut body = Map::new();
    set(&mut body, "model", Some(model));
    set(&mut body, "max_tokens", Some(chat.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS)));
    set(&mut body, "system", chat.system.as_deref());
    set(&mut body, "messages", Some(messages(&chat.messages)?));
    set(&mut body, "tools", tools(chat));
    set(&mut body, "temperature", chat.temperature);
    set(&mut body, "top_p", chat.top_p);
    set(&mut body, "stop_sequences", (!chat.stop.is_empty()).then(|| chat.stop.clone()));
    set(&mut body, "stream", (mode == Mode::Stream).then_some(true));
    Ok(body)
}

fn messages(messages: &[Message]) -> Result<Vec<Value>, RequestError> {
    let text_block = |text: &str| json!({ "type": "text", "text": text });
    let mut encoded = Vec::new();
    for message in messages {
        match message {
            Message::User(text) => append(&mut encoded, "user", "content", text_block(text)),
            Message::Assistant { text, calls } => {
                // Anthropic rejects an empty block.
                if !text.is_empty() {
                    append(&mut encoded, "assistant", "content", text_block(text));
                }
                for call in calls {
                    let input = arguments(call)?;
                    let block = json!({
                        "type": "tool_use", "id": call.id, "name": call.name, "input": input,
                    });
                    append(&mut encoded, "assistant", "content", block);
                }
            }
            Message::Tool { id, content, .. } => {
                let block = json!({ "type": "tool_result", "tool_use_id": id, "content": content });
                append(&mut encoded, "user", "content", block);
            }
        }
    }
    Ok(encoded)
}

fn tools(chat: &Chat) -> Option<Vec<Value>> {
    let described = chat.tools.iter().map(|tool| {
        let mut described = Map::new();
        set(&mut described, "name", Some(tool.name.as_str()));
        set(&mut described, "description", tool.description.as_deref());
        set(&mut described, "input_schema", Some(tool.parameters.clone()));
        Value::Object(described)
    });
    (!chat.tools.is_empty()).then(|| described.collect())
}

/// Decodes responses.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// The tool call whose block is open.
    open: Option<OpenCall>,
    counts: Counts,
    state: State,
}

#[derive(Debug)]
struct OpenCall {
    block: u64,
    index: usize,
    /// Whether any of its arguments were received.
    has_arguments: bool,
}

impl family::Reader for Reader {
    fn read(&mut self, event: &Value, events: &mut Vec<Event>) -> Result<(), DecodeError> {
        if is_error(event) {
            return Err(DecodeError::failed(event));
        }
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => self.add_usage(&event["message"]["usage"], events),
            "content_block_start" => {
                self.block(&event["content_block"], count(event, "index"), events);
            }
            "content_block_delta" => self.delta(&event["delta"], count(event, "index"), events),
            "content_block_stop" => self.close(events),
            "message_delta" => {
                self.set_stop(&event["delta"]);
                self.add_usage(&event["usage"], events);
            }
            "message_stop" => self.state.progress = Progress::Over,
            _ => {}
        }
        Ok(())
    }

    fn read_whole(&mut self, body: &Value, events: &mut Vec<Event>) -> Result<(), DecodeError> {
        if is_error(body) {
            return Err(DecodeError::failed(body));
        }
        if !body["content"].is_array() {
            return Err(DecodeError::Missing("content"));
        }
        for (index, block) in (0..).zip(list(body, "content")) {
            self.block(block, index, events);
            self.close(events);
        }
        self.set_stop(body);
        self.add_usage(&body["usage"], events);
        Ok(())
    }

    fn state(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Reader {
    fn block(&mut self, block: &Value, number: u64, events: &mut Vec<Event>) {
        events.extend(text(block, "text").map(|words| Event::Text(words.to_owned())));
        events.extend(text(block, "thinking").map(|words| Event::Reasoning(words.to_owned())));
        if block["type"] != "tool_use" {
            return;
        }
        let member = |name| text(block, name).unwrap_or_default().to_owned();
        let input = block["input"].as_object().filter(|input| !input.is_empty());
        let part = ToolCall {
            id: member("id"),
            name: member("name"),
            arguments: input.map(|_| block["input"].to_string()).unwrap_or_default(),
            signature: None,
        };
        let Some(event) = self.state.calls.next(part) else { return };
        if let Event::ToolCall { index, .. } = event {
            self.open = Some(OpenCall { block: number, index, has_arguments: input.is_some() });
        }
        events.push(event);
    }

    fn delta(&mut self, delta: &Value, number: u64, events: &mut Vec<Event>) {
        events.extend(text(delta, "text").map(|words| Event::Text(words.to_owned())));
        events.extend(text(delta, "thinking").map(|words| Event::Reasoning(words.to_owned())));
        let Some(open) = self.open.as_mut().filter(|open| open.block == number) else { return };
        let Some(json) = text(delta, "partial_json") else { return };
        open.has_arguments = true;
        let part = ToolCall { arguments: json.to_owned(), ..ToolCall::default() };
        events.push(Event::ToolCall { index: open.index, part });
    }

    /// Ends a block. A call without arguments gets an empty object.
    fn close(&mut self, events: &mut Vec<Event>) {
        if let Some(OpenCall { index, has_arguments: false, .. }) = self.open.take() {
            let part = ToolCall { arguments: "{}".to_owned(), ..ToolCall::default() };
            events.push(Event::ToolCall { index, part });
        }
    }

    fn set_stop(&mut self, delta: &Value) {
        if let Some(reason) = text(delta, "stop_reason") {
            self.state.stop = Some(stop_reason(reason));
        }
    }

    fn add_usage(&mut self, usage: &Value, events: &mut Vec<Event>) {
        if usage.is_object() {
            self.counts.update(usage);
            events.push(Event::Usage(self.counts.usage()));
        }
    }
}

/// Token counts so far. Counts in a stream are cumulative: the last one applies, and a count that
/// is not repeated is kept.
#[derive(Debug, Default)]
struct Counts {
    input: u64,
    cache_read: u64,
    cache_write: u64,
    output: u64,
}

impl Counts {
    fn update(&mut self, usage: &Value) {
        let Self { input, cache_read, cache_write, output } = self;
        let names = [
            ("input_tokens", input),
            ("cache_read_input_tokens", cache_read),
            ("cache_creation_input_tokens", cache_write),
            ("output_tokens", output),
        ];
        for (name, known) in names {
            *known = usage[name].as_u64().unwrap_or(*known);
        }
    }

    fn usage(&self) -> Usage {
        Usage {
            input: self.input.saturating_add(self.cache_read).saturating_add(self.cache_write),
            output: self.output,
            cache_read: self.cache_read,
            cache_write: self.cache_write,
            ..Usage::default()
        }
    }
}

/// Reads the usage of a message.
pub(crate) fn used(usage: &Value) -> Usage {
    let mut counts = Counts::default();
    counts.update(usage);
    counts.usage()
}

fn stop_reason(reason: &str) -> StopReason {
    match reason {
        "end_turn" | "stop_sequence" => StopReason::End,
        "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
        "tool_use" => StopReason::Tools,
        "refusal" => StopReason::Filtered,
        other => StopReason::Other(other.to_owned()),
    }
}
