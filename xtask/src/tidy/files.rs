//! The files of the project: those known to git, or all files of a source archive.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::TextFile;
use crate::process;
use crate::project;

/// Folders that are not part of the project.
const OUTPUTS: &[&str] = &["target", ".git", "node_modules"];

/// Reads all text files that are or could be committed.
pub(super) fn text_files() -> Result<Vec<TextFile>> {
    let root = project::root();
    let mut files = Vec::new();
    for path in if project::is_clone() { known_to_git()? } else { found_below(root)? } {
        // Skips a file whose deletion is not committed yet.
        let Ok(bytes) = fs::read(root.join(&path)) else { continue };
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(TextFile { path, text });
        }
    }
    Ok(files)
}

/// The paths of the committed files, one per line; `None` in a source archive.
pub(super) fn committed() -> Result<Option<String>> {
    if !project::is_clone() {
        return Ok(None);
    }
    process::read(process::git(["ls-files"])).map(Some)
}

fn known_to_git() -> Result<Vec<String>> {
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"];
    let paths = process::read(process::git(list))?;
    Ok(paths.split('\0').filter(|path| !path.is_empty()).map(ToOwned::to_owned).collect())
}

fn found_below(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder);
        for entry in entries.with_context(|| format!("cannot list {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                let is_output = OUTPUTS.iter().any(|name| path.ends_with(name));
                folders.extend((!is_output).then_some(path));
            } else if let Ok(inside) = path.strip_prefix(root) {
                found.push(inside.to_string_lossy().replace('\\', "/"));
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_searched_without_build_output() {
        let found = found_below(&project::root().join("xtask")).unwrap();
        assert!(found.iter().any(|path| path == "src/tidy/files.rs"), "{found:?}");
        assert!(!found.iter().any(|path| path.contains("target/")), "{found:?}");
    }
}
