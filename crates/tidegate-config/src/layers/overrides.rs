//! Settings changed at run time, which is the content of the settings database.

use std::collections::{BTreeMap, BTreeSet};

use crate::fault::{Fault, Rule};
use crate::layers::effective::Changed;
use crate::layers::tree::{Leaf, leaves};
use crate::sections::keys;
use crate::sections::redact::{redacted, truncate};
use crate::values::key_path;
use crate::values::setting::{Place, Source};
use crate::values::value::{Node, Value};

// The database schema enforces the same lengths. Changing one of these numbers needs a new schema
// version.

/// Maximum number of settings in a database.
pub const MOST_SETTINGS: usize = 4_096;

/// Maximum number of settings in one change: all of them, so that all can be unset together.
pub const MOST_CHANGES: usize = MOST_SETTINGS;

/// Maximum number of characters of a key path.
pub const LONGEST_KEY: usize = 256;

/// Maximum number of characters of a value, as JSON.
pub const LONGEST_VALUE: usize = 16_384;

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
    pub fn diff(&self, after: &Self, source: Source) -> Vec<Changed> {
        let keys: BTreeSet<_> = self.0.keys().chain(after.0.keys()).collect();
        let differs = keys.into_iter().filter(|key| self.get(key) != after.get(key));
        let changed = |key: &String| Changed {
            key: key.clone(),
            old: self.get(key).map(|text| shown_value(key, text)),
            new: after.get(key).map(|text| shown_value(key, text)),
            asked: None,
            source: after.get(key).map(|_| source),
        };
        differs.map(changed).collect()
    }

    pub(crate) fn settings_mut(&mut self) -> &mut BTreeMap<String, String> {
        &mut self.0
    }

    /// Returns the settings as values of the layer `source`. Settings that a database must not
    /// contain are added to `faults`.
    pub(crate) fn leaves<'o>(&'o self, source: Source, faults: &mut Vec<Fault>) -> Vec<Leaf<'o>> {
        let mut found = Vec::new();
        for (at, (key, text)) in self.iter().enumerate() {
            let place = Place { source, at: Some(at) };
            let Some(names) = key_path::parse(key) else {
                faults.push(Fault::of_names(&[key], Rule::NotAPath, place));
                continue;
            };
            match serde_json::from_str::<Value<'o>>(text) {
                Err(error) => {
                    let rule = Rule::Json(error.to_string());
                    faults.push(Fault::of_names(&names, rule, place));
                }
                Ok(value) => collect_leaves(&names, &value, place, &mut found, faults),
            }
        }
        found
    }
}

/// Renders a stored JSON value for a log: without secrets, long texts truncated.
///
/// ```
/// use tidegate_config::shown_value;
/// assert_eq!(shown_value("limits.client.capacity", "5"), "5");
/// assert_eq!(shown_value("providers.openai.tier", "\"sk-proj-hunter2hunter2hunter2\""), "\"...\"");
/// ```
#[must_use]
pub fn shown_value(key: &str, text: &str) -> String {
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
    place: Place,
    found: &mut Vec<Leaf<'a>>,
    faults: &mut Vec<Fault>,
) {
    for (more, value) in leaves(value) {
        let names: Vec<&str> = names.iter().map(String::as_str).chain(more).collect();
        if let Some(why) = why_fixed(&names) {
            faults.push(Fault::of_names(&names, Rule::NotOperational(why), place));
        } else if !matches!(value.node, Node::Null) {
            let names = names.into_iter().map(ToOwned::to_owned).collect();
            found.push(Leaf { names, value: with_place(value, place) });
        }
    }
}

/// Returns why a setting must not come from a database; `None` if it may, or if the key is unknown.
pub(crate) fn why_fixed(names: &[&str]) -> Option<&'static str> {
    keys::find(names)?.why_fixed()
}

/// Returns the value with `place` set on it and on its list items.
fn with_place<'a>(value: &Value<'a>, place: Place) -> Value<'a> {
    let node = match &value.node {
        Node::List(items) => Node::List(items.iter().map(|item| with_place(item, place)).collect()),
        other => other.clone(),
    };
    Value { node, place }
}

impl FromIterator<(String, String)> for Overrides {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(settings: I) -> Self {
        Self(settings.into_iter().collect())
    }
}
