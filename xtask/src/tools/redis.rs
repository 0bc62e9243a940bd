//! Redis, from the packages of the system.

use anyhow::{Result, bail};

use super::{apt_get, attempt, is_chosen, is_server};

/// Installs Redis unless there is one.
pub(super) fn install() -> Result<()> {
    if is_chosen("TIDEGATE_REDIS_SERVER") || is_server("redis-server") {
        return Ok(());
    }
    println!("installing redis-server");
    let install = || apt_get(&["install", "--yes", "--no-install-recommends", "redis-server"]);
    // A fresh machine has no list of packages, and an old one has a list that is out of date.
    let installed = attempt(install())
        .or_else(|_| attempt(apt_get(&["update"])).and_then(|()| attempt(install())));
    if let Err(error) = installed {
        bail!("redis-server is missing ({error:#}); run: sudo apt-get install redis-server");
    }
    if !is_server("redis-server") {
        bail!("redis-server was installed and does not run; try: redis-server --version");
    }
    Ok(())
}
