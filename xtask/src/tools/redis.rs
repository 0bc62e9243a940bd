//! Installs Redis from the system's packages.

use anyhow::{Result, bail};

use super::{debian, is_overridden, is_server};

/// Installs Redis unless it is installed.
pub(super) fn install() -> Result<()> {
    if is_overridden("TIDEGATE_REDIS_SERVER") || is_server("redis-server") {
        return Ok(());
    }
    if let Err(error) = debian::install("redis-server") {
        bail!("redis-server is missing ({error:#}); run: sudo apt-get install redis-server");
    }
    if !is_server("redis-server") {
        bail!("redis-server is installed but does not run; try: redis-server --version");
    }
    Ok(())
}
