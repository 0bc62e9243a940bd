//! Gemini's `generateContent` API. Tool calls carry signatures, and every chunk reports usage.

use serde_json::{Map, Value, json};

use super::family::{self, Progress, Route, State};
use super::json::{append, arguments, count, is_error, list, set, text};
use super::tool_calls::CompleteCall;
use crate::chat::Mode;
use crate::chat::{Chat, Message, ToolCall};
use crate::reply::{Event, StopReason};
use crate::request::RequestError;
use crate::request::escaped;
use crate::response::DecodeError;
use crate::usage::Usage;

/// Prefix of call ids that we generate if the model sends none. Such ids are not sent back.
const GENERATED_ID: &str = "gemini-call-";

/// Documented placeholder for the signature of a call that Gemini did not make. Reasoning models
/// reject tool calls without a signature.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// Returns the route of chat requests.
pub(crate) fn route(model: &str, mode: Mode) -> Route {
    let model = escaped(model.strip_prefix("models/").unwrap_or(model));
    let method = match mode {
        Mode::Complete => "generateContent",
        Mode::Stream => "streamGenerateContent?alt=sse",
    };
    Route { root: "/v1beta", rest: format!("/models/{model}:{method}") }
}

/// Builds the body of a request.
pub(crate) fn body(chat: &Chat) -> Result<Map<String, Value>, RequestError> {
    let mut config = Map::new();
    set(&mut config, "maxOutputTokens", chat.max_tokens);
    set(&mut config, "temperature", chat.temperature);
    set(&mut config, "topP", chat.top_p);
    set(&mut config, "stopSequences", (!chat.stop.is_empty()).then(|| chat.stop.clone()));
    let system = chat.system.as_ref().map(|text| json!({ "parts": [{ "text": text }] }));
    let mut body = Map::new();
    set(&mut body, "systemInstruction", system);
    set(&mut body, "contents", Some(messages(&chat.messages)?));
    set(&mut body, "tools", tools(chat));
    set(&mut body, "generationConfig", (!config.is_empty()).then_some(config));
    Ok(body)
}

fn messages(messages: &[Message]) -> Result<Vec<Value>, RequestError> {
    let mut encoded = Vec::new();
    for message in messages {
        match message {
            Message::User(text) => append(&mut encoded, "user", "parts", json!({ "text": text })),
            Message::Assistant { text, calls } => {
                if !text.is_empty() {
                    append(&mut encoded, "model", "parts", json!({ "text": text }));
                }
                let is_signed = calls.iter().any(|call| call.signature.is_some());
                for (index, call) in calls.iter().enumerate() {
                    // Only the first of parallel calls is signed.
                    let placeholder = (index == 0 && !is_signed).then_some(NO_SIGNATURE);
                    append(&mut encoded, "model", "parts", function_call(call, placeholder)?);
                }
            }
            Message::Tool { id, name, content } => {
                append(&mut encoded, "user", "parts", function_response(id, name, content));
            }
        }
    }
    Ok(encoded)
}

fn function_call(call: &ToolCall, placeholder: Option<&str>) -> Result<Value, RequestError> {
    let mut function = Map::new();
    set(&mut function, "id", sent_id(&call.id));
    set(&mut function, "name", Some(call.name.as_str()));
    set(&mut function, "args", Some(arguments(call)?));
    let mut part = Map::new();
    set(&mut part, "functionCall", Some(function));
    set(&mut part, "thoughtSignature", call.signature.as_deref().or(placeholder));
    Ok(Value::Object(part))
}

/// Encodes the result of a call, which must be an object; other results are wrapped in one.
fn function_response(id: &str, name: &str, content: &str) -> Value {
    let object = serde_json::from_str(content).ok().filter(Value::is_object);
    let mut function = Map::new();
    set(&mut function, "id", sent_id(id));
    set(&mut function, "name", Some(name));
    set(&mut function, "response", Some(object.unwrap_or_else(|| json!({ "result": content }))));
    json!({ "functionResponse": function })
}

fn sent_id(id: &str) -> Option<&str> {
    (!id.is_empty() && !id.starts_with(GENERATED_ID)).then_some(id)
}

fn tools(chat: &Chat) -> Option<Value> {
    let declared = chat.tools.iter().map(|tool| {
        let mut declared = Map::new();
        set(&mut declared, "name", Some(tool.name.as_str()));
        set(&mut declared, "description", tool.description.as_deref());
        // The alternative, `parameters`, supports only a subset of JSON Schema.
        set(&mut declared, "parametersJsonSchema", Some(tool.parameters.clone()));
        Value::Object(declared)
    });
    let declared: Vec<Value> = declared.collect();
    (!declared.is_empty()).then(|| json!([{ "functionDeclarations": declared }]))
}

/// Decodes responses.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    state: State,
}

impl family::Reader for Reader {
    /// Reads a chunk, or a list of chunks, which the provider sends outside of event streams, for
    /// errors for example.
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
        let call = CompleteCall {
            id: text(function, "id"),
            name,
            arguments: &function["args"],
            signature: text(part, "thoughtSignature"),
        };
        events.extend(self.state.calls.complete(GENERATED_ID, call));
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

/// Reads the usage. Gemini counts reasoning separately from the output, and tool prompts separately
/// from the input.
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
