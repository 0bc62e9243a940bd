//! Checks that code reads every configuration key.
//!
//! The keys come from the schema, which tests of tidegate-config keep equal to its table. A key
//! counts as read if production code has the value of its setting, `.name.value`, or the conversion
//! listed below. Comments, strings and tests do not count.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::scrub::production_code;
use super::{Findings, TextFile};

const SCHEMA: &str = "crates/tidegate-config/tidegate.schema.json";

/// Crates that use the parsed configuration.
const READERS: &[&str] = &[
    "crates/tidegate-server/src/",
    "crates/tidegate-cli/src/",
    "crates/tidegate-config/src/models.rs",
];

/// Keys that the configuration converts to another value, and the code that uses that value. A
/// pattern that ends with a dot matches all keys below it.
const CONVERTED: &[(&str, &str)] = &[
    ("limits.*.", ".limits.by_name"),
    ("admission.allow_clients", ".admission.rules("),
    ("admission.allow_organizations", ".admission.rules("),
    ("admission.backpressure_threshold", ".admission.rules("),
    ("admission.jitter_percent", ".admission.rules("),
    ("admission.missing_client", ".admission.rules("),
    ("admission.mode", ".admission.rules("),
    ("modules.rate_limit.", "modules.rate_limit.settings()"),
    ("modules.retry.", "modules.retry.settings()"),
    ("providers.*.tier", "plan.tier_limits()"),
    ("providers.*.api_key_env", "plan.credential()"),
    ("providers.*.ca_file", "plan.roots()"),
    ("providers.*.dialect", "plan.dialect()"),
    ("providers.*.endpoints.", "plan.endpoints"),
    ("providers.*.fallback_models.", "plan.fallback_models"),
    ("proxy.", "plan.proxy.proxy_for("),
    ("providers.*.max_concurrent_requests", "plan.pool_size()"),
    ("providers.*.auto_tune.", "plan.pool_size()"),
    ("providers.*.models.", "plan.model_limits"),
    ("providers.*.requests_per_minute", "plan.constraint()"),
    ("providers.*.tokens_per_minute", "plan.constraint()"),
    ("providers.*.input_tokens_per_minute", "plan.constraint()"),
    ("providers.*.output_tokens_per_minute", "plan.constraint()"),
    ("providers.*.requests_per_day", "plan.constraint()"),
    ("providers.*.requests_per_day_zone", "plan.constraint()"),
    ("providers.*.min_interval_ms", "plan.constraint()"),
    ("providers.*.burst_factor", "plan.constraint()"),
    ("providers.*.burst_capacity", "plan.constraint()"),
    ("providers.*.breaker", "plan.breaker.enabled.value"),
    ("providers.*.breaker_failures", "plan.breaker.failures.value"),
    ("providers.*.breaker_open_for", "plan.breaker.open_for.value"),
    ("providers.*.ramp_up", "plan.ramp.over.value"),
    ("providers.*.ramp_floor", "plan.ramp.floor.value"),
];

/// Schema property of keys that are accepted but not read yet; setting one logs a warning. A marked
/// key that is read is an error, so that the number of marks only shrinks.
const UNUSED: &str = "x-unused";

/// Number of marked keys. It only shrinks.
const UNUSED_KEYS: usize = 1;

/// The keys of the schema, such as `limits.*.rate`, and whether they are marked as unused.
pub(super) type Keys = BTreeMap<String, bool>;

/// The keys of the committed schema.
pub(super) fn committed(files: &[TextFile]) -> Result<Keys> {
    let schema = files.iter().find(|file| file.path == SCHEMA);
    let schema = schema.with_context(|| format!("{SCHEMA} does not exist"))?;
    Ok(keys(&serde_json::from_str(&schema.text).context(SCHEMA)?))
}

/// Checks that every key of the schema is read by code or marked as unused.
pub(super) fn check(files: &[TextFile], findings: &mut Findings) -> Result<()> {
    let keys = committed(files)?;
    let is_reader = |file: &&TextFile| READERS.iter().any(|folder| file.path.starts_with(folder));
    let code =
        files.iter().filter(is_reader).map(|file| without_whitespace(&production_code(file)));
    let code: Vec<String> = code.collect();
    check_keys(&keys, &code, findings);
    check_marks(&keys, UNUSED_KEYS, findings);
    Ok(())
}

