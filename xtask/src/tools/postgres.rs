//! PostgreSQL, from the packages of the system.
//!
//! Debian's package makes a server of its own and starts it, unless it finds it written that none
//! is wanted. That is written for as long as the installation takes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::{debian, is_overridden, is_server};

/// Where Debian keeps the programs, in a folder for each version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// Where Debian's package looks for what an installation is to do.
const CLUSTER_CONFIG: &str = "/etc/postgresql-common/createcluster.d";

/// Installs PostgreSQL unless there is one.
pub(super) fn install() -> Result<()> {
    if is_overridden("TIDEGATE_POSTGRES_BIN") || is_installed() {
        return Ok(());
    }
    let installed = NoClusterConfig::write().and_then(|_config| debian::install("postgresql"));
    if let Err(error) = installed {
        bail!("PostgreSQL is missing ({error:#}); run: sudo apt-get install postgresql");
    }
    if !is_installed() {
        bail!("postgresql was installed and its server does not run; look into {VERSIONS}");
    }
    Ok(())
}

/// Whether a server runs: one of Debian's, whatever its version, or one on the path.
fn is_installed() -> bool {
    let versions = fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    let mut packaged = versions.map(|version| version.path().join("bin/postgres"));
    packaged.any(is_server) || is_server("postgres")
}

/// The wish for no server, which is taken back when it is dropped.
struct NoClusterConfig {
    file: PathBuf,
}

impl NoClusterConfig {
    fn write() -> Result<Self> {
        let folder = Path::new(CLUSTER_CONFIG);
        fs::create_dir_all(folder).context("cannot tell Debian to start no server")?;
        let file = folder.join("tidegate-tests.conf");
        fs::write(&file, "create_main_cluster = false\n")
            .context("cannot tell Debian to start no server")?;
        Ok(Self { file })
    }
}

impl Drop for NoClusterConfig {
    fn drop(&mut self) {
        // A wish that stays has Debian make no server next time either, and no harm is done.
        let _ = fs::remove_file(&self.file);
    }
}
