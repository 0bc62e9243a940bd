//! Descriptions of keys, for the reference page of settings.
//!
//! They are derived from what the program uses: the table of keys, the effective defaults, the
//! flags, and the validation functions.

use serde::Serialize;
use serde_json::Value as Json;

use crate::layers::flags::Key;
use crate::layers::loader::Loader;
use crate::layers::patch::max_in_database;
use crate::layers::variables::unprefixed_variables;
use crate::sections::keys::KnownKey;
use crate::values::value::{Node, Number, Value};
use crate::values::value_kind::{DURATION, ValueKind};

/// Description of a configuration key, for documentation.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct KeyDescription {
    /// Path in the file; `*` stands for a name chosen by the user.
    pub path: &'static str,
    /// Purpose of the key, in a sentence.
    #[serde(rename = "about")]
    pub description: &'static str,
    /// Accepted values and their bounds.
    pub values: String,
    /// Default value, if there is one.
    pub default: Option<Json>,
    /// Default values of names that exist by default, such as `client`.
    pub default_by_name: Vec<(String, Json)>,
    /// Name of the environment variable.
    pub variable: String,
    /// Additional variables without the `TIDEGATE_` prefix.
    #[serde(rename = "plain_variables")]
    pub unprefixed_variables: Vec<String>,
    /// The command-line flag.
    pub flag: Option<&'static str>,
    /// Why the key must not come from the database; `None` if it may.
    #[serde(rename = "why_fixed")]
    pub not_in_database_reason: Option<&'static str>,
    /// Whether a change takes effect only after a restart.
    pub needs_restart: bool,
    /// Why setting the key has no effect; `None` if it has one.
    #[serde(rename = "why_unused")]
    pub unused_reason: Option<&'static str>,
    /// Why the key has no effect in the program, but only in the library.
    #[serde(rename = "why_library")]
    pub library_reason: Option<&'static str>,
}

impl KnownKey {
    /// Describes the key.
    ///
    /// ```
    /// let key = tidegate_config::known_keys().find(|key| key.path() == "listen.http").unwrap();
    /// let described = key.describe();
    /// assert_eq!(described.default, Some("127.0.0.1:8080".into()));
    /// assert_eq!(described.flag, Some("--http"));
    /// assert!(described.needs_restart);
    /// ```
    #[must_use]
    pub fn describe(&self) -> KeyDescription {
        let path = self.path();
        let defaults = defaults();
        let own_default =
            defaults.iter().find(|(known, _)| known == path).map(|(_, value)| value.clone());
        let named_default =
            |(known, value): &(String, Json)| Some((wildcard_match(path, known)?, value.clone()));
        let flag = Key::ALL.into_iter().find(|key| key.path() == path).map(Key::flag);
        KeyDescription {
            path,
            description: self.description(),
            values: self.values(),
            default: own_default.or_else(|| serde_json::from_str(self.default()?).ok()),
            default_by_name: defaults.iter().filter_map(named_default).collect(),
            variable: self.variable(),
            unprefixed_variables: unprefixed_variables(path),
            flag: flag.filter(|flag| flag.starts_with("--")),
            not_in_database_reason: self.not_in_database_reason(),
            needs_restart: self.needs_restart(),
            unused_reason: self.unused_reason(),
            library_reason: self.library_reason(),
        }
    }

    /// Describes the accepted values, by the kind of the key and by the errors that its check
    /// returns for invalid values.
    fn values(&self) -> String {
        match self.kind() {
            ValueKind::Switch => "`true` or `false`".to_owned(),
            ValueKind::Words(words) => format!("one of `{}`", words.join("`, `")),
            ValueKind::Whole(min, u64::MAX) => format!("a whole number, at least {min}"),
            ValueKind::Whole(min, max) => {
                let names: Vec<_> = self.path().split('.').collect();
                let max_stored = max_in_database(&names);
                let max_stored = max_stored.map(|max| format!("; at most {max} in the database"));
                format!("a whole number from {min} to {max}{}", max_stored.unwrap_or_default())
            }
            ValueKind::Number => {
                let rules = self.rules([-1.0, f64::MAX].map(|it| Node::Number(Number::Float(it))));
                match rules.as_str() {
                    "" => "a number, at least 0".to_owned(),
                    rules if rules.starts_with("a number") => rules.to_owned(),
                    rules => format!("a number {rules}"),
                }
            }
            DURATION => {
                let zero = self.check(&Value::text("0ms"));
                let min = if zero.is_ok() { "0ms" } else { "1ms" };
                format!("a duration from {min} to 24h, such as `500ms`, `10s`, `2m`")
            }
            ValueKind::Size => self.rules(["", "1B", "9999999TiB"].map(text)),
            ValueKind::Texts => match self.rules(["\u{0}"].map(text)).as_str() {
                "" => "a list of strings".to_owned(),
                rules => format!("a list of strings: {rules}"),
            },
            _ => match self.rules(["", "\u{0}"].map(text)).as_str() {
                "" => "any string".to_owned(),
                rules => rules.to_owned(),
            },
        }
    }

