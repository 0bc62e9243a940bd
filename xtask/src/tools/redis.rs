//! Redis, from the packages of the system.

use anyhow::{Result, bail};

use super::{debian, is_overridden, is_server};

/// Installs Redis unless there is one.
pub(super) fn install() -> Result<()> {
    if is_overridden("TIDEGATE_REDIS_SERVER") || is_server("redis-server") {
        return Ok(());
    }
    if let Err(error) = debian::install("redis-server") {
        bail!("redis-server is missing ({error:#}); run: sudo apt-get install redis-server");
    }
    if !is_server("redis-server") {
        bail!("redis-server was installed and does not run; try: redis-server --version");
    }
    Ok(())
}
