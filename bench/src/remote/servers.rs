//! The Redis server of the benchmark.

use std::path::Path;

use anyhow::{Context as _, Result};
use redis::io::tcp::TcpSettings;
use redis::{Client, IntoConnectionInfo as _};
use tidegate_testkit::launch::{Flavor, RedisServer, Reply};

/// A server on loopback, without TLS or persistence.
#[derive(Debug)]
pub(super) struct Servers {
    server: RedisServer,
}

impl Servers {
    pub(super) fn start() -> Self {
        // Modules are loaded later, so that a broken module does not prevent the start.
        let builder = RedisServer::builder(Flavor::Redis).setting("enable-module-command", "local");
        Self { server: builder.start() }
    }

    pub(super) fn server(&self) -> &RedisServer {
        &self.server
    }

    pub(super) fn url(&self) -> String {
        self.server.url()
    }

    /// The version of the server.
    pub(super) fn version(&self) -> String {
        self.server.info("server").remove("redis_version").unwrap_or_default()
    }

    /// A client of one of the databases with a minimal handshake.
    pub(super) fn client(&self, database: u8) -> Result<Client> {
        let info = self.url().into_connection_info()?;
        let settings = info.redis_settings().clone().set_skip_set_lib_name();
        let settings = settings.set_db(database.into());
        let tcp = TcpSettings::default().set_nodelay(true);
        Ok(Client::open(info.set_redis_settings(settings).set_tcp_settings(tcp))?)
    }

    /// Loads redis-cell.
    pub(super) fn load_module(&self, path: &Path) -> Result<()> {
        let path = path.to_str().context("the path of the module is not UTF-8")?;
        match self.server.command(&["MODULE", "LOAD", path]) {
            Reply::Error(text) => anyhow::bail!("{text}"),
            _ => Ok(()),
        }
    }
}
