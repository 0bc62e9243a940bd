//! Settings changed at run time, which is the content of the settings database.

use std::collections::{BTreeMap, BTreeSet};

use crate::layers::effective::SettingChange;
use crate::layers::tree::{Leaf, leaves};
use crate::sections::keys;
use crate::sections::redact::{redacted, truncate};
use crate::values::key_path;
use crate::values::setting::{Position, Source};
use crate::values::value::{Node, Value};
use crate::violation::{Rule, Violation};

// The database schema enforces the same lengths. Changing one of these numbers needs a new schema
// version.

/// Maximum number of settings in a database.
pub const MAX_SETTINGS: usize = 4_096;

/// Maximum number of settings in one change: all of them, so that all can be unset together.
pub const MAX_CHANGES: usize = MAX_SETTINGS;

/// Maximum number of characters of a key path.
pub const MAX_KEY_CHARS: usize = 256;

/// Maximum number of characters of a value, as JSON.
pub const MAX_VALUE_CHARS: usize = 16_384;

/// Operational settings by key path, each value as JSON text. A null counts as unset.
///
/// ```
/// use tidegate_config::Overrides;
/// let stored = [("limits.client.rate".to_owned(), "\"10/s\"".to_owned())];
/// let overrides: Overrides = stored.into_iter().collect();
/// assert_eq!(overrides.get("limits.client.rate"), Some("\"10/s\""));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides(BTreeMap<String, String>);

impl Overrides {
    /// Creates an empty set of overrides.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Iterates over keys and JSON values, sorted by key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Returns the JSON value of `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Returns whether there are no settings.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of settings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Compares with the overrides `after` of the layer `source`. Values are as stored, without
    /// secrets; long texts are truncated.
    ///
    /// Unlike [`diff`](crate::diff), which compares effective settings, this includes stored values
    /// that never became effective.
    #[must_use]
    pub fn diff(&self, after: &Self, source: Source) -> Vec<SettingChange> {
        let keys: BTreeSet<_> = self.0.keys().chain(after.0.keys()).collect();
        let differs = keys.into_iter().filter(|key| self.get(key) != after.get(key));
        let changed = |key: &String| SettingChange {
            key: key.clone(),
            old: self.get(key).map(|text| redacted_value(key, text)),
            new: after.get(key).map(|text| redacted_value(key, text)),
            configured: None,
            source: after.get(key).map(|_| source),
        };
        differs.map(changed).collect()
    }

    pub(crate) fn settings_mut(&mut self) -> &mut BTreeMap<String, String> {
        &mut self.0
    }

    /// Returns the settings as values of the layer `source`. Settings that a database must not
    /// contain are added to `violations`.
    pub(crate) fn leaves<'o>(
        &'o self,
        source: Source,
        violations: &mut Vec<Violation>,
    ) -> Vec<Leaf<'o>> {
        let mut found = Vec::new();
        for (at, (key, text)) in self.iter().enumerate() {
            let position = Position { source, at: Some(at) };
            let Some(names) = key_path::parse(key) else {
                violations.push(Violation::of_names(&[key], Rule::NotAPath, position));
                continue;
            };
            match serde_json::from_str::<Value<'o>>(text) {
                Err(error) => {
                    let rule = Rule::Json(error.to_string());
                    violations.push(Violation::of_names(&names, rule, position));
                }
                Ok(value) => collect_leaves(&names, &value, position, &mut found, violations),
            }
        }
        found
    }
}

/// Renders a stored JSON value for a log: without secrets, long texts truncated.
///
/// ```
/// use tidegate_config::redacted_value;
/// assert_eq!(redacted_value("limits.client.capacity", "5"), "5");
/// assert_eq!(redacted_value("providers.openai.tier", "\"sk-proj-hunter2hunter2hunter2\""), "\"...\"");
/// ```
#[must_use]
pub fn redacted_value(key: &str, text: &str) -> String {
    let names = key_path::parse(key).unwrap_or_default();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    match serde_json::from_str::<Value<'_>>(text) {
        Ok(value) => truncate(&redacted(&names, &value).to_string()),
        Err(_) => truncate(text),
    }
}

/// Collects the values of one setting, which may be a table, and reports those that a database must
/// not contain.
fn collect_leaves<'a>(
    names: &[String],
    value: &Value<'a>,
    position: Position,
    found: &mut Vec<Leaf<'a>>,
    violations: &mut Vec<Violation>,
) {
    for (more, value) in leaves(value) {
        let names: Vec<&str> = names.iter().map(String::as_str).chain(more).collect();
        if let Some(why) = not_in_database_reason(&names) {
            violations.push(Violation::of_names(&names, Rule::NotInDatabase(why), position));
        } else if !matches!(value.node, Node::Null) {
            let names = names.into_iter().map(ToOwned::to_owned).collect();
            found.push(Leaf { names, value: with_position(value, position) });
        }
    }
}

/// Returns why a setting must not come from a database; `None` if it may, or if the key is unknown.
pub(crate) fn not_in_database_reason(names: &[&str]) -> Option<&'static str> {
    keys::find(names)?.not_in_database_reason()
}

/// Returns the value with `position` set on it and on its list items.
fn with_position<'a>(value: &Value<'a>, position: Position) -> Value<'a> {
    let node = match &value.node {
        Node::List(items) => {
            Node::List(items.iter().map(|item| with_position(item, position)).collect())
        }
        other => other.clone(),
    };
    Value { node, position }
}

impl FromIterator<(String, String)> for Overrides {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(settings: I) -> Self {
        Self(settings.into_iter().collect())
    }
}
