//! Values as JSON, which is what a database holds and what the admin door shows.

use serde_json::Value as Json;

use crate::values::value::{Node, Number, Value};

impl Value<'_> {
    /// The value as JSON. A number that JSON cannot have becomes null.
    pub(crate) fn json(&self) -> Json {
        match &self.node {
            Node::Null => Json::Null,
            Node::Bool(bool) => Json::Bool(*bool),
            Node::Number(Number::Whole(whole)) => (*whole).into(),
            Node::Number(Number::Negative(whole)) => (*whole).into(),
            Node::Number(Number::Float(float)) => (*float).into(),
            Node::Text(text) => Json::String(text.to_string()),
            Node::List(items) => items.iter().map(Value::json).collect(),
            Node::Table(entries) => {
                entries.iter().map(|entry| (entry.key.to_string(), entry.value.json())).collect()
            }
        }
    }
}
