//! How a server is to be started.

use std::fmt::{self, Write as _};
use std::path::Path;

use super::{RedisServer, control};
use crate::launch::certificates::Certificates;

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavor {
    /// Redis.
    Redis,
    /// Valkey.
    Valkey,
}

impl Flavor {
    /// Both, for tests that must pass on either.
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

/// A server to be started. Without further words it is plain, open and keeps nothing on disk.
#[derive(Clone, Debug)]
#[must_use = "a builder starts nothing until `start`"]
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

    /// Serves TLS at its address, with a certificate for `localhost` and 127.0.0.1 from an
    /// authority of its own. The test's own commands go over a plain port beside it.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Asks the default user for a password.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Adds a user, or changes the default one: the whole line, such as
    /// `user app on >secret ~tidegate:* +evalsha`.
    pub fn acl(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    /// Adds a line of the configuration file, such as `maxmemory-policy` with `allkeys-lru`. The
    /// value is taken as it is: quotes in it are the caller's.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.lines.push(format!("{name} {value}"));
        self
    }

    /// Writes every command to disk, so that [`RedisServer::start_again`] finds the data of the
    /// server that was killed.
    pub fn appendonly(mut self) -> Self {
        self.appendonly = true;
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    /// When the program is not installed, or the server does not answer within ten seconds; the
    /// text has the end of its log.
    #[must_use]
    pub fn start(self) -> RedisServer {
        RedisServer::launch(self)
    }

    /// The configuration file. `ports` are the plain port and the one for TLS.
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
