//! The structured fields of an error, wherever a provider has them.
//!
//! The error is the member `error`, as an object or as a text (Ollama); that of `response` in the
//! events of OpenAI's Responses API; or the body itself (Mistral). Gemini's streaming endpoint puts
//! it into an array.

use http::StatusCode;
use serde_json::Value;

use super::google::Google;

/// No type, code or id is longer than this.
const MAX_NAME: usize = 100;

/// What was found. All of it is optional.
#[derive(Debug, Default)]
pub(super) struct Fields<'a> {
    /// Type, code and reasons, the one that says most to a reader first.
    pub(super) names: Vec<String>,
    /// The status that an error in a stream names.
    pub(super) status: Option<StatusCode>,
    pub(super) message: Option<&'a str>,
    pub(super) request_id: Option<&'a str>,
    /// When to come back, as it is written.
    pub(super) delay: Option<&'a str>,
    /// What Google has in `details`.
    pub(super) google: Google<'a>,
    /// What OpenRouter repeats of header fields.
    headers: Option<&'a serde_json::Map<String, Value>>,
}

impl<'a> Fields<'a> {
    pub(super) fn read(body: &'a Value) -> Self {
        let root = match body {
            Value::Array(items) => items.iter().find(|item| item.is_object()).unwrap_or(body),
            other => other,
        };
        let inside = [&root["error"], &root["response"]["error"]];
        let error = inside.into_iter().find(|error| error.is_object()).unwrap_or(root);
        let metadata = &error["metadata"];
        let google = Google::read(&error["details"]);
        let names = [
            &error["type"],
            &error["status"],
            &metadata["error_type"],
            &error["code"],
            &error["details"]["error_code"],
            &metadata["limit_source"],
        ];
        // From an envelope that says that it is an error, nothing is learned.
        let names = names.into_iter().filter_map(text_or_number).filter(|name| name != "error");
        let messages = [&error["message"], &root["error"], &root["message"], &root["detail"]];
        Self {
            names: names.chain(google.reasons.iter().cloned()).collect(),
            status: [&error["code"], &error["raw_status_code"]].into_iter().find_map(status),
            message: messages.into_iter().find_map(Value::as_str),
            request_id: [root, error].iter().find_map(|place| place["request_id"].as_str()),
            delay: google.delay.or_else(|| metadata["resets_at"].as_str()),
            headers: metadata["headers"].as_object(),
            google,
        }
    }

    /// A header field that the body repeats, whatever its case.
    pub(super) fn header(&self, name: &str) -> Option<&'a str> {
        let mut fields = self.headers?.iter().take(MAX_NAME);
        fields.find(|(known, _)| known.eq_ignore_ascii_case(name))?.1.as_str()
    }
}

/// A text that may be shown: short, and of one word. Neither a line break nor a part of somebody's
/// request gets into a log by it.
pub(super) fn name(text: &str) -> Option<String> {
    let is_name = !text.is_empty()
        && text.len() <= MAX_NAME
        && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_name.then(|| text.to_owned())
}

fn text_or_number(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => name(text),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// A code that is the status of an error.
fn status(value: &Value) -> Option<StatusCode> {
    let code = text_or_number(value)?.parse().ok()?;
    let status = StatusCode::from_u16(code).ok()?;
    (status.is_client_error() || status.is_server_error()).then_some(status)
}
