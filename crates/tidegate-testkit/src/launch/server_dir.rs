//! Where a server lives: its folder, its settings, its log, and how it is brought up there.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::deadline;
use super::process::Process;
use super::process::guard::Guard;

/// How many lines of the log are told when a server does not start.
const LOG_TAIL_LINES: usize = 15;

/// What a server without TLS says to a setting for it: a newer one, and an older one, which does
/// not know the setting.
const NO_TLS: [&str; 2] = ["Failed finding TLS support", "'tls-port "];

/// The folder of a server.
#[derive(Debug)]
pub(super) struct ServerDir {
    // In this order: the guard removes the folder if we do not come to it.
    folder: TempDir,
    guard: Guard,
}

/// A server that did not come up.
#[derive(Debug)]
pub(super) struct Failure {
    name: String,
    cause: String,
    log: String,
}

impl ServerDir {
    /// A folder whose name begins like this.
    pub(super) fn new(prefix: &str) -> Self {
        let folder = tempfile::Builder::new().prefix(prefix).tempdir();
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

    /// Starts a server by its command, and waits until `check_ready` does not object any more.
    pub(super) fn start(
        &self,
        name: &str,
        command: &mut Command,
        check_ready: impl FnMut(&Process) -> Result<(), String>,
    ) -> Result<Process, Failure> {
        let before = self.log().len();
        let log = File::options().create(true).append(true).open(self.log_file());
        let log = log.expect("the folder of a server can be written");
        command.current_dir(self.folder()).stdin(Stdio::null());
        command.stderr(log.try_clone().expect("a file can be shared")).stdout(log);
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
    /// Whether somebody else has taken the port between our choice and the server's start.
    pub(super) fn port_taken(&self) -> bool {
        self.log.contains("Address already in use")
    }

    /// The whole story, for a panic.
    pub(super) fn report(&self) -> String {
        let Self { name, cause, log } = self;
        let mut report = format!("{name} did not come up: {cause}");
        if NO_TLS.iter().any(|complaint| log.contains(complaint)) {
            let _ = write!(report, "; this {name} was built without TLS, so take another one");
        }
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n  ");
        let _ = write!(report, "\nThe end of its log:\n  {tail}");
        report
    }
}

/// Waits until this very process answers.
fn wait_until_ready(
    process: &mut Process,
    mut check_ready: impl FnMut(&Process) -> Result<(), String>,
) -> Result<(), String> {
    let mut last = None;
    let check = || {
        if let Some(status) = process.exit_status() {
            return Some(Err(format!("it ended with {status}")));
        }
        check_ready(process).map_err(|reason| last = Some(reason)).ok().map(Ok)
    };
    let seen = deadline::poll_within(deadline::TIMEOUT, check);
    seen.unwrap_or_else(|| Err(format!("no answer within {:?}: {last:?}", deadline::TIMEOUT)))
}
