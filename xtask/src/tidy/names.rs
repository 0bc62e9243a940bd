//! Public type names that too many crates use.
//!
//! A name that three crates declare is ambiguous to readers. Only declarations count, not
//! re-exports.

use std::collections::{BTreeMap, BTreeSet};

use super::scrub::production_code;
use super::{Findings, TextFile};

/// Maximum number of crates that may declare a public type of one name.
const MAX_CRATES: usize = 2;

/// Generic names whose meaning follows from their module.
const LOCAL_NAMES: &[&str] = &["Inner", "State", "Reader", "Kind", "Entry"];

/// Checks that no public type name is declared in more than two crates.
pub(super) fn check(files: &[TextFile], findings: &mut Findings) {
    for (name, crates) in &declarations(files) {
        if crates.len() > MAX_CRATES {
            let list: Vec<&str> = crates.iter().map(String::as_str).collect();
            findings.error(
                name,
                format!(
                    "is a public type of {} crates ({}), at most {MAX_CRATES} allowed. Name it \
                     after its role in its crate",
                    list.len(),
                    list.join(", "),
                ),
            );
        }
    }
}

/// The crates that declare each public type name.
fn declarations(files: &[TextFile]) -> BTreeMap<String, BTreeSet<String>> {
    let mut declared: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        let Some((package, inside)) =
            file.path.strip_prefix("crates/").and_then(|path| path.split_once('/'))
        else {
            continue;
        };
        if !inside.starts_with("src/") || inside.contains("/generated/") {
            continue;
        }
        let code = production_code(file);
        for name in code.lines().filter_map(public_type) {
            if !LOCAL_NAMES.contains(&name) {
                declared.entry(name.to_owned()).or_default().insert(package.to_owned());
            }
        }
    }
    declared
}

/// The name of the public type that a line declares.
fn public_type(line: &str) -> Option<&str> {
    line.trim_start().starts_with("pub ").then(|| declared_type(line))?
}

/// The name of the type that a line declares, whatever its visibility.
pub(super) fn declared_type(line: &str) -> Option<&str> {
    let item = without_visibility(line);
    let (keyword, name) = item.strip_prefix("unsafe ").unwrap_or(item).split_once(' ')?;
    let is_type = ["struct", "enum", "trait", "type", "union"].contains(&keyword);
    is_type.then(|| identifier(name))?
}

/// The name of the module that a line declares.
pub(super) fn declared_module(line: &str) -> Option<&str> {
    identifier(without_visibility(line).strip_prefix("mod ")?)
}

/// The line from its first keyword after `pub` or `pub(...)`.
fn without_visibility(line: &str) -> &str {
    let line = line.trim_start();
    let Some(rest) = line.strip_prefix("pub") else { return line };
    let rest = match rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        Some((_, rest)) => rest,
        None => rest,
    };
    rest.strip_prefix(' ').unwrap_or(line)
}

/// The identifier at the start of a text.
fn identifier(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    (end > 0).then(|| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(files: &[(&str, &str)]) -> Vec<String> {
        let file =
            |(path, text): &(&str, &str)| TextFile { path: (*path).into(), text: (*text).into() };
        let files: Vec<TextFile> = files.iter().map(file).collect();
        let mut findings = Findings::default();
        check(&files, &mut findings);
        findings.errors
    }

    /// Errors if each of `count` crates has a file with this text.
    fn in_crates(count: usize, text: &str) -> Vec<String> {
        let paths: Vec<String> = (0..count).map(|n| format!("crates/c{n}/src/a.rs")).collect();
        let files: Vec<_> = paths.iter().map(|path| (path.as_str(), text)).collect();
        errors(&files)
    }

    #[test]
    fn two_crates_may_share_a_name_and_three_may_not() {
        for declaration in [
            "pub struct Rule;",
            "    pub enum Rule<T> {",
            "pub trait Rule: Send {",
            "pub type Rule = u8;",
            "pub unsafe trait Rule {}",
        ] {
            assert!(in_crates(2, declaration).is_empty(), "{declaration}");
            let found = in_crates(3, declaration);
            assert_eq!(found.len(), 1, "{declaration}");
            assert!(found[0].starts_with("Rule: ") && found[0].contains("c0, c1, c2"), "{found:?}");
        }
    }

    #[test]
    fn what_is_not_a_public_declaration_does_not_count() {
        for text in [
            "struct Rule;",
            "pub(crate) struct Rule;",
            "pub use other::Rule;",
            "// pub struct Rule;",
            "const A: &str = \"\npub struct Rule;\";",
            "pub struct Inner;",
            "pub fn rule() {}",
            "#[cfg(test)]\nmod tests {\n    pub struct Rule;\n}",
        ] {
            assert!(in_crates(3, text).is_empty(), "{text}");
        }
        let text = "pub struct Rule;";
        let elsewhere =
            [("crates/a/tests/a.rs", text), ("bench/src/a.rs", text), ("crates/b/src/a.rs", text)];
        assert!(errors(&elsewhere).is_empty());
    }
}
