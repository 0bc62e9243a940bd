//! `promtool`, which reads metrics as Prometheus does: one program of Debian's package, unpacked
//! below the folder of builds. Prometheus itself is neither installed nor started.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use super::{debian, folder, is_overridden, is_server};

const PROGRAM: &str = "promtool";

/// Unpacks promtool unless there is one.
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

/// Fills a folder beside the final one, keeps the one program of it, and puts it in place if it
/// runs.
fn unpack(home: &Path) -> Result<()> {
    let staging = debian::create_staging_folder(home)?;
    let package = staging.join("package");
    fs::create_dir_all(&package).context("cannot create a folder for tools")?;
    debian::unpack(&package, &["prometheus"], &[])?;
    let program = staging.join(PROGRAM);
    fs::rename(package.join("usr/bin").join(PROGRAM), &program)
        .context("the package has another layout")?;
    // The rest is a hundred megabytes that nobody needs.
    fs::remove_dir_all(&package)?;
    if !is_server(&program) {
        bail!("the program does not run; perhaps a library is missing");
    }
    fs::rename(&staging, home).context("cannot put the tool in place")
}
