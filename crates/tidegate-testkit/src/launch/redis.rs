//! A Redis or Valkey server for a test.

pub(super) mod control;
pub(super) mod settings;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::control::Reply;
use self::settings::{Flavor, RedisBuilder};
use super::certificates::Certificates;
use super::deadline::wait_until;
use super::process::Process;
use super::server_dir::{Failure, ServerDir};
use super::{ports, programs};

/// Number of ports to try when another process binds the port first.
const ATTEMPTS: usize = 10;

/// Timeout of one attempt to reach a starting server.
const ATTEMPT: Duration = Duration::from_millis(500);

/// A Redis or Valkey server with its own port and folder. It is killed when dropped, and when the
/// test process ends in any other way, so it may also be a static.
#[derive(Debug)]
pub struct RedisServer {
    settings: RedisBuilder,
    /// The plain port and the one for TLS.
    ports: [u16; 2],
    certificates: Option<Certificates>,
    process: Mutex<Option<Process>>,
    dir: ServerDir,
}

impl RedisServer {
    /// Starts a server without TLS or persistence, and waits until it is ready.
    ///
    /// # Panics
    /// See [`RedisBuilder::start`].
    #[must_use]
    pub fn start(flavor: Flavor) -> Self {
        Self::builder(flavor).start()
    }

    /// Returns a builder for a server with other settings.
    pub fn builder(flavor: Flavor) -> RedisBuilder {
        RedisBuilder::new(flavor)
    }

