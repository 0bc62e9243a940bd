//! Removes comments and literals from source text, so that their words are not taken for code.

use super::TextFile;
use super::sizes::{is_test, production_lines};

/// The code of a file outside tests, without comments and literals.
pub(super) fn production_code(file: &TextFile) -> String {
    if is_test(&file.path) {
        return String::new();
    }
    let lines: Vec<&str> = file.text.lines().take(production_lines(&file.text)).collect();
    scrub(&lines.join("\n"))
}

/// Replaces comments, strings and characters with spaces. Lines and columns do not move.
pub(super) fn scrub(source: &str) -> String {
    let mut rest = source;
    let mut code = String::with_capacity(source.len());
    let mut previous = ' ';
    while let Some(c) = rest.chars().next() {
        let prefix_ended = !(previous.is_alphanumeric() || previous == '_');
        let skipped = match c {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment(rest),
            '"' => quoted(rest, '"'),
            'r' | 'b' | 'c' if prefix_ended => raw_string(rest),
            '\'' => character(rest),
            _ => 0,
        };
        if skipped == 0 {
            code.push(c);
            previous = c;
            rest = &rest[c.len_utf8()..];
        } else {
            code.extend(rest[..skipped].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            previous = ' ';
            rest = &rest[skipped..];
        }
    }
    code
}

/// The length of a block comment, including nested ones.
fn block_comment(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut index = 0;
    while index < text.len() {
        if text[index..].starts_with("/*") {
            depth += 1;
            index += 2;
        } else if text[index..].starts_with("*/") {
            depth -= 1;
            index += 2;
            if depth == 0 {
                return index;
            }
        } else {
            index += text[index..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of a literal that begins and ends with `quote`.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (index, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return index + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a raw string such as `r#"..."#` or `br"..."`; zero if there is none.
fn raw_string(text: &str) -> usize {
    let Some(after) = text.trim_start_matches(['b', 'c']).strip_prefix('r') else { return 0 };
    let body = after.trim_start_matches('#');
    let Some(body) = body.strip_prefix('"') else { return 0 };
    let opening = text.len() - body.len();
    let hashes = after.len() - body.len() - 1;
    let end = format!("\"{}", "#".repeat(hashes));
    body.find(&end).map_or(text.len(), |index| opening + index + end.len())
}

/// The length of a character literal; zero for a lifetime.
fn character(text: &str) -> usize {
    let mut chars = text.chars().skip(1);
    match (chars.next(), chars.next()) {
        (Some('\\'), _) => quoted(text, '\''),
        (Some(c), Some('\'')) => c.len_utf8() + 2,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_removed() {
        for source in [
            "// word\n",
            "/* a /* word */ word */",
            "\"a \\\" word\"",
            "r#\"a \" word\"#",
            "br\"word\"",
            "b\"word\"",
            "//! word",
        ] {
            let code = scrub(source);
            assert!(!code.contains("word"), "{source} became {code}");
            assert_eq!(code.len(), source.len());
        }
    }

    #[test]
    fn tests_are_not_production_code() {
        let code = |path: &str, text: &str| {
            production_code(&TextFile { path: path.into(), text: text.into() })
        };
        let text = "a // b\n#[cfg(test)]\nmod tests {\n    c\n}\n";
        assert_eq!(code("crates/a/src/b.rs", text).trim_end(), "a");
        assert_eq!(code("crates/a/src/b/tests.rs", "a"), "");
        assert_eq!(code("crates/a/tests/b.rs", "a"), "");
    }

    #[test]
    fn code_stays() {
        for source in [
            "fn f<'a>(x: &'a str) -> &'a str { word }",
            "let c = r#word;",
            "let order = a_r + word;",
        ] {
            assert_eq!(scrub(source), source);
        }
        assert_eq!(scrub("('\"', word, '\\'', '\\\\', word)"), "(   , word,     ,     , word)");
        assert_eq!(scrub("\"é\" word\n// x\nword"), "    word\n    \nword");
    }
}
