//! Where a server lives: its folder, its settings, its log, and how it is brought up there.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::control::{self, Reply};
use super::guard::Guard;
use super::process::Process;
use super::settings::Flavor;
use super::{patience, programs, redis};

/// How long one attempt to reach a starting server may take.
const ATTEMPT: Duration = Duration::from_millis(500);

/// How many lines of the log are told when a server does not start.
const TAIL: usize = 15;

/// What a server without TLS says to a setting for it: a newer one, and an older one, which does
/// not know the setting.
const NO_TLS: [&str; 2] = ["Failed finding TLS support", "'tls-port "];

/// The folder of a server.
#[derive(Debug)]
pub(super) struct Home {
    // In this order: the guard removes the folder if we do not come to it.
    folder: TempDir,
    guard: Guard,
}

/// A server that did not come up.
#[derive(Debug)]
pub(super) struct Failure {
    flavor: Flavor,
    cause: String,
    log: String,
}

impl Home {
    pub(super) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("tidegate-redis-").tempdir();
        let folder = folder.expect("a folder for temporary files");
        let guard = Guard::new(Some(folder.path()));
        Self { folder, guard }
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn guard(&self) -> &Guard {
        &self.guard
    }

    /// What the servers that lived here have written.
    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    pub(super) fn write_settings(&self, text: &str) {
        fs::write(self.settings_file(), text).expect("the folder of a server can be written");
    }

    /// Starts a server with the written settings and waits until it answers at `address`.
    pub(super) fn start(&self, flavor: Flavor, address: SocketAddr) -> Result<Process, Failure> {
        let before = self.log().len();
        let log = File::options().create(true).append(true).open(self.log_file());
        let log = log.expect("the folder of a server can be written");
        let mut command = Command::new(programs::server(flavor));
        command.arg(self.settings_file()).current_dir(self.folder()).stdin(Stdio::null());
        command.stderr(log.try_clone().expect("a file can be shared")).stdout(log);
        let mut process = Process::start(&mut command, &self.guard);
        up(&mut process, address).map_err(|cause| {
            process.end(&self.guard);
            let log = self.log().split_off(before);
            Failure { flavor, cause, log }
        })?;
        Ok(process)
    }

    fn log_file(&self) -> PathBuf {
        self.folder().join("server.log")
    }

    fn settings_file(&self) -> PathBuf {
        self.folder().join("server.conf")
    }
}

impl Failure {
    /// Whether somebody else has taken the port between our choice and the server's start.
    pub(super) fn lost_port(&self) -> bool {
        self.log.contains("Address already in use")
    }

    /// The whole story, for a panic.
    pub(super) fn told(&self) -> String {
        let Self { flavor, cause, log } = self;
        let mut told = format!("{flavor} did not come up: {cause}");
        if NO_TLS.iter().any(|complaint| log.contains(complaint)) {
            let _ = write!(told, "; this {flavor} was built without TLS, so take another one");
        }
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL)..].join("\n  ");
        let _ = write!(told, "\nThe end of its log:\n  {tail}");
        told
    }
}

/// Waits until this very process answers; another server may have been faster with the port.
fn up(process: &mut Process, address: SocketAddr) -> Result<(), String> {
    let mut last = None;
    let id = process.id().to_string();
    let look = || {
        if let Some(status) = process.ended() {
            return Some(Err(format!("it ended with {status}")));
        }
        match answering(address) {
            Ok(found) if found.as_ref() == Some(&id) => return Some(Ok(())),
            Ok(found) => last = Some(format!("the port belongs to {found:?}")),
            Err(error) => last = Some(error.to_string()),
        }
        None
    };
    let seen = patience::seen_within(patience::LIMIT, look);
    seen.unwrap_or_else(|| Err(format!("no answer within {:?}: {last:?}", patience::LIMIT)))
}

/// The number of the process that answers, once it has loaded its data and answers `PING`.
fn answering(address: SocketAddr) -> io::Result<Option<String>> {
    let pong = control::ask(address, &["PING"], ATTEMPT)?;
    if pong != Reply::Text("PONG".to_owned()) {
        return Err(io::Error::other(format!("{pong:?}")));
    }
    let info = control::ask(address, &["INFO", "server"], ATTEMPT)?;
    let Reply::Text(info) = info else { return Err(io::Error::other(format!("{info:?}"))) };
    Ok(redis::fields(&info).remove("process_id"))
}
