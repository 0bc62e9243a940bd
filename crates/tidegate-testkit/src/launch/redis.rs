//! A Redis or Valkey server that belongs to a test.

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

/// How often another port is tried when somebody was faster.
const ATTEMPTS: usize = 10;

/// How long one attempt to reach a starting server may take.
const ATTEMPT: Duration = Duration::from_millis(500);

/// A server with a port and a folder of its own. It is killed when dropped, and when the process
/// of the test ends in any other way, so it may also live in a static.
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
    /// Starts a plain server that keeps nothing on disk, and waits until it answers.
    ///
    /// # Panics
    /// As [`RedisBuilder::start`].
    #[must_use]
    pub fn start(flavor: Flavor) -> Self {
        Self::builder(flavor).start()
    }

    /// A server with more to be said about it.
    pub fn builder(flavor: Flavor) -> RedisBuilder {
        RedisBuilder::new(flavor)
    }

    /// Where clients connect, with the password if there is one: `redis://` or `rediss://`.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_at(self.address())
    }

    /// The same with another address, such as that of a [`Proxy`](super::Proxy) before the server.
    #[must_use]
    pub fn url_at(&self, address: SocketAddr) -> String {
        let user = self.settings.password.as_deref().map(|password| ("default", password));
        self.url_for(user, address)
    }

    /// Where a user of [`RedisBuilder::acl`] connects.
    #[must_use]
    pub fn url_as(&self, user: &str, password: &str) -> String {
        self.url_for(Some((user, password)), self.address())
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        ports::loopback(self.port())
    }

    /// The port where clients connect.
    #[must_use]
    pub fn port(&self) -> u16 {
        let [plain, secure] = self.ports;
        if self.settings.tls { secure } else { plain }
    }

    /// The certificate of the authority that a client must trust, as PEM.
    ///
    /// # Panics
    /// When the server has no TLS.
    #[must_use]
    pub fn ca_pem(&self) -> String {
        fs::read_to_string(self.ca_file()).expect("the certificate was written")
    }

    /// The file of [`RedisServer::ca_pem`].
    ///
    /// # Panics
    /// When the server has no TLS.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.certificates.as_ref().expect("a server with TLS").ca.clone()
    }

    /// The number of the running process.
    ///
    /// # Panics
    /// When the server was killed.
    #[must_use]
    pub fn pid(&self) -> u32 {
        running(&mut self.process()).id()
    }

    /// What the server wrote since it was first started.
    #[must_use]
    pub fn log(&self) -> String {
        self.dir.log()
    }

    /// Kills the server with SIGKILL. When this returns it is gone, and its port refuses.
    /// Killing a killed server does nothing.
    pub fn kill(&self) {
        if let Some(mut process) = self.process().take() {
            process.kill(self.dir.guard());
        }
    }

    /// Starts a killed server again with the same port, folder and settings, and waits until it
    /// answers.
    ///
    /// # Panics
    /// When the server runs, or does not answer within ten seconds.
    pub fn start_again(&self) {
        let mut process = self.process();
        assert!(process.is_none(), "{} still runs", self.settings.flavor);
        // Whoever looks for a free port binds this one for a moment, if it comes upon it.
        let address = self.control_address();
        let started = wait_until(&format!("the port of {address}"), || {
            let started = start(&self.dir, self.settings.flavor, address);
            if started.as_ref().is_err_and(Failure::port_taken) { None } else { Some(started) }
        });
        *process = Some(started.unwrap_or_else(|failure| panic!("{}", failure.report())));
    }

    /// Freezes the server with SIGSTOP. When this returns it does nothing more; the system still
    /// accepts connections for it.
    ///
    /// # Panics
    /// When the server was killed or has ended.
    pub fn stop(&self) {
        running(&mut self.process()).freeze();
    }

    /// Lets a frozen server go on, with SIGCONT.
    ///
    /// # Panics
    /// When the server was killed or has ended.
    pub fn cont(&self) {
        running(&mut self.process()).thaw();
    }

    /// Sends a command as a user who may do everything, over a plain connection of its own.
    ///
    /// # Panics
    /// When there is no reply within ten seconds. An error of the server is a reply.
    #[must_use]
    pub fn command(&self, words: &[&str]) -> Reply {
        match self.try_command(words) {
            Ok(reply) => reply,
            Err(error) => panic!("{} did not answer {words:?}: {error}", self.settings.flavor),
        }
    }

    /// Sends a command to a server that may be down.
    ///
    /// # Errors
    /// When the server refuses the connection, closes it, or is silent for ten seconds.
    pub fn try_command(&self, words: &[&str]) -> io::Result<Reply> {
        control::execute(self.control_address(), words)
    }

    /// A section of `INFO`, by its field names.
    ///
    /// # Panics
    /// When the server does not answer.
    #[must_use]
    pub fn info(&self, section: &str) -> BTreeMap<String, String> {
        fields(&self.command(&["INFO", section]).text())
    }

    /// How often the server has carried a command out since it was started, or since
    /// `CONFIG RESETSTAT`. Subcommands are written `script|load`.
    ///
    /// # Panics
    /// When the server does not answer.
    #[must_use]
    pub fn calls_of(&self, command: &str) -> u64 {
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
        // A test that panicked with the lock held has changed nothing halfway.
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn running(process: &mut Option<Process>) -> &mut Process {
    process.as_mut().expect("a server that was not killed")
}

/// Starts a server with the settings that stand in its home.
fn start(dir: &ServerDir, flavor: Flavor, address: SocketAddr) -> Result<Process, Failure> {
    let mut command = Command::new(programs::server(flavor));
    command.arg(dir.settings_file());
    dir.start(&flavor.to_string(), &mut command, |process| {
        let found = responding_pid(address).map_err(|error| error.to_string())?;
        // Another server may have been faster with the port.
        let ours = found.as_ref() == Some(&process.id().to_string());
        if ours { Ok(()) } else { Err(format!("the port belongs to {found:?}")) }
    })
}

/// The number of the process that answers, once it has loaded its data and answers `PING`.
fn responding_pid(address: SocketAddr) -> io::Result<Option<String>> {
    let pong = control::execute_within(address, &["PING"], ATTEMPT)?;
    if pong != Reply::Text("PONG".to_owned()) {
        return Err(io::Error::other(format!("{pong:?}")));
    }
    let info = control::execute_within(address, &["INFO", "server"], ATTEMPT)?;
    let Reply::Text(info) = info else { return Err(io::Error::other(format!("{info:?}"))) };
    Ok(fields(&info).remove("process_id"))
}

/// The fields of a section: lines of a name and a value; headings and empty lines are none.
fn fields(section: &str) -> BTreeMap<String, String> {
    let pairs = section.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// A part of an address in which nothing has a meaning of its own.
fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let written =
        |byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(written).collect()
}
