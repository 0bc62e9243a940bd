//! The folder of a server, with its settings and its log, and starting the server in it.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::deadline;
use super::process::Process;
use super::process::guard::Guard;

/// Number of log lines in the report of a server that did not start.
const LOG_TAIL_LINES: usize = 15;

/// Log messages of a server built without TLS: a newer version, and an older one that does not know
/// the setting.
const NO_TLS: [&str; 2] = ["Failed finding TLS support", "'tls-port "];

/// The folder of a server.
#[derive(Debug)]
pub(super) struct ServerDir {
    // The order matters: the guard removes the folder if this process cannot.
    folder: TempDir,
    guard: Guard,
}

/// Why a server did not start.
#[derive(Debug)]
pub(super) struct Failure {
    name: String,
    cause: String,
    log: String,
}

impl ServerDir {
    /// Creates a temporary folder whose name starts with `prefix`.
    pub(super) fn new(prefix: &str) -> Self {
        let folder = tempfile::Builder::new().prefix(prefix).tempdir();
        let folder = folder.expect("cannot create a temporary folder");
        let guard = Guard::new(Some(folder.path()));
        Self { folder, guard }
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn guard(&self) -> &Guard {
        &self.guard
    }

    /// The log of the servers started in this folder.
    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    pub(super) fn write_settings(&self, text: &str) {
        fs::write(self.settings_file(), text).expect("cannot write to the server's folder");
    }

    /// Starts a server and waits until `check_ready` succeeds.
    pub(super) fn start(
        &self,
        name: &str,
        command: &mut Command,
        check_ready: impl FnMut(&Process) -> Result<(), String>,
    ) -> Result<Process, Failure> {
        let before = self.log().len();
        let log = File::options().create(true).append(true).open(self.log_file());
        let log = log.expect("cannot write to the server's folder");
        command.current_dir(self.folder()).stdin(Stdio::null());
        command.stderr(log.try_clone().expect("cannot duplicate a file handle")).stdout(log);
        let mut process = Process::start(command, &self.guard);
        wait_until_ready(&mut process, check_ready).map_err(|cause| {
            process.kill(&self.guard);
            let log = self.log().split_off(before);
            Failure { name: name.to_owned(), cause, log }
        })?;
        Ok(process)
    }

    fn log_file(&self) -> PathBuf {
        self.folder().join("server.log")
    }

    pub(super) fn settings_file(&self) -> PathBuf {
        self.folder().join("server.conf")
    }
}

impl Failure {
    /// Whether another process took the port before the server could bind it.
    pub(super) fn port_taken(&self) -> bool {
        self.log.contains("Address already in use")
    }

    /// Formats the failure for a panic message.
    pub(super) fn report(&self) -> String {
        let Self { name, cause, log } = self;
        let mut report = format!("{name} did not start: {cause}");
        if NO_TLS.iter().any(|complaint| log.contains(complaint)) {
            let _ = write!(report, "; this {name} was built without TLS, use another build");
        }
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n  ");
        let _ = write!(report, "\nLast lines of its log:\n  {tail}");
        report
    }
}

/// Waits until the process is ready or has exited.
fn wait_until_ready(
    process: &mut Process,
    mut check_ready: impl FnMut(&Process) -> Result<(), String>,
) -> Result<(), String> {
    let mut last = None;
    let check = || {
        if let Some(status) = process.exit_status() {
            return Some(Err(format!("it exited with {status}")));
        }
        check_ready(process).map_err(|reason| last = Some(reason)).ok().map(Ok)
    };
    let seen = deadline::poll_within(deadline::TIMEOUT, check);
    seen.unwrap_or_else(|| Err(format!("not ready within {:?}: {last:?}", deadline::TIMEOUT)))
}
