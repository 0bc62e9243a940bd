//! Installs PostgreSQL from the system's packages.
//!
//! Debian's package creates and starts a server unless a configuration file disables that. The file
//! exists only during the installation.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::{debian, is_overridden, is_server};

/// Debian's folder for the programs, with one folder per version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// Folder with the configuration of Debian's installation script.
const CLUSTER_CONFIG: &str = "/etc/postgresql-common/createcluster.d";

/// Installs PostgreSQL unless it is installed.
pub(super) fn install() -> Result<()> {
    if is_overridden("TIDEGATE_POSTGRES_BIN") || is_installed() {
        return Ok(());
    }
    let installed = NoClusterConfig::write().and_then(|_config| debian::install("postgresql"));
    if let Err(error) = installed {
        bail!("PostgreSQL is missing ({error:#}); run: sudo apt-get install postgresql");
    }
    if !is_installed() {
        bail!("postgresql is installed but its server does not run; see {VERSIONS}");
    }
    Ok(())
}

/// Whether a server program works: one of Debian's versions, or one on the path.
fn is_installed() -> bool {
    let versions = fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    let mut packaged = versions.map(|version| version.path().join("bin/postgres"));
    packaged.any(is_server) || is_server("postgres")
}

/// The configuration file that disables the server; removed on drop.
struct NoClusterConfig {
    file: PathBuf,
}

impl NoClusterConfig {
    fn write() -> Result<Self> {
        let folder = Path::new(CLUSTER_CONFIG);
        fs::create_dir_all(folder).context("cannot disable Debian's own server")?;
        let file = folder.join("tidegate-tests.conf");
        fs::write(&file, "create_main_cluster = false\n")
            .context("cannot disable Debian's own server")?;
        Ok(Self { file })
    }
}

impl Drop for NoClusterConfig {
    fn drop(&mut self) {
        // If the file stays, Debian creates no server next time either, which is harmless.
        let _ = fs::remove_file(&self.file);
    }
}
