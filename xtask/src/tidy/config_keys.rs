//! Configuration keys that no code reads.
//!
//! The keys come from the schema, which tests of tidegate-config keep equal to its table. A key is
//! read when a program that has a plan takes the value of its setting, `.name.value`, or calls what
//! the configuration makes of several keys. Comments, strings and tests do not count.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::scrub::production_code;
use super::{Findings, TextFile};

const SCHEMA: &str = "crates/tidegate-config/tidegate.schema.json";

/// The crates that act on a plan.
const READERS: &[&str] = &["crates/tidegate-server/src/", "crates/tidegate-cli/src/"];

/// Keys that leave the configuration as parts of something else, and how a program takes that.
/// A pattern that ends with a dot stands for everything below it.
const CONVERTED: &[(&str, &str)] = &[
    ("limits.*.", ".limits.by_name"),
    ("admission.allow_organizations", ".admission.rules("),
    ("admission.backpressure_threshold", ".admission.rules("),
    ("admission.jitter_percent", ".admission.rules("),
    ("admission.mode", ".admission.rules("),
    ("providers.*.api_key_env", "plan.credential()"),
    ("providers.*.dialect", "plan.dialect()"),
    ("providers.*.endpoints.", "plan.endpoints"),
    ("providers.*.requests_per_minute", "plan.constraint()"),
    ("providers.*.tokens_per_minute", "plan.constraint()"),
    ("providers.*.input_tokens_per_minute", "plan.constraint()"),
    ("providers.*.output_tokens_per_minute", "plan.constraint()"),
    ("providers.*.requests_per_day", "plan.constraint()"),
    ("providers.*.requests_per_day_zone", "plan.constraint()"),
    ("providers.*.min_interval_ms", "plan.constraint()"),
    ("providers.*.burst_factor", "plan.constraint()"),
    ("providers.*.burst_capacity", "plan.constraint()"),
];

/// Keys that are accepted and that no code reads yet. The list only shrinks: a key that is on it
/// and is read, or no longer exists, is a finding.
const STILL_UNREAD: &[&str] = &[
    "listen.resp",
    "modules.rate_limit.burst_capacity",
    "modules.rate_limit.enabled",
    "modules.rate_limit.requests_per_minute",
    "providers.*.tier",
];

/// Every key of the schema is read by some code.
pub(super) fn check(files: &[TextFile], findings: &mut Findings) -> Result<()> {
    let schema = files.iter().find(|file| file.path == SCHEMA);
    let schema = schema.with_context(|| format!("there is no {SCHEMA}"))?;
    let keys = keys(&serde_json::from_str(&schema.text).context(SCHEMA)?);
    let is_reader = |file: &&TextFile| READERS.iter().any(|folder| file.path.starts_with(folder));
    let code = files.iter().filter(is_reader).map(|file| dense(&production_code(file)));
    let code: Vec<String> = code.collect();
    check_keys(&keys, STILL_UNREAD, &code, findings);
    Ok(())
}

fn check_keys(
    keys: &BTreeSet<String>,
    still_unread: &[&str],
    code: &[String],
    findings: &mut Findings,
) {
    for key in keys {
        let listed = still_unread.contains(&key.as_str());
        match is_read(key, keys, code) {
            true if listed => findings.error(key, "is read now. Take it off STILL_UNREAD"),
            false if !listed => findings.error(
                key,
                "is a configuration key that no code reads. Make it work, or remove it; if the \
                 configuration makes something else of it, say how in xtask/src/tidy/config_keys.rs",
            ),
            _ => {}
        }
    }
    for key in still_unread.iter().filter(|key| !keys.contains(**key)) {
        findings.error(key, "is no configuration key. Take it off STILL_UNREAD");
    }
}

fn is_read(key: &str, keys: &BTreeSet<String>, code: &[String]) -> bool {
    let text = match converted(key) {
        Some(text) => text.to_owned(),
        None => setting(key, keys),
    };
    code.iter().any(|code| code.contains(&text))
}

