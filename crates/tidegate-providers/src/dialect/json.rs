//! JSON, looked at without surprise: what is not there, or is something else, is nothing.

use serde_json::{Map, Value};

use crate::chat::ToolCall;
use crate::request::RequestError;

/// A count; zero if there is none.
pub(crate) fn count(object: &Value, name: &str) -> u64 {
    object[name].as_u64().unwrap_or(0)
}

/// A text that has something in it.
pub(crate) fn text<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object[name].as_str().filter(|text| !text.is_empty())
}

/// The elements of a list; none if it is no list.
pub(crate) fn list<'a>(object: &'a Value, name: &str) -> &'a [Value] {
    object[name].as_array().map_or(&[], Vec::as_slice)
}

/// Whether an object is the report of an error, in the words of any provider.
pub(crate) fn is_error(object: &Value) -> bool {
    !object["error"].is_null() || object["object"] == "error" || object["type"] == "error"
}

/// The arguments of a call as an object. No text at all is an object without members, as a tool
/// that takes nothing may be called with nothing.
pub(crate) fn arguments(call: &ToolCall) -> Result<Value, RequestError> {
    if call.arguments.trim().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    let arguments = serde_json::from_str(&call.arguments).ok().filter(Value::is_object);
    arguments.ok_or_else(|| RequestError::Arguments { tool: call.name.clone() })
}

/// Sets a member if there is a value for it.
pub(crate) fn set(object: &mut Map<String, Value>, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        object.insert(name.to_owned(), value.into());
    }
}

/// Appends a part to the turn of a role, which is begun if the last turn is another's. Providers
/// with such turns want all results of tools in one.
pub(crate) fn append(turns: &mut Vec<Value>, role: &str, parts: &str, part: Value) {
    let same = turns.last_mut().filter(|turn| turn["role"] == role);
    if let Some(list) = same.and_then(|turn| turn[parts].as_array_mut()) {
        list.push(part);
        return;
    }
    let mut turn = Map::new();
    turn.insert("role".to_owned(), role.into());
    turn.insert(parts.to_owned(), Value::Array(vec![part]));
    turns.push(Value::Object(turn));
}

/// Puts members into a body. They win; an object is put together with the one that is there.
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
