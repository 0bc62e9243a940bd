//! JSON Schema of the configuration file, generated from the table of keys.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use crate::layers::file::DEFAULT_FILE;
use crate::layers::toml_text;
use crate::layers::tree::leaves;
use crate::sections::keys::{KnownKey, known_keys};
use crate::values::setting::Source;

/// Returns the JSON Schema (draft 2020-12) of the configuration file, for editors and validators.
///
/// Rules that a schema cannot express, such as that a policy has one kind, are checked by `tidegate
/// check`.
///
/// ```
/// assert!(tidegate_config::schema().contains("\"backpressure_threshold\""));
/// ```
#[must_use]
pub fn schema() -> String {
    let mut violations = Vec::new();
    let file = toml_text::parse(DEFAULT_FILE, Source::Default, &mut violations);
    let defaults = leaves(&file);
    let defaults = defaults.iter().map(|(names, value)| (names.join("."), value.json())).collect();
    let mut top = SchemaTable::default();
    for key in known_keys() {
        top.add(key.path().split('.'), key, &defaults);
    }
    let mut schema = top.schema();
    schema.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
    schema.insert("title".into(), "tidegate.toml".into());
    let mut text = format!("{:#}", Json::Object(schema));
    text.push('\n');
    text
}

/// One table of the file.
#[derive(Default)]
struct SchemaTable {
    leaves: BTreeMap<&'static str, Json>,
    tables: BTreeMap<&'static str, Self>,
}

impl SchemaTable {
    fn add(
        &mut self,
        mut parts: impl Iterator<Item = &'static str> + Clone,
        key: &KnownKey,
        defaults: &BTreeMap<String, Json>,
    ) {
        let Some(part) = parts.next() else { return };
        if parts.clone().next().is_some() {
            return self.tables.entry(part).or_default().add(parts, key, defaults);
        }
        let mut leaf = key.kind().schema();
        leaf["description"] = key.description().into();
        let default = key.default().and_then(|json| serde_json::from_str(json).ok());
        if let Some(default) = defaults.get(key.path()).cloned().or(default) {
            leaf["default"] = default;
        }
        if let Some(why) = key.unused_reason() {
            leaf["x-unused"] = why.into();
        }
        if let Some(why) = key.library_reason() {
            leaf["x-library"] = why.into();
        }
        self.leaves.insert(part, leaf);
    }

    fn schema(mut self) -> Map<String, Json> {
        let wildcard_leaf = self.leaves.remove("*");
        let wildcard_table = self.tables.remove("*");
        let mut properties: Map<String, Json> =
            self.leaves.into_iter().map(|(key, leaf)| (key.to_owned(), leaf)).collect();
        for (key, table) in self.tables {
            let mut table = table.schema();
            // A key may take a list or a table, as `providers.*.models` does.
            if let Some(Json::Object(mut leaf)) = properties.remove(key) {
                let kinds = json!([leaf.remove("type"), "object"]);
                table.extend(leaf);
                table.insert("type".into(), kinds);
            }
            properties.insert(key.to_owned(), Json::Object(table));
        }
        let wildcard_table = wildcard_table.map(|table| Json::Object(table.schema()));
        let others = wildcard_table.or(wildcard_leaf).unwrap_or(json!(false));
        let mut schema = Map::new();
        schema.insert("additionalProperties".into(), others);
        if !properties.is_empty() {
            schema.insert("properties".into(), Json::Object(properties));
        }
        schema.insert("type".into(), "object".into());
        schema
    }
}
