//! The archive: entries in order, without owners, with the time of the commit.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::Release;
use crate::process;

const SUMS: &str = "SHA256SUMS";

/// Packs a folder and returns the path of the archive.
pub(super) fn pack(folder: &Path, out: &Path, release: &Release) -> Result<PathBuf> {
    let path = out.join(format!("{}.tar.gz", release.name()));
    let parent = folder.parent().context("a folder without a parent")?;
    let mut tar = Command::new("tar");
    tar.args(["--create", "--format=ustar", "--sort=name", "--owner=0", "--group=0"]);
    tar.args(["--numeric-owner", "--mode=u=rwX,go=rX"]);
    tar.arg(format!("--mtime=@{}", release.epoch)).arg("--directory").arg(parent);
    tar.arg(release.name()).stdout(Stdio::piped());
    let mut tar = tar.spawn().context("cannot start tar")?;
    let mut gzip = Command::new("gzip");
    // Neither the name nor the time of the input.
    gzip.args(["--no-name", if release.is_test { "-1" } else { "-9" }]);
    gzip.stdin(tar.stdout.take().context("tar has no output")?).stdout(File::create(&path)?);
    process::run(gzip)?;
    let status = tar.wait()?;
    if !status.success() {
        bail!("tar failed ({status})");
    }
    Ok(path)
}

/// Writes `SHA256SUMS` of files below a folder into it.
pub(super) fn write_sums(folder: &Path, files: &[PathBuf]) -> Result<()> {
    let mut command = Command::new("sha256sum");
    let names: Vec<&OsStr> = files
        .iter()
        .map(|file| file.strip_prefix(folder).map(Path::as_os_str))
        .collect::<Result<_, _>>()?;
    command.args(names).current_dir(folder);
    let sums = process::read(command)?;
    fs::write(folder.join(SUMS), sums).context("cannot write the checksums")
}
