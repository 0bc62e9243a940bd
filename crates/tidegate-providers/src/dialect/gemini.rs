//! Gemini's `generateContent`: turns of parts, calls that are signed, and counts in every chunk.

use serde_json::{Map, Value, json};

use super::family::{self, Progress, Route, State};
use super::json::{append, arguments, count, is_error, list, set, text};
use super::tool_calls::Whole;
use crate::chat::Mode;
use crate::chat::{Chat, Message, ToolCall};
use crate::reply::{Event, StopReason};
use crate::request::RequestError;
use crate::request::escaped;
use crate::response::DecodeError;
use crate::usage::Usage;

/// What our own names of calls begin with, where the model gave none. They are not sent.
const OWN_ID: &str = "gemini-call-";

/// What stands for the signature of a call that was not made by Gemini, as documented: models that
/// think refuse a turn of calls without one.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// Where a chat goes.
pub(crate) fn route(model: &str, mode: Mode) -> Route {
    let model = escaped(model.strip_prefix("models/").unwrap_or(model));
    let method = match mode {
        Mode::Whole => "generateContent",
        Mode::Stream => "streamGenerateContent?alt=sse",
    };
    Route { root: "/v1beta", rest: format!("/models/{model}:{method}") }
}

/// The body of a request.
pub(crate) fn body(chat: &Chat) -> Result<Map<String, Value>, RequestError> {
    let mut config = Map::new();
    set(&mut config, "maxOutputTokens", chat.max_tokens);
    set(&mut config, "temperature", chat.temperature);
    set(&mut config, "topP", chat.top_p);
    set(&mut config, "stopSequences", (!chat.stop.is_empty()).then(|| chat.stop.clone()));
    let system = chat.system.as_ref().map(|text| json!({ "parts": [{ "text": text }] }));
    let mut body = Map::new();
    set(&mut body, "systemInstruction", system);
    set(&mut body, "contents", Some(turns(&chat.messages)?));
    set(&mut body, "tools", tools(chat));
    set(&mut body, "generationConfig", (!config.is_empty()).then_some(config));
    Ok(body)
}

fn turns(messages: &[Message]) -> Result<Vec<Value>, RequestError> {
    let mut turns = Vec::new();
    for message in messages {
        match message {
            Message::User(text) => append(&mut turns, "user", "parts", json!({ "text": text })),
            Message::Assistant { text, calls } => {
                if !text.is_empty() {
                    append(&mut turns, "model", "parts", json!({ "text": text }));
                }
                let is_signed = calls.iter().any(|call| call.signature.is_some());
                for (place, call) in calls.iter().enumerate() {
                    // Of calls that belong together only the first is signed.
                    let stand_in = (place == 0 && !is_signed).then_some(NO_SIGNATURE);
                    append(&mut turns, "model", "parts", called(call, stand_in)?);
                }
            }
            Message::Tool { id, name, content } => {
                append(&mut turns, "user", "parts", came_of(id, name, content));
            }
        }
    }
    Ok(turns)
}

fn called(call: &ToolCall, stand_in: Option<&str>) -> Result<Value, RequestError> {
    let mut function = Map::new();
    set(&mut function, "id", sent_id(&call.id));
    set(&mut function, "name", Some(call.name.as_str()));
    set(&mut function, "args", Some(arguments(call)?));
    let mut part = Map::new();
    set(&mut part, "functionCall", Some(function));
    set(&mut part, "thoughtSignature", call.signature.as_deref().or(stand_in));
    Ok(Value::Object(part))
}

/// What came of a call has to be an object, and becomes one if it is none.
fn came_of(id: &str, name: &str, content: &str) -> Value {
    let object = serde_json::from_str(content).ok().filter(Value::is_object);
    let mut function = Map::new();
    set(&mut function, "id", sent_id(id));
    set(&mut function, "name", Some(name));
    set(&mut function, "response", Some(object.unwrap_or_else(|| json!({ "result": content }))));
    json!({ "functionResponse": function })
}

fn sent_id(id: &str) -> Option<&str> {
    (!id.is_empty() && !id.starts_with(OWN_ID)).then_some(id)
}

