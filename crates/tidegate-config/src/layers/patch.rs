//! Changes of settings at run time.
//!
//! A patch only contains the keys to set and unset. Whether the resulting configuration is valid is
//! checked by [`Layers::validate`](crate::Layers::validate) on the patched layers.

use std::collections::BTreeMap;

use crate::error::ConfigError;
use crate::layers::conflicts::conflict;
use crate::layers::overrides::{
    MAX_CHANGES, MAX_KEY_CHARS, MAX_VALUE_CHARS, Overrides, not_in_database_reason,
};
use crate::layers::tree::leaves;
use crate::sections::keys;
use crate::values::fields::{Fields, Path};
use crate::values::key_path;
use crate::values::setting::Position;
use crate::values::value::{Node, Value};
use crate::values::value_kind::ValueKind;
use crate::violation::{Rule, Violation};

/// Maximum concurrency that can be stored in a database.
const MAX_STORED_CONCURRENCY: u64 = 100;

/// A change of settings: keys to set and keys to unset.
///
/// ```
/// use tidegate_config::{Overrides, Patch};
/// let patch = Patch::from_json(br#"{"limits": {"client": {"rate": "10/s", "max_debt": null}}}"#)?;
/// patch.check()?;
/// let overrides = patch.apply(&Overrides::new());
/// assert_eq!(overrides.get("limits.client.rate"), Some("\"10/s\""));
/// assert!(Patch::default().set("listen.http", "0.0.0.0:80").check().is_err());
/// # Ok::<(), tidegate_config::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a patch has no effect until it is applied with `apply`"]
pub struct Patch {
    /// JSON values by key path; `None` unsets the key.
    changes: BTreeMap<String, Option<String>>,
}

impl Patch {
    /// Parses a JSON merge patch (RFC 7396), in which null unsets a key.
    ///
    /// # Errors
    /// If the body is not a JSON object, contains a duplicate key, or has more than
    /// [`MAX_CHANGES`] keys.
    pub fn from_json(body: &[u8]) -> Result<Self, ConfigError> {
        let value = serde_json::from_slice::<Value<'_>>(body).map_err(|error| {
            ConfigError::of_change(vec![violation(&[], Rule::Json(error.to_string()))])
        })?;
        let mut violations = Vec::new();
        check_tables(&value, Path::Root, &mut violations);
        let leaves = leaves(&value);
        if leaves.len() > MAX_CHANGES {
            violations.push(violation(&[], Rule::TooManyKeys(MAX_CHANGES)));
        }
        if !violations.is_empty() {
            return Err(ConfigError::of_change(violations));
        }
        let change = |(names, value): (Vec<&str>, &Value<'_>)| {
            let is_set = !matches!(value.node, Node::Null);
            (key_path::join(&names), is_set.then(|| value.json().to_string()))
        };
        Ok(Self { changes: leaves.into_iter().map(change).collect() })
    }

    /// Sets a key, from text as in an environment variable (`8`, `50/s`, `true`) or from JSON.
    pub fn set(mut self, key: &str, text: &str) -> Self {
        let names = key_path::parse(key);
        let known = names.as_ref().and_then(|names| keys::find(names));
        let kind = known.map_or(ValueKind::Text, keys::KnownKey::kind);
        let json = kind.read_json(text);
        self.changes.insert(key.to_owned(), (!json.is_null()).then(|| json.to_string()));
        self
    }

    /// Unsets a key, or all keys of a section.
    pub fn unset(mut self, key: &str) -> Self {
        self.changes.insert(key.to_owned(), None);
        self
    }

    /// Iterates over the changed keys with their JSON values; `None` unsets the key.
    pub fn changes(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.changes.iter().map(|(key, value)| (key.as_str(), value.as_deref()))
    }

    /// Returns `overrides` with this change applied. A key that is set removes conflicting
    /// keys: a `quota` replaces a `rate`.
    #[must_use]
    pub fn apply(&self, overrides: &Overrides) -> Overrides {
        let mut after = overrides.clone();
        let settings = after.settings_mut();
        let keys_to_set = || self.changes().filter_map(|(key, value)| Some((key, value?)));
        for (key, _) in self.changes().filter(|(_, value)| value.is_none()) {
            let prefix = format!("{key}.");
            settings.remove(key);
            let inner =
                settings.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
            let inner: Vec<_> = inner.map(|(path, _)| path.clone()).collect();
            inner.iter().for_each(|path| drop(settings.remove(path)));
        }
        for (key, _) in keys_to_set() {
            let Some(names) = key_path::parse(key) else { continue };
            let Some((last, table)) = names.split_last() else { continue };
            let prefix = format!("{}.", key_path::join(table));
            let siblings =
                settings.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
            let is_removed = |path: &&String| {
                let is_changed_too = self.changes.contains_key(*path);
                !is_changed_too && conflict(table, last, &path[prefix.len()..])
            };
            let removed: Vec<_> =
                siblings.map(|(path, _)| path).filter(is_removed).cloned().collect();
            removed.iter().for_each(|path| drop(settings.remove(path)));
        }
        settings.extend(keys_to_set().map(|(key, value)| (key.to_owned(), value.to_owned())));
        after
    }

    /// Returns the settings that this change modifies, each with its new value: what must be
    /// written to the database.
    #[must_use]
    pub fn difference(&self, before: &Overrides) -> Vec<(String, Option<String>)> {
        let after = self.apply(before);
        let removed = before.iter().filter(|(key, _)| after.get(key).is_none());
        let removed = removed.map(|(key, _)| (key.to_owned(), None));
        let set = after.iter().filter(|(key, value)| before.get(key) != Some(value));
        removed.chain(set.map(|(key, value)| (key.to_owned(), Some(value.to_owned())))).collect()
    }

    /// Checks every key by itself: that it is known, may be stored in a database, and has a valid
    /// value.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] with all violations, by key.
    pub fn check(&self) -> Result<(), ConfigError> {
        let mut violations = Vec::new();
        if self.changes.len() > MAX_CHANGES {
            violations.push(violation(&[], Rule::TooManyKeys(MAX_CHANGES)));
        }
        for (key, value) in self.changes().take(MAX_CHANGES) {
            violations.extend(check_key(key, value));
        }
        if violations.is_empty() { Ok(()) } else { Err(ConfigError::of_change(violations)) }
    }
}

