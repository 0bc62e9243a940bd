//! The files of a package, in one folder: the program, its documents and what it is installed with.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::linked::Linked;
use super::{Release, archive, licences, sbom};
use crate::process;
use crate::project;

/// Files of the repository, with their names in the package.
const COPIED: [(&str, &str); 5] = [
    ("README.md", "README.md"),
    ("LICENSE-APACHE", "LICENSE-APACHE"),
    ("LICENSE-MIT", "LICENSE-MIT"),
    ("docs/install.md", "INSTALL.md"),
    ("deploy/tidegate.toml", "tidegate.toml"),
];

/// Collects all files in a new folder.
pub(super) fn collect(folder: &Path, program: &Path, release: &Release) -> Result<()> {
    fs::create_dir_all(folder.join("bin"))?;
    fs::copy(program, folder.join("bin/tidegate"))?;
    for (from, to) in COPIED {
        copy(&project::root().join(from), &folder.join(to))?;
    }
    copy_folder("deploy/systemd", &folder.join("systemd"))?;
    let linked = Linked::find(&release.target)?;
    fs::write(folder.join("LICENSES-THIRD-PARTY.txt"), licences::document(&linked)?)?;
    fs::write(folder.join("sbom.cdx.json"), sbom::document(&linked, release)?)?;
    let mut command = Command::new(program);
    command.arg("install-files").arg(folder.join("share")).env_clear();
    process::run(command).context("the program cannot write its man pages")?;
    let files = files(folder)?;
    archive::write_sums(folder, &files)
}

/// The paths of all files below a folder, sorted.
pub(super) fn files(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(self::files(&path)?);
        } else {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Copies a file. The permissions are set when it is packed.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(())
}

fn copy_folder(from: &str, to: &Path) -> Result<()> {
    let from = project::root().join(from);
    for file in files(&from)? {
        copy(&file, &to.join(file.strip_prefix(&from)?))?;
    }
    Ok(())
}
