//! The program `tidegate` in a process of its own.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::child::Program;

/// The running program. It is stopped on drop.
#[derive(Debug)]
pub(crate) struct Tidegate {
    program: Program,
    /// Address of its HTTP API.
    pub(crate) http: SocketAddr,
    log: PathBuf,
    _folder: TempDir,
}

impl Tidegate {
    /// Starts it with the text of a configuration file, on free ports and without a database.
    pub(crate) fn start(program: &Path, settings: &str) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("tidegate-bench-").tempdir()?;
        fs::write(folder.path().join("tidegate.toml"), settings)?;
        let log = folder.path().join("log");
        let mut command = Command::new(program);
        command.args(["serve", "--config", "tidegate.toml", "--database", "none"]);
        for listener in ["--http", "--admin", "--grpc", "--resp"] {
            command.args([listener, "127.0.0.1:0"]);
        }
        command.current_dir(folder.path()).env_clear().stderr(File::create(&log)?);
        let (program, line) = Program::start(&mut command)?;
        let http = line.strip_prefix("http://").and_then(|address| address.parse().ok());
        let http = http.with_context(|| {
            format!("tidegate printed no address: {}", fs::read_to_string(&log).unwrap_or_default())
        })?;
        Ok(Self { program, http, log, _folder: folder })
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.program.id()
    }

    /// The file with its log.
    pub(crate) fn log(&self) -> &Path {
        &self.log
    }
}
