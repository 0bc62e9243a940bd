//! Renders the page: an introduction, then one table per section of the configuration file.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use crate::tidy::Test;

const INTRODUCTION: &str = include_str!("introduction.md");

const HEAD: &str = "| Key | Purpose | Values | Default | Set by | Takes effect | Held by |\n\
                    | --- | --- | --- | --- | --- | --- | --- |\n";

/// Renders the page for these keys, in their order, with their tests.
pub(super) fn render(keys: &[Value], tests: &BTreeMap<String, Vec<Test>>) -> String {
    let mut text = INTRODUCTION.to_owned();
    for section in sections(keys) {
        let title = section.first().map_or("", |key| section_of(text_of(key, "path")));
        let _ = match title {
            "" => write!(text, "\n## Top level\n\n{HEAD}"),
            title => write!(text, "\n## `[{}]`\n\n{HEAD}", title.replace('*', "NAME")),
        };
        for key in section {
            let held = tests.get(text_of(key, "path")).map_or(&[][..], Vec::as_slice);
            text.push_str(&row(key, held));
        }
        notes(section, "why_fixed", "Never from the database", &mut text);
        notes(section, "why_unused", "Accepted, with a warning and without effect", &mut text);
        notes(section, "why_library", "Used by the library, not by the program", &mut text);
    }
    text
}

/// Groups the keys by table of the configuration file.
fn sections(keys: &[Value]) -> impl Iterator<Item = &[Value]> {
    let section = |key: &Value| section_of(text_of(key, "path")).to_owned();
    keys.chunk_by(move |one, other| section(one) == section(other))
}

fn section_of(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(section, _)| section)
}

fn row(key: &Value, tests: &[Test]) -> String {
    let cells = [
        code(text_of(key, "path")),
        text_of(key, "about").to_owned(),
        text_of(key, "values").to_owned(),
        default(key),
        sources(key),
        effect(key).to_owned(),
        tests.iter().map(link).collect::<Vec<_>>().join("<br>"),
    ];
    let cells = cells.map(|cell| cell.replace('|', "\\|").replace('\n', " "));
    format!("| {} |\n", cells.join(" | "))
}

fn default(key: &Value) -> String {
    let named = key["default_by_name"].as_array().map_or(&[][..], Vec::as_slice);
    let named = named.iter().map(|named| {
        format!("{} for {}", code(&named[1].to_string()), code(named[0].as_str().unwrap_or("")))
    });
    match &key["default"] {
        Value::Null => {
            let named: Vec<_> = named.collect();
            if named.is_empty() { "unset".to_owned() } else { named.join(", ") }
        }
        value => code(&value.to_string()),
    }
}

fn sources(key: &Value) -> String {
    let mut sources = vec!["file".to_owned(), code(text_of(key, "variable"))];
    let plain = key["plain_variables"].as_array().into_iter().flatten();
    sources.extend(plain.filter_map(Value::as_str).map(code));
    if key["why_fixed"].is_null() {
        sources.push("database".to_owned());
    }
    sources.extend(key["flag"].as_str().map(code));
    sources.join(", ")
}

fn effect(key: &Value) -> &'static str {
    match (&key["why_unused"], key["needs_restart"] == true) {
        _ if !key["why_library"].is_null() => "when models are loaded",
        (Value::Null, true) => "at the next start",
        (Value::Null, false) => "at once",
        _ => "never",
    }
}

fn link(test: &Test) -> String {
    format!("{} [{}](../{})", test.package, code(&test.name), test.file)
}

/// Appends notes on keys of a section, grouped by reason.
fn notes(section: &[Value], reason: &str, title: &str, text: &mut String) {
    let mut keys: Vec<(&str, Vec<String>)> = Vec::new();
    for key in section {
        let Some(why) = key[reason].as_str() else { continue };
        let path = code(text_of(key, "path"));
        match keys.iter_mut().find(|(known, _)| *known == why) {
            Some((_, paths)) => paths.push(path),
            None => keys.push((why, vec![path])),
        }
    }
    for (why, paths) in keys {
        let _ = write!(text, "\n{title}: {} ({why}).\n", paths.join(", "));
    }
}

fn text_of<'k>(key: &'k Value, field: &str) -> &'k str {
    key[field].as_str().unwrap_or_default()
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(path: &str) -> Value {
        json!({
            "path": path, "about": "Says.", "values": "any text", "default": null,
            "default_by_name": [], "variable": "TIDEGATE_X", "plain_variables": [], "flag": null,
            "why_fixed": null, "needs_restart": false, "why_unused": null, "why_library": null,
        })
    }

    #[test]
    fn sections_are_tables_in_the_order_of_the_keys() {
        let keys = ["state_dir", "listen.http", "listen.grpc", "limits.*.rate"].map(key);
        let text = render(&keys, &BTreeMap::new());
        let titles: Vec<_> = text.lines().filter(|line| line.starts_with("## `[")).collect();
        assert_eq!(titles, ["## `[listen]`", "## `[limits.NAME]`"]);
        assert!(text.contains("\n## Top level\n"));
        assert_eq!(text.matches("| any text |").count(), keys.len());
    }

    #[test]
    fn a_row_has_all_there_is_to_say() {
        let mut key = key("listen.http");
        key["default"] = "a|b".into();
        key["plain_variables"] = json!(["HTTP"]);
        key["flag"] = "--http".into();
        key["why_fixed"] = "it is open".into();
        key["needs_restart"] = true.into();
        let test = |name: &str| Test {
            package: "p".into(),
            file: "crates/p/tests/it/x.rs".into(),
            name: name.into(),
        };
        assert_eq!(
            row(&key, &[test("x::f"), test("x::g")]),
            "| `listen.http` | Says. | any text | `\"a\\|b\"` | file, `TIDEGATE_X`, `HTTP`, \
             `--http` | at the next start | p [`x::f`](../crates/p/tests/it/x.rs)<br>p \
             [`x::g`](../crates/p/tests/it/x.rs) |\n"
        );
        let tests = BTreeMap::from([("listen.http".to_owned(), vec![test("x::f")])]);
        let text = render(&[key], &tests);
        assert!(text.contains("`x::f`") && !text.contains("`x::g`"));
        assert!(text.ends_with("\nNever from the database: `listen.http` (it is open).\n"));
    }

    #[test]
    fn defaults_and_effects_are_told_apart() {
        let mut key = key("limits.*.rate");
        assert_eq!((default(&key).as_str(), effect(&key)), ("unset", "at once"));
        key["default_by_name"] = json!([["client", "50/s"], ["other", 1]]);
        assert_eq!(default(&key), "`\"50/s\"` for `client`, `1` for `other`");
        key["why_unused"] = "nothing reads it".into();
        assert_eq!(effect(&key), "never");
        assert!(sources(&key).ends_with(", database"));
    }
}
