//! Unpacks libfaketime, which gives a process another wall clock, from Debian's package below the
//! target folder.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::{debian, folder, is_overridden};

const LIBRARY: &str = "libfaketimeMT.so.1";

/// Unpacks libfaketime unless it is there.
pub(super) fn install() -> Result<()> {
    let home = folder().join("faketime");
    if is_overridden("TIDEGATE_FAKETIME") || home.join(LIBRARY).is_file() {
        return Ok(());
    }
    println!("unpacking libfaketime");
    let unpacked = unpack(&home).or_else(|_| debian::update().and_then(|()| unpack(&home)));
    if let Err(error) = unpacked {
        bail!(
            "libfaketime is missing ({error:#}); install it and name {LIBRARY} in TIDEGATE_FAKETIME"
        );
    }
    Ok(())
}

/// Unpacks the package into a staging folder, keeps only the library, and moves it into place.
fn unpack(home: &Path) -> Result<()> {
    let staging = debian::create_staging_folder(home)?;
    let package = staging.join("package");
    fs::create_dir_all(&package).context("cannot create the tools folder")?;
    debian::unpack(&package, &["libfaketime"], &[])?;
    let library = find(&package.join("usr/lib")).context("the package has no such library")?;
    fs::rename(library, staging.join(LIBRARY)).context("cannot move the library")?;
    fs::remove_dir_all(&package)?;
    fs::rename(&staging, home).context("cannot move the tool into place")
}

/// Finds the library in the folder of the machine's architecture.
fn find(folder: &Path) -> Option<PathBuf> {
    let architectures = fs::read_dir(folder).ok()?;
    let mut libraries =
        architectures.filter_map(|entry| Some(entry.ok()?.path().join("faketime").join(LIBRARY)));
    libraries.find(|path| path.is_file())
}
