//! Unpacks nginx, a peer in the gateway benchmark, below the target folder.
//!
//! Installing Debian's package would start a service on port 80.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::{debian, folder, runs};

/// Unpacks nginx unless it is installed. Returns the path of the program.
pub(crate) fn install() -> Result<PathBuf> {
    let home = folder().join("nginx");
    let program = home.join("usr/sbin/nginx");
    for known in [Path::new("nginx"), Path::new("/usr/sbin/nginx"), &program] {
        if is_nginx(known) {
            return Ok(known.to_path_buf());
        }
    }
    let unpacked = unpack(&home).or_else(|_| debian::update().and_then(|()| unpack(&home)));
    unpacked.context("nginx is missing; run: sudo apt-get install nginx")?;
    println!("unpacked nginx from the system's packages");
    Ok(program)
}

fn unpack(home: &Path) -> Result<()> {
    let staging = debian::create_staging_folder(home)?;
    debian::unpack(&staging, &["nginx"], &[])?;
    if !is_nginx(&staging.join("usr/sbin/nginx")) {
        bail!("the program does not run; perhaps a library is missing");
    }
    fs::rename(&staging, home).context("cannot move the tool into place")
}

fn is_nginx(program: &Path) -> bool {
    runs(Command::new(program).arg("-v"))
}
