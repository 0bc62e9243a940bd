//! Commit subjects have the form `area: imperative`.
//!
//! The rule holds from one commit on: earlier subjects stay as they are. Merges are not checked.
//! Where the first checked commit is not in the history, as in a shallow clone, the rule is
//! skipped with a note.

use anyhow::{Context as _, Result};

use super::Findings;
use crate::{process, project};

/// Commits after this one are checked.
const CHECKED_AFTER: &str = "ddd8df4d87dc08eacca040c0cf8ad0aafb2372ee";

/// The maximum length of a subject, in characters.
const MAX_SUBJECT: usize = 72;

/// The commits to check, one a line, as `HASH SUBJECT`, newest first. `None` in a source archive,
/// or if the history does not reach back far enough.
pub(super) fn subjects() -> Result<Option<String>> {
    if !project::is_clone() {
        return Ok(None);
    }
    let mut ancestor = process::git(["merge-base", "--is-ancestor", CHECKED_AFTER, "HEAD"]);
    // An unknown commit is an error of git's, and not of interest here.
    if !ancestor.output().context("cannot start git")?.status.success() {
        return Ok(None);
    }
    let range = format!("{CHECKED_AFTER}..HEAD");
    let log = ["log", "--no-merges", "--format=%h %s", &range];
    process::read(process::git(log)).map(Some)
}

/// Checks the output of [`subjects`].
pub(super) fn check(subjects: Option<&str>, findings: &mut Findings) {
    let Some(subjects) = subjects else {
        let reason = format!("not checked: {CHECKED_AFTER} is not in the history");
        findings.note("commit subjects", reason);
        return;
    };
    for line in subjects.lines() {
        let (hash, subject) = line.split_once(' ').unwrap_or((line, ""));
        if let Some(problem) = problem(subject) {
            findings.error(
                &format!("commit {hash}"),
                format!(
                    "{problem}: {subject:?}. Write `area: imperative` in at most {MAX_SUBJECT} \
                     characters, such as `redis: reload the script after a failover`"
                ),
            );
        }
    }
}

/// What is wrong with a subject.
fn problem(subject: &str) -> Option<&'static str> {
    let Some((areas, summary)) = subject.split_once(": ") else {
        return Some("the subject names no area");
    };
    if !areas.split(',').enumerate().all(|(index, area)| is_area(index, area)) {
        return Some("the area of the subject is not a list of crates or modules in lower case");
    }
    if !summary.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Some("the subject does not go on in lower case after its area");
    }
    (subject.chars().count() > MAX_SUBJECT).then_some("the subject is too long")
}

/// Whether this is an area, such as `core` or `http/layer`. One space may follow a comma.
fn is_area(index: usize, area: &str) -> bool {
    let area = if index > 0 { area.strip_prefix(' ').unwrap_or(area) } else { area };
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_./-".contains(c);
    !area.is_empty() && area.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(subject: &str) -> Vec<String> {
        let mut findings = Findings::default();
        check(Some(&format!("abc1234 {subject}\n")), &mut findings);
        findings.errors
    }

    #[test]
    fn area_and_imperative_pass() {
        for subject in [
            "core: rename Account to BucketEntry",
            "http, ws: share the error page",
            "http,ws: share the error page",
            "xtask/tidy: check commit subjects",
            ".github: run on pull requests",
            "tidegate-llm: say why: the queue is full",
        ] {
            assert!(errors(subject).is_empty(), "{subject}: {:?}", errors(subject));
        }
    }

    #[test]
    fn other_subjects_fail() {
        for subject in [
            "",
            "Fix the queue",
            "core:rename a type",
            "core: Rename a type",
            "Core: rename a type",
            "the core: rename a type",
            "core,: rename a type",
            ": rename a type",
            "Revert \"core: rename a type\"",
        ] {
            let found = errors(subject);
            assert!(found.len() == 1 && found[0].starts_with("commit abc1234: "), "{subject}");
        }
    }

    #[test]
    fn a_subject_has_at_most_72_characters() {
        let longest = format!("core: {}é", "x".repeat(65));
        assert!(errors(&longest).is_empty());
        assert!(errors(&format!("{longest}x"))[0].contains("too long"));
    }

    #[test]
    fn every_commit_is_checked() {
        let mut findings = Findings::default();
        check(Some("a1 Bad\na2 core: good one\na3 Worse\n"), &mut findings);
        assert_eq!(findings.errors.len(), 2);
    }

    #[test]
    fn a_history_that_is_too_short_is_noted() {
        let mut findings = Findings::default();
        check(None, &mut findings);
        assert!(findings.errors.is_empty());
        assert!(findings.notes[0].contains("not checked"), "{findings:?}");
    }
}