    /// Returns the distinct rules by which the check rejects `values`.
    fn rules(&self, values: impl IntoIterator<Item = Node<'static>>) -> String {
        let mut rules: Vec<String> = Vec::new();
        for node in values {
            let Err(rule) = self.check(&Value::from(node)) else { continue };
            let rule = rule.to_string();
            // Strip what precedes the description of valid values, including a repeated value.
            let description =
                ["must be ", " is not "].into_iter().find_map(|word| rule.split_once(word));
            let rule = description.map_or(rule.as_str(), |(_, rule)| rule).to_owned();
            rules.extend((!rules.contains(&rule)).then_some(rule));
        }
        rules.join("; ")
    }
}

fn text(text: &'static str) -> Node<'static> {
    Node::Text(text.into())
}

/// Returns the effective settings of an empty configuration, except `state_dir`, which depends on
/// the user.
fn defaults() -> Vec<(String, Json)> {
    let defaults = Loader::default().text_layers("none", "").effective().into_iter();
    let defaults = defaults.filter(|it| it.key != "state_dir");
    defaults.filter_map(|it| Some((it.key, serde_json::from_str(&it.value).ok()?))).collect()
}

/// Returns the part of `path` that matches the wildcard of `pattern`.
fn wildcard_match(pattern: &str, path: &str) -> Option<String> {
    let (before, after) = pattern.split_once('*')?;
    let name = path.strip_prefix(before)?.strip_suffix(after)?;
    (!name.contains('.')).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sections::keys::known_keys;

    fn described(path: &str) -> KeyDescription {
        known_keys().find(|key| key.path() == path).unwrap().describe()
    }

    #[test]
    fn values_are_described_with_their_bounds() {
        for (path, values) in [
            ("store.expected_nodes", "a whole number from 1 to 4294967295"),
            ("limits.*.quota", "a whole number, at least 1"),
            ("store.overflow", "one of `shared`, `deny`"),
            ("providers.*.max_wait", "a duration from 0ms to 24h, such as `500ms`, `10s`, `2m`"),
        ] {
            assert_eq!(described(path).values, values, "{path}");
        }
        let stored = described("providers.*.max_concurrent_requests").values;
        assert!(stored.ends_with("; at most 100 in the database"), "{stored}");
        assert!(described("providers.*.idle_timeout").values.contains("from 1ms to 24h"));
        let size = described("store.max_memory").values;
        assert!(size.contains("at least 1MiB") && size.contains("at most 1TiB"), "{size}");
        assert!(described("listen.http").values.contains("127.0.0.1:8080"));
        assert!(described("limits.*.zone").values.starts_with("a time zone"));
        assert!(
            described("limits.*.tokens_per_second").values.starts_with("a number > 0; at most")
        );
        let factor = described("providers.*.burst_factor").values;
        assert!(factor.starts_with("a number from 1.0 to 86400.0"), "{factor}");
    }

    #[test]
    fn defaults_come_from_named_entries_or_the_table() {
        assert_eq!(described("providers.*.max_wait").default, Some("120s".into()));
        let rate = described("limits.*.rate");
        let named_default = [("client", "50/s"), ("organization", "500/s")];
        let named_default = named_default.map(|(name, rate)| (name.to_owned(), Json::from(rate)));
        assert_eq!((rate.default, rate.default_by_name), (None, named_default.to_vec()));
        let retries = described("providers.*.max_retries").default_by_name;
        assert!(retries.contains(&("ollama".to_owned(), 3.into())), "{retries:?}");
    }

    #[test]
    fn keys_read_only_at_the_start_need_a_restart_and_are_never_stored_in_the_database() {
        let sections = ["state_dir", "listen.", "store.", "database."];
        for key in known_keys() {
            let is_used = key.unused_reason().is_none();
            let at_start = is_used && sections.iter().any(|start| key.path().starts_with(start));
            assert_eq!(described(key.path()).needs_restart, at_start, "{}", key.path());
            assert!(!at_start || key.not_in_database_reason().is_some(), "{}", key.path());
        }
    }

    #[test]
    fn unprefixed_variables_are_described() {
        let plain = |path| described(path).unprefixed_variables;
        assert_eq!(plain("providers.*.max_retries"), ["*_MAX_RETRIES"]);
        assert!(plain("providers.*.max_wait").is_empty());
        assert!(plain("providers.*.endpoints.*.max_concurrent_requests").is_empty());
    }
}
