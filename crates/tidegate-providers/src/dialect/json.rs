//! Lenient access to JSON: a missing value, or one of another type, counts as absent.

use serde_json::{Map, Value};

use crate::chat::ToolCall;
use crate::request::RequestError;

/// Returns a count; zero if it is absent.
pub(crate) fn count(object: &Value, name: &str) -> u64 {
    object[name].as_u64().unwrap_or(0)
}

/// Returns a string unless it is empty.
pub(crate) fn text<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object[name].as_str().filter(|text| !text.is_empty())
}

/// Returns the elements of a list; empty if it is absent.
pub(crate) fn list<'a>(object: &'a Value, name: &str) -> &'a [Value] {
    object[name].as_array().map_or(&[], Vec::as_slice)
}

/// Returns whether an object is an error report of any provider.
pub(crate) fn is_error(object: &Value) -> bool {
    !object["error"].is_null() || object["object"] == "error" || object["type"] == "error"
}

/// Parses the arguments of a call as an object. Empty text is an empty object, since a tool may
/// take no arguments.
pub(crate) fn arguments(call: &ToolCall) -> Result<Value, RequestError> {
    if call.arguments.trim().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    let arguments = serde_json::from_str(&call.arguments).ok().filter(Value::is_object);
    arguments.ok_or_else(|| RequestError::Arguments { tool: call.name.clone() })
}

/// Sets a member if there is a value.
pub(crate) fn set(object: &mut Map<String, Value>, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        object.insert(name.to_owned(), value.into());
    }
}

/// Appends a part to the last message if it has this role, or else to a new message. Providers with
/// such messages expect all tool results in one.
pub(crate) fn append(messages: &mut Vec<Value>, role: &str, parts: &str, part: Value) {
    let same = messages.last_mut().filter(|message| message["role"] == role);
    if let Some(list) = same.and_then(|message| message[parts].as_array_mut()) {
        list.push(part);
        return;
    }
    let mut message = Map::new();
    message.insert("role".to_owned(), role.into());
    message.insert(parts.to_owned(), Value::Array(vec![part]));
    messages.push(Value::Object(message));
}

/// Merges members into a body, replacing existing values. Objects are merged one level deep.
pub(crate) fn merge(body: &mut Map<String, Value>, members: &Map<String, Value>) {
    for (name, value) in members {
        match (body.get_mut(name), value) {
            (Some(Value::Object(known)), Value::Object(more)) => {
                known.extend(more.iter().map(|(name, value)| (name.clone(), value.clone())));
            }
            _ => {
                body.insert(name.clone(), value.clone());
            }
        }
    }
}
