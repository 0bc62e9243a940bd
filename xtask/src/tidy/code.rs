//! Rules about the text of source files.

use super::scrub::scrub;
use super::{Findings, TextFile};

/// Module names without meaning.
const MEANINGLESS_NAMES: &[&str] = &["common", "util", "utils", "helper", "helpers", "misc"];

/// Folders in which unsafe code is allowed: the in-process store, the no_std program, which needs
/// an allocator, and the boundary between WebAssembly and its host.
const UNSAFE_ALLOWED: &[&str] = &["crates/tidegate-memory/", "xtask/no-std/", "wasm/"];

/// Openings that refer to another item, which readers of generated documentation do not see.
const REFERRING: &[&str] = &["The same", "As above", "Likewise", "Ditto"];

/// The first version of Rust with let chains.
const LET_CHAINS: (u32, u32) = (1, 88);

/// Checks one Rust file. `min_version` is the minimum Rust version of its package.
pub(super) fn check(file: &TextFile, min_version: Option<(u32, u32)>, findings: &mut Findings) {
    let code = scrub(&file.text);
    check_opening(file, findings);
    check_name(file, findings);
    check_doc_comments(file, findings);
    check_unfinished(file, &code, findings);
    if !UNSAFE_ALLOWED.iter().any(|folder| file.path.starts_with(folder)) {
        for line in lines_with_word(&code, "unsafe") {
            findings.error(
                &format!("{}:{line}", file.path),
                "unsafe code is allowed in tidegate-memory only, where models check it. Find a safe \
                 alternative or a crate that provides one",
            );
        }
    }
    if min_version.is_some_and(|version| version < LET_CHAINS) {
        for line in let_chains(&code) {
            findings.error(
                &format!("{}:{line}", file.path),
                "let chains need Rust 1.88, but this crate supports older versions. Nest \
                 the conditions, or use let-else or a match",
            );
        }
    }
}

fn check_opening(file: &TextFile, findings: &mut Findings) {
    // Generated code is documented where it is included.
    if file.path.contains("/generated/") {
        return;
    }
    let first = file.text.lines().find(|line| !line.trim().is_empty());
    if !first.is_some_and(|line| line.starts_with("//!")) {
        findings.error(
            &file.path,
            "does not start with `//!`. Say what the module is, why it exists and what it \
             does not do",
        );
    }
}

fn check_name(file: &TextFile, findings: &mut Findings) {
    let names = file.path.trim_end_matches(".rs").split(['/', '-', '_']);
    for name in names.filter(|name| MEANINGLESS_NAMES.contains(name)) {
        findings.error(
            &file.path,
            format!("\"{name}\" does not say what the module contains. Name it after its concept"),
        );
    }
}

fn check_doc_comments(file: &TextFile, findings: &mut Findings) {
    let mut marker_above = None;
    for (index, line) in file.text.lines().enumerate() {
        let line = line.trim_start();
        let marker = ["///", "//!"].into_iter().find(|marker| line.starts_with(marker));
        let text = line.trim_start_matches(['/', '!']).trim_start();
        if marker.is_some()
            && marker != marker_above
            && let Some(opening) = REFERRING.iter().find(|opening| begins_with(text, opening))
        {
            findings.error(
                &format!("{}:{}", file.path, index + 1),
                format!(
                    "a doc comment begins with \"{opening}\". Say what the item is or does in a \
                     sentence that stands alone"
                ),
            );
        }
        marker_above = marker;
    }
}

/// Whether a text begins with these words: "Dittography" does not begin with "Ditto".
fn begins_with(text: &str, words: &str) -> bool {
    let rest = text.strip_prefix(words);
    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
}

/// Checks for unfinished code and ignored tests.
fn check_unfinished(file: &TextFile, code: &str, findings: &mut Findings) {
    for name in ["todo", "unimplemented"] {
        for line in lines_where(code, |line| line.contains(&format!("{name}!"))) {
            findings.error(
                &format!("{}:{line}", file.path),
                format!("{name}! panics at run time. Implement it or return an error"),
            );
        }
    }
    for line in lines_where(code, |line| line.contains("#[ignore")) {
        findings.error(
            &format!("{}:{line}", file.path),
            "ignored tests are not allowed. Fix the test or remove it",
        );
    }
}

/// Lines with a let chain.
fn let_chains(code: &str) -> Vec<usize> {
    let mut lines: Vec<usize> = code
        .match_indices("&& let ")
        .map(|(index, _)| index)
        .chain(["if let ", "while let "].iter().flat_map(|keyword| {
            let joined = |index: &usize| is_joined(&code[index + keyword.len()..]);
            let starts = code.match_indices(keyword).map(|(index, _)| index);
            starts.filter(joined).collect::<Vec<_>>()
        }))
        .map(|index| line_of(code, index))
        .collect();
    lines.sort_unstable();
    lines.dedup();
    lines
}

