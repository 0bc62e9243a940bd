//! Rules for all committed files: nothing that breaks or misleads on another machine.

use super::{Findings, TextFile};

/// Machine-specific folders, split so that this file does not match itself.
const MACHINE_FOLDERS: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];

/// Markers of unfinished work, split for the same reason.
const MARKERS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME")];

/// The expected package source in a lock file.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks that `Cargo.lock` is committed. `tracked` is the output of `git ls-files`.
pub(super) fn check_lock_file(tracked: &str, findings: &mut Findings) {
    if !tracked.lines().any(|path| path == "Cargo.lock") {
        findings.error(
            "Cargo.lock",
            "is not committed. Builds must use the tested versions: git add Cargo.lock",
        );
    }
}

/// Checks for machine-specific paths, private package sources, and markers of unfinished work.
pub(super) fn check(file: &TextFile, findings: &mut Findings) {
    for (index, line) in file.text.lines().enumerate() {
        let place = format!("{}:{}", file.path, index + 1);
        for folder in MACHINE_FOLDERS.iter().filter(|folder| names_folder(line, folder)) {
            findings.error(
                &place,
                format!(
                    "names {folder}, a machine-specific folder. Use a path relative to the root"
                ),
            );
        }
        for marker in MARKERS.iter().filter(|marker| has_word(line, marker)) {
            findings.error(
                &place,
                format!("{marker} is not allowed in files: do it now, or write an issue"),
            );
        }
        if let Some(message) = other_source(&file.path, line) {
            findings.error(&place, message);
        }
    }
}

/// Whether the line has an absolute path to the folder: `x/home/` and `https://host/home/` are not.
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(index, _)| {
        let before = line[..index].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-}*".contains(c))
    })
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|found| found == word)
}

fn other_source(path: &str, line: &str) -> Option<String> {
    let line = line.trim();
    if path.ends_with("Cargo.lock") {
        let source = line.strip_prefix("source = ")?.trim_matches('"');
        return (source != REGISTRY).then(|| {
            format!("comes from {source}, not from crates.io, so other clones cannot fetch it")
        });
    }
    let is_setting = ["replace-with", "registry =", "registry.", "[source.", "[registries"]
        .iter()
        .any(|word| line.starts_with(word));
    (path.ends_with(".toml") && is_setting).then(|| {
        "sets a package source, which depends on the machine: put it into the cargo \
         configuration of the user"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(path: &str, text: &str) -> Vec<String> {
        let mut findings = Findings::default();
        check(&TextFile { path: path.to_owned(), text: text.to_owned() }, &mut findings);
        findings.errors
    }

    #[test]
    fn the_lock_file_is_committed() {
        let count = |tracked: &str| {
            let mut findings = Findings::default();
            check_lock_file(tracked, &mut findings);
            findings.errors.len()
        };
        assert_eq!(count("Cargo.toml\nCargo.lock\n"), 0);
        assert_eq!(count("Cargo.toml\nxtask/no-std/Cargo.lock\n"), 1);
    }

    #[test]
    fn machine_specific_paths_are_refused() {
        let found = errors("a.md", concat!("one\nsee /ho", "me/alice/x\n"));
        assert!(found[0].starts_with("a.md:2: "), "{found:?}");
        assert_eq!(errors("a.rs", concat!("\"/ro", "ot/x\"")).len(), 1);
        assert!(errors("a.md", concat!("https://example.org/ho", "me/")).is_empty());
        assert!(errors("a.md", "the work/ folder, the root, $HOME/x").is_empty());
    }

    #[test]
    fn markers_of_unfinished_work_are_refused() {
        assert_eq!(errors("a.rs", concat!("// TO", "DO: later")).len(), 1);
        assert_eq!(errors("a.toml", concat!("# FIX", "ME")).len(), 1);
        assert!(
            errors("a.rs", concat!("const MAS", "TO", "DON: u8 = 1; // todo lists")).is_empty()
        );
    }

    #[test]
    fn packages_come_from_the_public_registry() {
        let lock = |source: &str| errors("Cargo.lock", &format!("source = \"{source}\"\n")).len();
        assert_eq!(lock(REGISTRY), 0);
        assert_eq!(lock("registry+https://mirror.example/index"), 1);
        assert_eq!(lock("git+https://example.org/x"), 1);
        assert_eq!(errors(".cargo/config.toml", "replace-with = \"mirror\"").len(), 1);
        assert!(errors("Cargo.toml", "repository = \"https://example.org\"").is_empty());
    }
}
