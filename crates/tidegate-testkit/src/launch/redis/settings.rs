//! Settings of a Redis or Valkey server.

use std::fmt::{self, Write as _};
use std::path::Path;

use super::{RedisServer, control};
use crate::launch::certificates::Certificates;

/// The server program to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavor {
    /// Redis.
    Redis,
    /// Valkey.
    Valkey,
}

impl Flavor {
    /// All flavors, for tests that must pass on each.
    pub const ALL: [Self; 2] = [Self::Redis, Self::Valkey];
}

impl fmt::Display for Flavor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redis => "Redis",
            Self::Valkey => "Valkey",
        })
    }
}

/// Builder of a [`RedisServer`]. By default it has no TLS, no password and no persistence.
#[derive(Clone, Debug)]
#[must_use = "call `start` to start the server"]
pub struct RedisBuilder {
    pub(super) flavor: Flavor,
    pub(super) tls: bool,
    pub(super) password: Option<String>,
    appendonly: bool,
    lines: Vec<String>,
}

impl RedisBuilder {
    pub(super) fn new(flavor: Flavor) -> Self {
        Self { flavor, tls: false, password: None, appendonly: false, lines: Vec::new() }
    }

    /// Serves TLS, with a certificate for `localhost` and 127.0.0.1 from its own authority. Control
    /// commands of the test use a separate plain port.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Requires a password from the default user.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Adds or changes a user with a full `user` line, such as
    /// `user app on >secret ~tidegate:* +evalsha`.
    pub fn acl(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    /// Adds a line to the configuration file, such as `maxmemory-policy` with `allkeys-lru`. The
    /// value is written unchanged, so the caller quotes it if necessary.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.lines.push(format!("{name} {value}"));
        self
    }

    /// Enables the append-only file, so that [`RedisServer::restart`] restores the data of the
    /// killed server.
    pub fn appendonly(mut self) -> Self {
        self.appendonly = true;
        self
    }

    /// Starts the server and waits until it is ready.
    ///
    /// # Panics
    /// If the program is not installed, or the server is not ready within ten seconds; the message has
    /// the end of its log.
    #[must_use]
    pub fn start(self) -> RedisServer {
        RedisServer::launch(self)
    }

    /// The text of the configuration file. `ports` are the plain port and the TLS port.
    pub(super) fn file(
        &self,
        folder: &Path,
        ports: [u16; 2],
        tls: Option<&Certificates>,
    ) -> String {
        let [plain, secure] = ports;
        let appendonly = if self.appendonly { "yes" } else { "no" };
        let mut file = format!(
            "bind 127.0.0.1\nport {plain}\ndir {}\ndaemonize no\nsave \"\"\n\
             appendonly {appendonly}\nuser {} on >{} ~* &* +@all\n",
            quoted(folder),
            control::USER,
            control::PASSWORD,
        );
        if let Some(files) = tls {
            let _ = write!(
                file,
                "tls-port {secure}\ntls-ca-cert-file {}\ntls-cert-file {}\ntls-key-file {}\n\
                 tls-auth-clients no\n",
                quoted(&files.ca),
                quoted(&files.certificate),
                quoted(&files.key),
            );
        }
        if let Some(password) = &self.password {
            let _ = writeln!(file, "requirepass {password:?}");
        }
        for line in &self.lines {
            let _ = writeln!(file, "{line}");
        }
        file
    }
}

fn quoted(path: &Path) -> String {
    format!("{:?}", path.display().to_string())
}