fn converted(key: &str) -> Option<&'static str> {
    let covers =
        |pattern: &str| pattern == key || pattern.ends_with('.') && key.starts_with(pattern);
    CONVERTED.iter().find(|(pattern, _)| covers(pattern)).map(|(_, text)| *text)
}

/// How code reads the setting of a key: by its name, and by that of its section as well where
/// another section has one of the same name.
fn setting(key: &str, keys: &BTreeSet<String>) -> String {
    let name = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    let (own, direct) = (name(key), keys.iter().filter(|key| converted(key).is_none()));
    if direct.filter(|other| name(other) == own).count() <= 1 {
        return format!(".{own}.value");
    }
    let section = key.rsplit('.').nth(1).unwrap_or_default();
    format!("{section}.{own}.value")
}

/// The code without spaces, so that a chain over several lines reads like one on a line.
fn dense(code: &str) -> String {
    code.split_whitespace().collect()
}

/// All keys of the schema, such as `limits.*.rate`.
fn keys(schema: &Value) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    collect(schema, "", &mut keys);
    keys
}

fn collect(schema: &Value, path: &str, keys: &mut BTreeSet<String>) {
    let below = |name: &str| if path.is_empty() { name.into() } else { format!("{path}.{name}") };
    let named = schema.get("properties").and_then(Value::as_object);
    let any = schema.get("additionalProperties").filter(|it| it.is_object());
    if named.is_none() && any.is_none() {
        keys.insert(path.to_owned());
    }
    for (name, schema) in named.into_iter().flatten() {
        collect(schema, &below(name), keys);
    }
    if let Some(schema) = any {
        collect(schema, &below("*"), keys);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = r#"{
        "properties": {
            "state_dir": {"type": "string"},
            "listen": {"properties": {"http": {}, "url": {}}, "additionalProperties": false},
            "store": {"properties": {"url": {}}},
            "limits": {"additionalProperties": {"properties": {"rate": {}, "url": {}}}}
        },
        "additionalProperties": false
    }"#;

    fn schema() -> BTreeSet<String> {
        keys(&serde_json::from_str(SCHEMA).unwrap())
    }

    /// Code that reads every key.
    const READS: &str = "(plan.state_dir.value, listen.http.value, plan\n    .listen\n    .url\n  \
                         .value, plan.store.url.value, &plan.limits.by_name)";

    fn errors(still_unread: &[&str], code: &str) -> Vec<String> {
        let mut findings = Findings::default();
        check_keys(&schema(), still_unread, &[dense(code)], &mut findings);
        findings.errors
    }

    #[test]
    fn keys_are_the_leaves_of_the_schema() {
        let all = ["limits.*.rate", "limits.*.url", "listen.http", "listen.url", "state_dir"];
        assert_eq!(schema(), all.into_iter().chain(["store.url"]).map(String::from).collect());
    }

    #[test]
    fn every_key_is_read() {
        assert!(errors(&[], READS).is_empty(), "{:?}", errors(&[], READS));
        for (read, key) in [
            ("state_dir.value", "state_dir"),
            ("http.value", "listen.http"),
            ("store.url", "store.url"),
        ] {
            let found = errors(&[], &READS.replace(read, "other"));
            assert!(found.len() == 1 && found[0].starts_with(key), "{found:?}");
        }
        let found = errors(&[], &READS.replace("by_name", "other"));
        assert_eq!(found.len(), 2, "both keys of a limit: {found:?}");
        let found = errors(&[], &READS.replace("http.value", "http.source"));
        assert_eq!(found.len(), 1, "where a value came from is not the value: {found:?}");
    }

    #[test]
    fn the_list_of_keys_that_are_still_unread_only_shrinks() {
        assert!(errors(&["listen.http"], &READS.replace("http.value", "other")).is_empty());
        assert!(errors(&["listen.http"], READS)[0].contains("is read now"));
        assert!(errors(&["listen.gone"], READS)[0].contains("is no configuration key"));
    }
}