fn violation(names: &[&str], rule: Rule) -> Violation {
    Violation::of_names(names, rule, Position::default())
}

/// Reports duplicate keys, and a body that is not a table.
fn check_tables(value: &Value<'_>, path: Path<'_>, violations: &mut Vec<Violation>) {
    let Some(fields) = Fields::open_any(value, path, violations) else { return };
    for entry in fields.entries() {
        if matches!(entry.value.node, Node::Table(_)) {
            check_tables(&entry.value, Path::Key(&path, &entry.key), violations);
        }
    }
}

/// Checks one key of a change.
fn check_key(key: &str, value: Option<&str>) -> Option<Violation> {
    if exceeds(key, MAX_KEY_CHARS) {
        return Some(violation(&[key], Rule::TooLong(MAX_KEY_CHARS)));
    }
    let Some(names) = key_path::parse(key) else {
        return Some(violation(&[key], Rule::NotAPath));
    };
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    if let Some(why) = not_in_database_reason(&names) {
        return Some(violation(&names, Rule::NotInDatabase(why)));
    }
    // Unknown keys can be unset, so that a database can be cleaned up.
    let value = value?;
    if exceeds(value, MAX_VALUE_CHARS) {
        return Some(violation(&names, Rule::TooLong(MAX_VALUE_CHARS)));
    }
    match serde_json::from_str::<Value<'_>>(value) {
        Ok(parsed) => Some(Violation::at_names(&names, &parsed, violated_rule(&names, &parsed)?)),
        Err(error) => Some(violation(&names, Rule::Json(error.to_string()))),
    }
}

/// Returns whether `text` has more than `max` characters.
fn exceeds(text: &str, max: usize) -> bool {
    text.chars().nth(max).is_some()
}

/// Returns the maximum for a key in the database, if it is lower than in the file.
pub(crate) fn max_in_database(names: &[&str]) -> Option<u64> {
    matches!(names, ["providers", .., "max_concurrent_requests"]).then_some(MAX_STORED_CONCURRENCY)
}

fn violated_rule(names: &[&str], value: &Value<'_>) -> Option<Rule> {
    let Some(known) = keys::find(names) else {
        return Some(unknown_key_rule(names));
    };
    if let Some(max) = max_in_database(names) {
        return value.to_whole_between(1, max).err();
    }
    known.check(value).err()
}

/// Returns the rule for an unknown key, with a suggestion for its first unknown part.
pub(crate) fn unknown_key_rule(names: &[&str]) -> Rule {
    let mut pattern = String::new();
    for name in names {
        let known = keys::below(&pattern);
        if !known.is_empty() && !known.contains(name) {
            return Rule::unknown(name, &known);
        }
        if !pattern.is_empty() {
            pattern.push('.');
        }
        pattern.push_str(if known.is_empty() { "*" } else { name });
    }
    Rule::NotAPath
}