    /// The `redis://` or `rediss://` URL of the server, with the password if there is one.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_at(self.address())
    }

    /// The URL with another address, such as that of a [`Proxy`](super::Proxy) in front of the
    /// server.
    #[must_use]
    pub fn url_at(&self, address: SocketAddr) -> String {
        let user = self.settings.password.as_deref().map(|password| ("default", password));
        self.url_for(user, address)
    }

    /// The URL for a user of [`RedisBuilder::acl`].
    #[must_use]
    pub fn url_as(&self, user: &str, password: &str) -> String {
        self.url_for(Some((user, password)), self.address())
    }

    /// The address on which the server listens for clients.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        ports::loopback(self.port())
    }

    /// The port on which the server listens for clients.
    #[must_use]
    pub fn port(&self) -> u16 {
        let [plain, secure] = self.ports;
        if self.settings.tls { secure } else { plain }
    }

    /// The certificate of the authority that clients must trust, as PEM.
    ///
    /// # Panics
    /// If the server has no TLS.
    #[must_use]
    pub fn ca_pem(&self) -> String {
        fs::read_to_string(self.ca_file()).expect("cannot read the certificate")
    }

    /// The path of the certificate of [`RedisServer::ca_pem`].
    ///
    /// # Panics
    /// If the server has no TLS.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.certificates.as_ref().expect("the server has no TLS").ca.clone()
    }

    /// The process id of the server.
    ///
    /// # Panics
    /// If the server was killed.
    #[must_use]
    pub fn pid(&self) -> u32 {
        running(&mut self.process()).id()
    }

    /// The log of the server since its first start.
    #[must_use]
    pub fn log(&self) -> String {
        self.dir.log()
    }

    /// Kills the server with SIGKILL. On return it has ended, and its port refuses connections.
    /// Does nothing if the server is already down.
    pub fn kill(&self) {
        if let Some(mut process) = self.process().take() {
            process.kill(self.dir.guard());
        }
    }

    /// Starts a killed server again with the same port, folder and settings, and waits until it is
    /// ready.
    ///
    /// # Panics
    /// If the server is running, or is not ready within ten seconds.
    pub fn restart(&self) {
        let mut process = self.process();
        assert!(process.is_none(), "{} is still running", self.settings.flavor);
        // Another test that looks for a free port may bind this one for a moment.
        let address = self.control_address();
        let started = wait_until(&format!("the port of {address}"), || {
            let started = start(&self.dir, self.settings.flavor, address);
            if started.as_ref().is_err_and(Failure::port_taken) { None } else { Some(started) }
        });
        *process = Some(started.unwrap_or_else(|failure| panic!("{}", failure.report())));
    }

    /// Freezes the server with SIGSTOP and waits until it has stopped. The system still accepts
    /// connections for it.
    ///
    /// # Panics
    /// If the server was killed or has ended.
    pub fn stop(&self) {
        running(&mut self.process()).freeze();
    }

    /// Resumes a frozen server with SIGCONT.
    ///
    /// # Panics
    /// If the server was killed or has ended.
    pub fn cont(&self) {
        running(&mut self.process()).thaw();
    }

    /// Sends a command as a user with all permissions, over a new plain connection.
    ///
    /// # Panics
    /// If there is no reply within ten seconds. An error from the server counts as a reply.
    #[must_use]
    pub fn command(&self, words: &[&str]) -> Reply {
        match self.try_command(words) {
            Ok(reply) => reply,
            Err(error) => panic!("{} did not reply to {words:?}: {error}", self.settings.flavor),
        }
    }

    /// Sends a command to a server that may be down.
    ///
    /// # Errors
    /// If the server refuses the connection, closes it, or does not reply within ten seconds.
    pub fn try_command(&self, words: &[&str]) -> io::Result<Reply> {
        control::execute(self.control_address(), words)
    }

    /// The fields of a section of `INFO`.
    ///
    /// # Panics
    /// If the server does not reply.
    #[must_use]
    pub fn info(&self, section: &str) -> BTreeMap<String, String> {
        fields(&self.command(&["INFO", section]).text())
    }

    /// Number of calls of a command since the start of the server or `CONFIG RESETSTAT`.
    /// Subcommands are written as `script|load`.
    ///
    /// # Panics
    /// If the server does not reply.
    #[must_use]
    pub fn command_calls(&self, command: &str) -> u64 {
        let name = format!("cmdstat_{}", command.to_lowercase());
        let statistics = self.info("commandstats");
        let Some(fields) = statistics.get(&name) else { return 0 };
        let calls = fields.split(',').find_map(|field| field.strip_prefix("calls="));
        calls.and_then(|calls| calls.parse().ok()).expect("a count of calls")
    }

    pub(super) fn launch(settings: RedisBuilder) -> Self {
        let dir = ServerDir::new("tidegate-redis-");
        let certificates = settings.tls.then(|| Certificates::write(dir.folder()));
        let mut attempts = 0;
        loop {
            let ports = ports::free_pair();
            dir.write_settings(&settings.file(dir.folder(), ports, certificates.as_ref()));
            attempts += 1;
            match start(&dir, settings.flavor, ports::loopback(ports[0])) {
                Ok(process) => {
                    let process = Mutex::new(Some(process));
                    return Self { settings, ports, certificates, process, dir };
                }
                Err(failure) if failure.port_taken() && attempts < ATTEMPTS => {}
                Err(failure) => panic!("{}", failure.report()),
            }
        }
    }

    fn url_for(&self, user: Option<(&str, &str)>, address: SocketAddr) -> String {
        let scheme = if self.settings.tls { "rediss" } else { "redis" };
        let user = user.map(|(name, password)| {
            format!("{}:{}@", percent_encoded(name), percent_encoded(password))
        });
        format!("{scheme}://{}{address}", user.unwrap_or_default())
    }

    fn control_address(&self) -> SocketAddr {
        ports::loopback(self.ports[0])
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        // A panic with the lock held leaves no partial change.
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn running(process: &mut Option<Process>) -> &mut Process {
    process.as_mut().expect("the server was killed")
}

/// Starts a server with the settings in its folder.
fn start(dir: &ServerDir, flavor: Flavor, address: SocketAddr) -> Result<Process, Failure> {
    let mut command = Command::new(programs::server(flavor));
    command.arg(dir.settings_file());
    dir.start(&flavor.to_string(), &mut command, |process| {
        let found = responding_pid(address).map_err(|error| error.to_string())?;
        // Another server may have bound the port first.
        let ours = found.as_ref() == Some(&process.id().to_string());
        if ours { Ok(()) } else { Err(format!("the port belongs to {found:?}")) }
    })
}

/// The process id of the server at `address`, once it has loaded its data and replies to `PING`.
fn responding_pid(address: SocketAddr) -> io::Result<Option<String>> {
    let pong = control::execute_within(address, &["PING"], ATTEMPT)?;
    if pong != Reply::Text("PONG".to_owned()) {
        return Err(io::Error::other(format!("{pong:?}")));
    }
    let info = control::execute_within(address, &["INFO", "server"], ATTEMPT)?;
    let Reply::Text(info) = info else { return Err(io::Error::other(format!("{info:?}"))) };
    Ok(fields(&info).remove("process_id"))
}

/// Parses a section of `INFO` into names and values, without headings and empty lines.
fn fields(section: &str) -> BTreeMap<String, String> {
    let pairs = section.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Percent-encodes a part of a URL.
fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let written =
        |byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(written).collect()
}