/// Whether the condition has a `&&` outside brackets, before its block.
fn is_joined(condition: &str) -> bool {
    let mut depth = 0_usize;
    for (index, c) in condition.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            '{' if depth == 0 => {
                // The braces of a pattern are followed by `=`, those of the block are not.
                let Some(length) = condition[index..].find('}') else { return false };
                let after = condition[index + length + 1..].trim_start();
                if !after.starts_with('=') || after.starts_with("==") {
                    return false;
                }
            }
            '&' if depth == 0 && condition[index..].starts_with("&& ") => return true,
            _ => {}
        }
    }
    false
}

fn line_of(text: &str, index: usize) -> usize {
    text[..index].matches('\n').count() + 1
}

fn lines_where(text: &str, wanted: impl Fn(&str) -> bool) -> Vec<usize> {
    let numbered = text.lines().enumerate().filter(|(_, line)| wanted(line));
    numbered.map(|(index, _)| index + 1).collect()
}

fn lines_with_word(text: &str, word: &str) -> Vec<usize> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    lines_where(text, |line| line.split(|c| !is_part(c)).any(|found| found == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors_at(path: &str, text: &str) -> Vec<String> {
        let file = TextFile { path: path.to_owned(), text: format!("//! Says.\n{text}") };
        let mut findings = Findings::default();
        check(&file, Some((1, 85)), &mut findings);
        findings.errors
    }

    fn errors(text: &str) -> Vec<String> {
        errors_at("crates/tidegate/src/limiter.rs", text)
    }

    #[test]
    fn modules_start_with_a_doc_comment() {
        let mut findings = Findings::default();
        let file = TextFile { path: "a.rs".into(), text: "use a::b;\n//! Late.\n".into() };
        check(&file, None, &mut findings);
        assert!(findings.errors[0].contains("does not start with"), "{findings:?}");
        assert!(errors("fn f() {}").is_empty());
    }

    #[test]
    fn meaningless_names_are_refused() {
        for path in ["crates/a/src/util.rs", "crates/a/src/misc/b.rs", "crates/a-common/src/lib.rs"]
        {
            assert_eq!(errors_at(path, "").len(), 1, "{path}");
        }
        assert!(errors_at("crates/a/src/commonwealth.rs", "").is_empty());
    }

    #[test]
    fn a_doc_comment_stands_alone() {
        for text in [
            "/// The same, for keys.\nfn f() {}",
            "    /// As above.\n    fn f() {}",
            "/// First.\nfn f() {}\n/// Likewise\nfn g() {}",
            "mod a {\n//! Ditto.\n}",
        ] {
            let found = errors(text);
            assert!(found.len() == 1 && found[0].contains("stands alone"), "{text}: {found:?}");
        }
        for text in [
            "/// Takes two keys.\n/// The same key counts once.\nfn f() {}",
            "// The same, as a comment of the code.\nfn f() {}",
            "/// Dittography.\nfn f() {}",
            "/// The sameness of keys.\nfn f() {}",
        ] {
            assert!(errors(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn unfinished_code_is_refused() {
        assert!(errors("fn f() { todo!() }")[0].contains("limiter.rs:2: "));
        assert_eq!(errors("fn f() { unimplemented!(\"x\") }").len(), 1);
        assert_eq!(errors("#[ignore = \"slow\"]\n#[test]\nfn f() {}").len(), 1);
        assert!(errors("let s = \"todo!\"; // #[ignore] is refused").is_empty());
    }

    #[test]
    fn unsafe_code_stays_in_one_crate() {
        let code = "fn f() { unsafe { g() } }";
        assert_eq!(errors(code).len(), 1);
        assert!(errors_at("crates/tidegate-memory/src/table.rs", code).is_empty());
        assert!(errors("// no unsafe here\nlet s = \"unsafe\";\nlet unsafe_code = 1;").is_empty());
    }

    #[test]
    fn let_chains_need_a_newer_compiler() {
        for chain in [
            "if let Some(a) = b && c {}",
            "if a && let Some(b) = c {}",
            "while let Some(a) = b\n    && a > 1 {}",
            "if let Point { x, y } = p && x > y {}",
        ] {
            assert_eq!(errors(chain).len(), 1, "{chain}");
        }
        let file = TextFile { path: "a.rs".into(), text: "//! A.\nif a && let b = c {}".into() };
        let mut findings = Findings::default();
        check(&file, Some((1, 90)), &mut findings);
        assert!(findings.errors.is_empty());
    }

    #[test]
    fn other_conditions_are_no_let_chains() {
        for code in [
            "if let Some(a) = b { c && d }",
            "if let Some(a) = f(b && c) {}",
            "if let Point { x, .. } = p { x && y }",
            "if a && b { let c = d; }",
            "if matches!(a, Some(b) if b && c) {}",
            "// if let Some(a) = b && c {}",
        ] {
            assert!(errors(code).is_empty(), "{code}");
        }
    }
}
