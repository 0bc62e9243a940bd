//! `cargo xtask vectors`: generates the vector file from the rational-number oracle.
//!
//! The file is committed, so that stores in other languages can use it.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::process;
use crate::project;

/// Path of the vector file relative to the root.
const FILE: &str = "crates/tidegate-testkit/vectors/vectors.json";

/// Writes the vector file.
pub(crate) fn write() -> Result<()> {
    project::write(FILE, &generate(&[])?)
}

/// Fails if the committed file is out of date.
pub(crate) fn check() -> Result<()> {
    check_with(&[])
}

/// Runs [`check`] with additional arguments for cargo.
pub(crate) fn check_with(extra: &[&str]) -> Result<()> {
    let committed = fs::read_to_string(path())
        .with_context(|| format!("cannot read {FILE}; `cargo xtask vectors` writes it"))?;
    if let Some(difference) = difference(&committed, &generate(extra)?) {
        bail!(
            "{FILE} differs from the oracle: {difference}\n\
             If the change is intended, run `cargo xtask vectors` and review `git diff {FILE}`; \
             otherwise the oracle or its list of cases was changed by mistake."
        );
    }
    Ok(())
}

fn path() -> PathBuf {
    project::root().join(FILE)
}

fn generate(extra: &[&str]) -> Result<String> {
    let mut command = process::cargo(["run", "--quiet", "--package", "tidegate-testkit"]);
    command.args(extra).args(["--example", "vectors"]);
    let text = process::read(command)?;
    // An empty output must not empty the file, or match an empty one.
    if text.trim().is_empty() {
        bail!("the generator of the vectors printed nothing");
    }
    Ok(text)
}

/// Describes the first difference; `None` if there is none.
pub(crate) fn difference(committed: &str, generated: &str) -> Option<String> {
    if committed == generated {
        return None;
    }
    let mut left = committed.split('\n');
    let mut right = generated.split('\n');
    for number in 1_usize.. {
        let (before, after) = (left.next(), right.next());
        if before != after {
            let show = |line: Option<&str>| line.map_or("(end of file)".to_owned(), clipped);
            return Some(format!(
                "line {number}\n  committed: {}\n  generated: {}",
                show(before),
                show(after)
            ));
        }
    }
    None
}

fn clipped(line: &str) -> String {
    line.chars().take(160).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_named() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        let text = difference("a\nb\nc\n", "a\nx\nc\n").unwrap();
        assert!(text.contains("line 2") && text.contains("committed: b"), "{text}");
        assert!(difference("a\n", "a").is_some());
        assert!(difference("a\n", "a\nb\n").unwrap().contains("generated: b"));
    }
}