fn check_marks(keys: &Keys, expected: usize, findings: &mut Findings) {
    let marked = keys.values().filter(|unused| **unused).count();
    if marked != expected {
        findings.error(
            "xtask/src/tidy/config_keys.rs",
            format!(
                "{marked} keys are marked as unused, but UNUSED_KEYS is {expected}. Implement a new key \
                 before accepting it; if the number is lower, lower UNUSED_KEYS"
            ),
        );
    }
}

fn check_keys(keys: &Keys, code: &[String], findings: &mut Findings) {
    for (key, unused) in keys {
        match is_read(key, keys, code) {
            true if *unused => {
                findings.error(
                    key,
                    "is read now. Remove `.unused(...)` from its row in the table of keys",
                );
            }
            false if !unused => findings.error(
                key,
                "is a configuration key that no code reads. Implement or remove it; if the \
                 configuration converts it, add the conversion to xtask/src/tidy/config_keys.rs",
            ),
            _ => {}
        }
    }
}

fn is_read(key: &str, keys: &Keys, code: &[String]) -> bool {
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

/// The code that reads the setting of a key: its name, with the section if several sections have a
/// key of this name.
fn setting(key: &str, keys: &Keys) -> String {
    let name = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    let (own, direct) = (name(key), keys.keys().filter(|key| converted(key).is_none()));
    if direct.filter(|other| name(other) == own).count() <= 1 {
        return format!(".{own}.value");
    }
    let section = key.rsplit('.').nth(1).unwrap_or_default();
    format!("{section}.{own}.value")
}

/// Removes whitespace, so that a chain over several lines matches one on a single line.
fn without_whitespace(code: &str) -> String {
    code.split_whitespace().collect()
}

fn keys(schema: &Value) -> Keys {
    let mut keys = Keys::new();
    collect(schema, "", &mut keys);
    keys
}

fn collect(schema: &Value, path: &str, keys: &mut Keys) {
    let below = |name: &str| if path.is_empty() { name.into() } else { format!("{path}.{name}") };
    let named = schema.get("properties").and_then(Value::as_object);
    let any = schema.get("additionalProperties").filter(|it| it.is_object());
    // A key may be a list, or a table that says more.
    let kinds = schema.get("type").and_then(Value::as_array);
    let may_be_list = kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind == "array"));
    if may_be_list || named.is_none() && any.is_none() {
        keys.insert(path.to_owned(), schema.get(UNUSED).is_some());
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

    fn schema() -> Keys {
        keys(&serde_json::from_str(SCHEMA).unwrap())
    }

    /// Code that reads every key.
    const READS: &str = "(plan.state_dir.value, listen.http.value, plan\n    .listen\n    .url\n  \
                         .value, plan.store.url.value, &plan.limits.by_name)";

    fn errors(keys: &Keys, code: &str) -> Vec<String> {
        let mut findings = Findings::default();
        check_keys(keys, &[without_whitespace(code)], &mut findings);
        findings.errors
    }

    #[test]
    fn keys_are_the_leaves_of_the_schema() {
        let all = ["limits.*.rate", "limits.*.url", "listen.http", "listen.url", "state_dir"];
        let all = all.into_iter().chain(["store.url"]);
        assert_eq!(schema(), all.map(|key| (key.to_owned(), false)).collect());
    }

    #[test]
    fn every_key_is_read() {
        let errors = |code: &str| errors(&schema(), code);
        assert!(errors(READS).is_empty(), "{:?}", errors(READS));
        for (read, key) in [
            ("state_dir.value", "state_dir"),
            ("http.value", "listen.http"),
            ("store.url", "store.url"),
        ] {
            let found = errors(&READS.replace(read, "other"));
            assert!(found.len() == 1 && found[0].starts_with(key), "{found:?}");
        }
        let found = errors(&READS.replace("by_name", "other"));
        assert_eq!(found.len(), 2, "both keys of a limit: {found:?}");
        let found = errors(&READS.replace("http.value", "http.source"));
        assert_eq!(found.len(), 1, "where a value came from is not the value: {found:?}");
    }

    #[test]
    fn the_keys_that_are_marked_as_unused_only_become_fewer() {
        let marked = SCHEMA.replace(r#""http": {}"#, r#""http": {"x-unused": "why"}"#);
        let marked = keys(&serde_json::from_str(&marked).unwrap());
        assert!(errors(&marked, &READS.replace("http.value", "other")).is_empty());
        assert!(errors(&marked, READS)[0].contains("is read now"));
        let off = |expected| {
            let mut findings = Findings::default();
            check_marks(&marked, expected, &mut findings);
            findings.errors.len()
        };
        assert_eq!([0, 1, 2].map(off), [1, 0, 1], "neither more nor fewer than there are");
    }
}
