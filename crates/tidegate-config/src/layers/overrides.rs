//! What a database holds: settings that were changed while the program ran.

use std::collections::{BTreeMap, BTreeSet};

use crate::fault::{Fault, Rule};
use crate::layers::effective::Changed;
use crate::layers::tree::{Leaf, leaves};
use crate::sections::keys;
use crate::sections::redact::{redacted, truncate};
use crate::values::key_path;
use crate::values::setting::{Place, Source};
use crate::values::value::{Node, Value};

// The limits of the tables of databases name the lengths as well, and a published format does not
// change: another number here needs another format there.

/// The most settings that a database keeps.
pub const MOST_SETTINGS: usize = 4_096;

/// The most settings that are changed at once: all of them, so that all of them can be unset.
pub const MOST_CHANGES: usize = MOST_SETTINGS;

/// The most characters of the path of a setting.
pub const LONGEST_KEY: usize = 256;

/// The most characters of a value, as JSON.
pub const LONGEST_VALUE: usize = 16_384;

/// Operational settings by path, each a JSON value as text. A null is as good as nothing.
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
    /// Nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The settings, by path.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The value of one, as JSON.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// What differs in other overrides of the layer `source`, as it is written there and without
    /// secrets; long texts are cut. [`diff`](crate::diff) has what is in force; this has also what
    /// was written and never was in force.
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

    /// The settings as values of the layer `source`. What does not belong into a database is told.
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

/// A stored value, given as JSON, as a log may have it: without secrets, and long texts cut.
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

/// The values of one setting, which may be a table, as far as a database may hold them.
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

/// Why a setting never comes from a database; `None` if it may, or if nobody knows it.
pub(crate) fn why_fixed(names: &[&str]) -> Option<&'static str> {
    keys::find(names)?.why_fixed()
}

/// The value with its place, items of lists included.
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
