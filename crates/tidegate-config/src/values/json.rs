//! Conversion of values to JSON, for the database and the admin API.

use serde_json::Value as Json;

use crate::values::value::{Node, Number, Value};

impl Value<'_> {
    /// Converts the value to JSON. Infinite numbers and NaN become null.
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