fn tools(chat: &Chat) -> Option<Value> {
    let declared = chat.tools.iter().map(|tool| {
        let mut declared = Map::new();
        set(&mut declared, "name", Some(tool.name.as_str()));
        set(&mut declared, "description", tool.description.as_deref());
        // The other member for this, `parameters`, knows a part of JSON Schema only.
        set(&mut declared, "parametersJsonSchema", Some(tool.parameters.clone()));
        Value::Object(declared)
    });
    let declared: Vec<Value> = declared.collect();
    (!declared.is_empty()).then(|| json!([{ "functionDeclarations": declared }]))
}

/// Reads answers.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    state: State,
}

impl family::Reader for Reader {
    /// A chunk, or a list of them, which is what the provider sends where it does not speak in
    /// events: errors, for one.
    fn read(&mut self, chunk: &Value, events: &mut Vec<Event>) -> Result<(), DecodeError> {
        match chunk {
            Value::Array(chunks) => chunks.iter().try_for_each(|chunk| self.chunk(chunk, events)),
            chunk => self.chunk(chunk, events),
        }
    }

    fn read_whole(&mut self, body: &Value, events: &mut Vec<Event>) -> Result<(), DecodeError> {
        self.read(body, events)?;
        match self.state.progress {
            Progress::Open => Err(DecodeError::Missing("finishReason")),
            Progress::Complete | Progress::Over => Ok(()),
        }
    }

    fn state(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Reader {
    fn chunk(&mut self, chunk: &Value, events: &mut Vec<Event>) -> Result<(), DecodeError> {
        if is_error(chunk) {
            return Err(DecodeError::failed(chunk));
        }
        let candidates = list(chunk, "candidates");
        let candidate = candidates.iter().find(|one| count(one, "index") == 0);
        for part in candidate.map_or(&[][..], |candidate| list(&candidate["content"], "parts")) {
            self.part(part, events);
        }
        let reason = candidate.and_then(|candidate| text(candidate, "finishReason"));
        let blocked = text(&chunk["promptFeedback"], "blockReason").map(|_| StopReason::Filtered);
        if let Some(stop) = reason.map(stop_reason).or(blocked) {
            self.state.stop = Some(stop);
            self.state.progress = Progress::Complete;
        }
        let others = candidates.iter().filter(|one| count(one, "index") != 0);
        let words = others.flat_map(|other| list(&other["content"], "parts"));
        let words = words.filter_map(|part| text(part, "text"));
        events.extend(words.map(|words| Event::Alternative(words.to_owned())));
        let usage = &chunk["usageMetadata"];
        if usage.is_object() {
            events.push(Event::Usage(used(usage)));
        }
        Ok(())
    }

    fn part(&mut self, part: &Value, events: &mut Vec<Event>) {
        if let Some(words) = text(part, "text") {
            let event = if part["thought"] == true { Event::Reasoning } else { Event::Text };
            events.push(event(words.to_owned()));
        }
        let function = &part["functionCall"];
        let Some(name) = text(function, "name") else { return };
        let call = Whole {
            id: text(function, "id"),
            name,
            arguments: &function["args"],
            signature: text(part, "thoughtSignature"),
        };
        events.extend(self.state.calls.whole(OWN_ID, call));
    }
}

fn stop_reason(reason: &str) -> StopReason {
    match reason {
        "STOP" => StopReason::End,
        "MAX_TOKENS" => StopReason::Length,
        "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "IMAGE_SAFETY" => {
            StopReason::Filtered
        }
        other => StopReason::Other(other.to_owned()),
    }
}

/// Thoughts are counted apart from the answer, and what tools put into the prompt apart from it.
pub(crate) fn used(usage: &Value) -> Usage {
    let thoughts = count(usage, "thoughtsTokenCount");
    Usage {
        input: count(usage, "promptTokenCount")
            .saturating_add(count(usage, "toolUsePromptTokenCount")),
        output: count(usage, "candidatesTokenCount").saturating_add(thoughts),
        cache_read: count(usage, "cachedContentTokenCount"),
        reasoning: thoughts,
        ..Usage::default()
    }
}
