//! Programs in Python, for what only the official clients of others can show.
//!
//! They run in an environment that `cargo xtask tools` has made, and see nothing of the one that
//! the test runs in: no proxies, no keys, no settings of a user.

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

/// How long a script may run.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The interpreter of the environment that has the clients.
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

/// What a script printed, and how it ended.
#[derive(Clone, Debug)]
#[must_use]
pub struct Ran {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed to its standard output.
    pub stdout: String,
    /// What it printed to its standard error.
    pub stderr: String,
}

impl Python {
    /// The interpreter that `TIDEGATE_PYTHON` names, else the one of `cargo xtask tools`.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn installed() -> Self {
        Self { interpreter: programs::python() }
    }

    /// Runs a script to its end. It sees `PATH` and what stands in `env`, and nothing else.
    ///
    /// # Panics
    /// When it cannot be started, and when it runs for more than two minutes; it is killed then.
    pub fn run(&self, script: impl AsRef<Path>, args: &[&str], env: &[(&str, &str)]) -> Ran {
        let script = script.as_ref();
        // Files rather than pipes: nobody has to read them for the script to go on.
        let [stdout, stderr] = [(); 2].map(|()| NamedTempFile::new().expect("a temporary file"));
        let file = |of: &NamedTempFile| of.reopen().expect("a file can be opened once more");
        let mut command = Command::new(&self.interpreter);
        // Isolated from the folder and the settings of whoever runs it; and without compiled
        // copies of scripts beside the scripts.
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
        let ran = Ran { status, stdout: read(stdout), stderr: read(stderr) };
        let name = script.file_name().unwrap_or(OsStr::new("the script")).display();
        assert!(ended.is_some(), "{name} ran for more than {TIMEOUT:?}:\n{}", ran.output());
        ran
    }
}

impl Ran {
    /// The one line that it printed.
    ///
    /// # Panics
    /// When it failed, or printed more or less than a line; the text has what it printed.
    #[must_use]
    pub fn line(&self) -> &str {
        assert!(self.status.success(), "the script failed ({}):\n{}", self.status, self.output());
        let mut lines = self.stdout.lines();
        match (lines.next(), lines.next()) {
            (Some(line), None) => line,
            _ => panic!("the script did not print one line:\n{}", self.output()),
        }
    }

    fn output(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}
