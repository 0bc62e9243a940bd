//! Checks that every configuration key has a test that fails if the setting is ignored.
//!
//! A test names its keys in its doc comment, `/// Setting: providers.*.max_wait`, separated by
//! commas. docs/settings.md lists the tests.

use std::collections::BTreeMap;

use super::config_keys::Keys;
use super::{Findings, TextFile};

const MARK: &str = "/// Setting:";

/// A test function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    /// Its package.
    pub(crate) package: String,
    /// Its file, relative to the root.
    pub(crate) file: String,
    /// Module path and name, as a filter for `cargo test`.
    pub(crate) name: String,
}

/// A key in a `Setting:` comment.
struct Mark {
    key: String,
    /// File and line.
    place: String,
    /// The test below the comment; `None` if there is none.
    test: Option<Test>,
}

/// The tests of each key, in the order of their files.
pub(super) fn by_key(files: &[TextFile]) -> BTreeMap<String, Vec<Test>> {
    let mut tests: BTreeMap<String, Vec<Test>> = BTreeMap::new();
    for Mark { key, test, .. } in files.iter().flat_map(marks) {
        tests.entry(key).or_default().extend(test);
    }
    tests
}

/// Checks that every key has a test, and every mark names a key and belongs to a test.
pub(super) fn check(files: &[TextFile], keys: &Keys, findings: &mut Findings) {
    let mut missing: Vec<&String> = keys.keys().collect();
    for Mark { key, place, test } in files.iter().flat_map(marks) {
        if !keys.contains_key(&key) {
            findings.error(&place, format!("`{key}` is not a configuration key"));
        }
        match test {
            None => findings.error(
                &place,
                "`Setting:` does not belong to a test. Put it into the doc comment above `#[test]`",
            ),
            Some(_) => missing.retain(|known| **known != key),
        }
    }
    for key in missing {
        findings.error(
            key,
            format!(
                "no test covers this setting. Write one that fails if the setting is ignored, with \
                 `{MARK} {key}` in its doc comment; then run `cargo xtask settings`"
            ),
        );
    }
}

/// The marks in a source file.
fn marks(file: &TextFile) -> Vec<Mark> {
    let Some((package, modules)) = place_of(&file.path) else { return Vec::new() };
    let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
    let mut marks = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(keys) = line.strip_prefix(MARK) else { continue };
        let test = test_below(&lines[index + 1..]).map(|name| Test {
            package: package.to_owned(),
            file: file.path.clone(),
            name: modules.iter().copied().chain([name]).collect::<Vec<_>>().join("::"),
        });
        marks.extend(keys.split(',').map(|key| Mark {
            key: key.trim().to_owned(),
            place: format!("{}:{}", file.path, index + 1),
            test: test.clone(),
        }));
    }
    marks
}

/// The package and the modules of a file below `crates/*/tests/*/` or `crates/*/src/`.
fn place_of(path: &str) -> Option<(&str, Vec<&str>)> {
    let (package, inside) = path.strip_prefix("crates/")?.split_once('/')?;
    let inside = inside.strip_suffix(".rs")?;
    let (of_library, inside) = match inside.strip_prefix("src/") {
        Some(inside) => (true, inside),
        None => (false, inside.strip_prefix("tests/")?.split_once('/')?.1),
    };
    let mut modules: Vec<&str> = inside.split('/').collect();
    modules.retain(|module| !["main", "lib"].contains(module));
    if of_library && modules.last() != Some(&"tests") {
        modules.push("tests");
    }
    Some((package, modules))
}

/// The name of the function that follows the rest of a doc comment or attributes, if it is a test.
pub(super) fn test_below<'l>(lines: &[&'l str]) -> Option<&'l str> {
    let is_above = |line: &&&str| !line.is_empty() && !is_function(line);
    let above = lines.iter().take_while(is_above).count();
    let (above, below) = lines.split_at(above);
    let is_test = |line: &&str| {
        let attribute = line.strip_prefix("#[").unwrap_or_default();
        let attribute = attribute.split([']', '(']).next().unwrap_or_default();
        ["test", "tokio::test"].contains(&attribute)
    };
    let (_, name) = below.first()?.split_once("fn ").filter(|_| above.iter().any(is_test))?;
    name.split(['(', '<']).next()
}

