//! Runs Python scripts, for tests with the official client libraries of providers.
//!
//! Scripts run in a virtual environment that `cargo xtask tools` creates, and inherit nothing from
//! the environment of the test: no proxies, no keys, no user settings.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use tempfile::NamedTempFile;

use super::process::Process;
use super::process::guard::Guard;
use super::{deadline, programs};

/// Maximum run time of a script.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The Python interpreter of the environment with the client libraries.
///
/// ```no_run
/// use tidegate_testkit::launch::Python;
///
/// let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/hello.py");
/// let ran = Python::installed().run(script, &["world"], &[("GREETING", "hello")]);
/// assert_eq!(ran.line(), "hello, world");
/// ```
#[derive(Clone, Debug)]
pub struct Python {
    interpreter: PathBuf,
}

/// Output and exit status of a script.
#[derive(Clone, Debug)]
#[must_use]
pub struct ScriptOutput {
    /// The exit status.
    pub status: ExitStatus,
    /// The standard output.
    pub stdout: String,
    /// The standard error.
    pub stderr: String,
}

impl Python {
    /// Returns the interpreter in `TIDEGATE_PYTHON`, or the one installed by `cargo xtask tools`.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn installed() -> Self {
        Self { interpreter: programs::python() }
    }

    /// Runs a script to its end. Its environment has `PATH` and `env`, and nothing else.
    ///
    /// # Panics
    /// If it cannot be started, or runs for more than two minutes, after which it is killed.
    pub fn run(
        &self,
        script: impl AsRef<Path>,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> ScriptOutput {
        let script = script.as_ref();
        // Files instead of pipes: a script does not block when its output is not read.
        let [stdout, stderr] = [(); 2].map(|()| NamedTempFile::new().expect("a temporary file"));
        let file = |of: &NamedTempFile| of.reopen().expect("a file can be opened once more");
        let mut command = Command::new(&self.interpreter);
        // -I ignores the current folder and user settings; -B writes no compiled files beside the
        // scripts.
        command.args(["-I", "-B", "-X", "utf8"]).arg(script).args(args).env_clear();
        command.env("PATH", env::var_os("PATH").unwrap_or_default()).envs(env.iter().copied());
        command.stdin(Stdio::null()).stdout(file(&stdout)).stderr(file(&stderr));
        let guard = Guard::new(None);
        let mut process = Process::start(&mut command, &guard);
        let ended = deadline::poll_within(TIMEOUT, || process.exit_status());
        let status = process.kill(&guard);
        let read = |of: NamedTempFile| {
            String::from_utf8_lossy(&fs::read(of.path()).unwrap_or_default()).into_owned()
        };
        let ran = ScriptOutput { status, stdout: read(stdout), stderr: read(stderr) };
        let name = script.file_name().unwrap_or(OsStr::new("the script")).display();
        assert!(ended.is_some(), "{name} ran for more than {TIMEOUT:?}:\n{}", ran.output());
        ran
    }
}

impl ScriptOutput {
    /// Returns the only line of the standard output.
    ///
    /// # Panics
    /// If the script failed, or did not print exactly one line; the message has its output.
    #[must_use]
    pub fn line(&self) -> &str {
        assert!(self.status.success(), "the script failed ({}):\n{}", self.status, self.output());
        let mut lines = self.stdout.lines();
        match (lines.next(), lines.next()) {
            (Some(line), None) => line,
            _ => panic!("the script did not print exactly one line:\n{}", self.output()),
        }
    }

    fn output(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}
