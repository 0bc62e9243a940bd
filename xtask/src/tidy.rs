//! `cargo xtask tidy`: rules of this repository that the compiler does not check.
//!
//! Each rule is a function from text to findings, so that its tests need no files. A finding says
//! where the problem is, what it is, and what to do instead.

mod code;
mod commits;
mod config_keys;
mod dependencies;
mod files;
mod guarantees;
mod licences;
mod manifests;
mod names;
mod requirements;
mod retired_names;
mod scrub;
mod setting_tests;
mod sizes;
mod tracked;

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result, bail};
use cargo_metadata::{Metadata, Package};

use crate::project;
pub(crate) use setting_tests::Test;

/// The tests of each setting, in the order of their files.
pub(crate) fn setting_tests() -> Result<BTreeMap<String, Vec<Test>>> {
    Ok(setting_tests::by_key(&files::text_files()?))
}

/// A text file of the repository. The path is relative to the root, with forward slashes.
#[derive(Debug)]
struct TextFile {
    path: String,
    text: String,
}

/// A member of the workspace.
#[derive(Debug)]
struct Member {
    name: String,
    /// Relative to the root, such as `crates/tidegate-core`.
    folder: String,
    manifest: toml::Table,
}

/// Errors and notes of all rules.
#[derive(Debug, Default)]
struct Findings {
    errors: Vec<String>,
    notes: Vec<String>,
}

impl Findings {
    fn error(&mut self, place: &str, message: impl AsRef<str>) {
        self.errors.push(format!("{place}: {}", message.as_ref()));
    }

    fn note(&mut self, place: &str, message: impl AsRef<str>) {
        self.notes.push(format!("{place}: {}", message.as_ref()));
    }
}

/// Checks every rule and prints all findings.
pub(crate) fn run() -> Result<()> {
    let metadata = project::metadata_with_dependencies()?;
    let members = members(&metadata)?;
    let files = files::text_files()?;

    let mut findings = Findings::default();
    dependencies::check(&dependencies::dependencies(&metadata), &mut findings);
    manifests::check(&members, &root(&metadata)?, &mut findings);
    manifests::check_map(&members, &files, &mut findings);
    licences::check(&licences::external(&metadata), &mut findings);
    licences::check(&licences::external(&project::wasm_metadata()?), &mut findings);
    names::check(&files, &mut findings);
    retired_names::check(&files, &mut findings);
    commits::check(commits::subjects()?.as_deref(), &mut findings);
    config_keys::check(&files, &mut findings)?;
    setting_tests::check(&files, &config_keys::committed(&files)?, &mut findings);
    guarantees::check(&files, &mut findings);
    requirements::check(&files, &mut findings);
    if let Some(committed) = files::committed()? {
        tracked::check_lock_file(&committed, &mut findings);
    }
    for file in &files {
        tracked::check(file, &mut findings);
        if file.path.ends_with(".rs") {
            sizes::check(file, &mut findings);
            code::check(file, min_rust_version(file, &members), &mut findings);
        }
    }
    report(&findings, files.len(), members.len())
}

fn report(findings: &Findings, files: usize, members: usize) -> Result<()> {
    for note in &findings.notes {
        println!("note: {note}");
    }
    for error in &findings.errors {
        println!("error: {error}");
    }
    match findings.errors.len() {
        0 => println!("tidy: {files} files and {members} packages checked, no problems"),
        1 => bail!("tidy found one problem"),
        count => bail!("tidy found {count} problems"),
    }
    Ok(())
}

fn members(metadata: &Metadata) -> Result<Vec<Member>> {
    let member = |package: &Package| {
        let path = package.manifest_path.strip_prefix(&metadata.workspace_root)?;
        let text = fs::read_to_string(&package.manifest_path)?;
        Ok(Member {
            name: package.name.to_string(),
            folder: path.parent().map_or_else(String::new, |p| p.as_str().replace('\\', "/")),
            manifest: text.parse().with_context(|| format!("cannot parse {path}"))?,
        })
    };
    metadata.workspace_packages().into_iter().map(member).collect()
}

/// The root manifest of the workspace.
fn root(metadata: &Metadata) -> Result<toml::Table> {
    let text = fs::read_to_string(metadata.workspace_root.join("Cargo.toml"))?;
    text.parse().context("cannot parse Cargo.toml")
}

/// The minimum Rust version of a file's package, as (major, minor).
fn min_rust_version(file: &TextFile, members: &[Member]) -> Option<(u32, u32)> {
    let inside = |member: &&Member| {
        file.path.strip_prefix(&member.folder).is_some_and(|rest| rest.starts_with('/'))
    };
    manifests::rust_version(&members.iter().find(inside)?.manifest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_the_member_whose_folder_it_is_in() {
        let member = |name: &str, version: &str| Member {
            name: name.to_owned(),
            folder: format!("crates/{name}"),
            manifest: format!("package.rust-version = '{version}'").parse().unwrap(),
        };
        let members = [member("tidegate", "1.85"), member("tidegate-config", "1.90")];
        let version = |path: &str| {
            let file = TextFile { path: path.to_owned(), text: String::new() };
            min_rust_version(&file, &members)
        };
        assert_eq!(version("crates/tidegate/src/lib.rs"), Some((1, 85)));
        assert_eq!(version("crates/tidegate-config/src/lib.rs"), Some((1, 90)));
        assert_eq!(version("xtask/src/main.rs"), None);
    }

    #[test]
    fn any_error_fails_and_notes_do_not() {
        let mut findings = Findings::default();
        findings.note("a.rs", "long");
        assert!(report(&findings, 1, 1).is_ok());
        findings.error("a.rs", "bad");
        assert!(report(&findings, 1, 1).is_err());
    }
}
