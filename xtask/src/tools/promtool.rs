//! Unpacks `promtool`, which checks metrics, from Debian's package below the target folder.
//! Prometheus itself is neither installed nor started.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use super::{debian, folder, is_overridden, is_server};

const PROGRAM: &str = "promtool";

/// Unpacks promtool unless it is installed.
pub(super) fn install() -> Result<()> {
    let home = folder().join("prometheus");
    let is_installed = is_overridden("TIDEGATE_PROMTOOL") || is_server(PROGRAM);
    if is_installed || is_server(home.join(PROGRAM)) {
        return Ok(());
    }
    println!("unpacking promtool");
    let unpacked = unpack(&home).or_else(|_| debian::update().and_then(|()| unpack(&home)));
    if let Err(error) = unpacked {
        bail!("promtool is missing ({error:#}); run: sudo apt-get install prometheus");
    }
    Ok(())
}

/// Unpacks the package into a staging folder, keeps only promtool, and moves it into place if it
/// runs.
fn unpack(home: &Path) -> Result<()> {
    let staging = debian::create_staging_folder(home)?;
    let package = staging.join("package");
    fs::create_dir_all(&package).context("cannot create the tools folder")?;
    debian::unpack(&package, &["prometheus"], &[])?;
    let program = staging.join(PROGRAM);
    fs::rename(package.join("usr/bin").join(PROGRAM), &program)
        .context("the package has an unexpected layout")?;
    // The rest is a hundred megabytes of unneeded files.
    fs::remove_dir_all(&package)?;
    if !is_server(&program) {
        bail!("the program does not run; perhaps a library is missing");
    }
    fs::rename(&staging, home).context("cannot move the tool into place")
}
