//! Structured fields of an error body.
//!
//! The error is the member `error`, an object or a string (Ollama); the member `response.error` in
//! events of OpenAI's Responses API; or the body itself (Mistral). Gemini's streaming endpoint
//! wraps it in an array.

use http::StatusCode;
use serde_json::Value;

use super::google::Google;

/// Maximum length of a type, code or id in bytes. Longer ones are ignored.
const MAX_NAME: usize = 100;

/// Fields found in an error body, all optional.
#[derive(Debug, Default)]
pub(super) struct Fields<'a> {
    /// Type, code and reasons, most specific first.
    pub(super) names: Vec<String>,
    /// Status that an error in a stream carries as its code.
    pub(super) status: Option<StatusCode>,
    pub(super) message: Option<&'a str>,
    pub(super) request_id: Option<&'a str>,
    /// Delay until a retry, as written in the body.
    pub(super) delay: Option<&'a str>,
    /// Google's `details`.
    pub(super) google: Google<'a>,
    /// Headers of the upstream provider, repeated by OpenRouter.
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
        // The type `error` of an envelope says nothing about the error.
        let names = names.into_iter().filter_map(text_or_number).filter(|name| name != "error");
        let messages = [&error["message"], &root["error"], &root["message"], &root["detail"]];
        Self {
            names: names.chain(google.reasons.iter().cloned()).collect(),
            status: [&error["code"], &error["raw_status_code"]].into_iter().find_map(status),
            message: messages.into_iter().find_map(Value::as_str),
            request_id: [root, error].iter().find_map(|object| object["request_id"].as_str()),
            delay: google.delay.or_else(|| metadata["resets_at"].as_str()),
            headers: metadata["headers"].as_object(),
            google,
        }
    }

    /// Returns a header that the body repeats, ignoring case.
    pub(super) fn header(&self, name: &str) -> Option<&'a str> {
        let mut fields = self.headers?.iter().take(MAX_NAME);
        fields.find(|(known, _)| known.eq_ignore_ascii_case(name))?.1.as_str()
    }
}

/// Returns a text that is safe to log: short and without whitespace, so that neither line breaks
/// nor parts of a prompt reach the log.
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

/// Parses a code that is an HTTP error status.
fn status(value: &Value) -> Option<StatusCode> {
    let code = text_or_number(value)?.parse().ok()?;
    let status = StatusCode::from_u16(code).ok()?;
    (status.is_client_error() || status.is_server_error()).then_some(status)
}
