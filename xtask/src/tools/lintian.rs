//! Installs Debian's linter of packages.

use anyhow::{Context as _, Result};

use super::{debian, is_server};

/// Installs lintian unless it is there.
pub(crate) fn install() -> Result<()> {
    if is_server("lintian") {
        return Ok(());
    }
    debian::install("lintian").context("lintian is missing; run: sudo apt-get install lintian")
}