fn is_function(line: &str) -> bool {
    let code = line.split_once("fn ").map(|(before, _)| before);
    code.is_some_and(|before| before.split(' ').all(|it| ["", "pub", "async"].contains(&it)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: path.into(), text: text.into() }
    }

    fn named(path: &str, text: &str) -> Vec<(String, Option<String>)> {
        let name = |mark: Mark| (mark.key, mark.test.map(|test| test.name));
        marks(&file(path, text)).into_iter().map(name).collect()
    }

    fn errors(text: &str) -> Vec<String> {
        let keys = ["a", "b.*.c"].map(|key| (key.to_owned(), false)).into_iter().collect();
        let mut findings = Findings::default();
        check(&[file("crates/p/tests/it/x.rs", text)], &keys, &mut findings);
        findings.errors
    }

    #[test]
    fn a_mark_names_the_test_below_it() {
        let text = "/// What it shows.\n/// Setting: a, b.*.c\n/// More.\n#[test]\n\
                    #[expect(x, reason = \"y\")]\nfn it_holds() {\n}\n\n\
                    /// Setting: d\n#[tokio::test(start_paused = true)]\nasync fn it_waits() {}\n";
        let held = |key: &str, name: &str| (key.to_owned(), Some(name.to_owned()));
        assert_eq!(
            named("crates/p/tests/it/door/x.rs", text),
            [
                held("a", "door::x::it_holds"),
                held("b.*.c", "door::x::it_holds"),
                held("d", "door::x::it_waits"),
            ]
        );
    }

    #[test]
    fn a_test_is_named_by_its_modules() {
        let text = "    /// Setting: a\n    #[test]\n    fn f() {\n";
        for (path, name) in [
            ("crates/p/tests/it/main.rs", "f"),
            ("crates/p/tests/it/x.rs", "x::f"),
            ("crates/p/src/lib.rs", "tests::f"),
            ("crates/p/src/x/y.rs", "x::y::tests::f"),
            ("crates/p/src/x/tests.rs", "x::tests::f"),
        ] {
            assert_eq!(named(path, text), [("a".to_owned(), Some(name.to_owned()))], "{path}");
        }
        assert!(named("xtask/src/main.rs", text).is_empty(), "tasks are not part of the product");
        assert!(named("crates/p/examples/x.rs", text).is_empty());
    }

    #[test]
    fn a_mark_on_another_item_is_an_error() {
        for below in [
            "fn helper() {}",
            "#[test]\nconst A: u8 = 1;",
            "\n#[test]\nfn far_away() {}",
            "#[cfg(test)]\nmod tests {",
            "#[tests]\nfn almost() {}",
        ] {
            let found = errors(&format!("/// Setting: a, b.*.c\n{below}\n"));
            assert_eq!(found.len(), 4, "two marks and two keys: {below}: {found:?}");
            assert!(
                found[0]
                    .starts_with("crates/p/tests/it/x.rs:1: `Setting:` does not belong to a test")
            );
        }
    }

    #[test]
    fn every_key_has_a_test_and_every_mark_names_a_key() {
        let test = "#[test]\nfn f() {}\n";
        assert!(errors(&format!("/// Setting: a,b.*.c\n{test}")).is_empty());
        let found = errors(&format!("/// Setting: a\n{test}"));
        assert!(found.len() == 1 && found[0].starts_with("b.*.c: no test covers"), "{found:?}");
        let found = errors(&format!("/// Setting: a, b.*.c, b.*.d\n{test}"));
        assert_eq!(found, ["crates/p/tests/it/x.rs:1: `b.*.d` is not a configuration key"]);
    }
}
