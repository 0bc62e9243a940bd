//! File sizes. A long file usually hides a missing concept.

use super::{Findings, TextFile};

/// Maximum number of lines of a file, including tests.
const MAX_LINES: usize = 600;
/// A file with more lines of production code than this gets a note.
const LONG: usize = 350;

/// Checks the length of a file: over the maximum is an error, long production code a note.
pub(super) fn check(file: &TextFile, findings: &mut Findings) {
    let lines = file.text.lines().count();
    if lines > MAX_LINES {
        findings.error(
            &file.path,
            format!(
                "{lines} lines, at most {MAX_LINES} allowed. Look for a missing concept \
                 rather than a place to split"
            ),
        );
    }
    let production = production_lines(&file.text);
    if production > LONG && !is_test(&file.path) {
        findings.note(&file.path, format!("{production} lines of production code"));
    }
}

/// Number of lines before the test module.
pub(super) fn production_lines(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let opens_tests = |index: usize| {
        let attribute = lines[index];
        let for_tests = attribute.starts_with("#[cfg(") && attribute.contains("test");
        let item = lines[index..].iter().find(|line| !line.starts_with("#["));
        for_tests && item.is_some_and(|line| line.starts_with("mod ") && line.ends_with('{'))
    };
    (0..lines.len()).find(|index| opens_tests(*index)).unwrap_or(lines.len())
}

/// Whether a file has only tests.
pub(super) fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: String) -> Findings {
        let mut findings = Findings::default();
        check(&TextFile { path: path.to_owned(), text }, &mut findings);
        findings
    }

    #[test]
    fn six_hundred_lines_pass_and_one_more_fails() {
        assert!(found("a/src/b.rs", "x\n".repeat(600)).errors.is_empty());
        assert_eq!(found("a/src/b.rs", "x\n".repeat(601)).errors.len(), 1);
    }

    #[test]
    fn long_production_code_is_noted_and_long_tests_are_not() {
        assert!(found("a/src/b.rs", "x\n".repeat(350)).notes.is_empty());
        assert_eq!(found("a/src/b.rs", "x\n".repeat(351)).notes.len(), 1);
        let tested =
            format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", "x\n".repeat(9), "x\n".repeat(400));
        assert!(found("a/src/b.rs", tested).notes.is_empty());
        assert!(found("a/tests/b.rs", "x\n".repeat(400)).notes.is_empty());
    }

    #[test]
    fn an_import_for_tests_does_not_end_the_production_code() {
        let text = "#[cfg(test)]\nuse a::b;\nfn c() {}\n#[cfg(all(test, loom))]\n#[path = \"x\"]\nmod t {\n}\n";
        assert_eq!(production_lines(text), 3);
    }
}
