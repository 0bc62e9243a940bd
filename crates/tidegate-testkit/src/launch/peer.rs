//! The same test in a process of its own, for what several processes do to one server.
//!
//! ```text
//! #[test]
//! fn processes_share_a_bucket() {
//!     if let Some(url) = Peer::told("TIDEGATE_TEST_URL") {
//!         return client(&url); // talks by Peer::report and Peer::heard
//!     }
//!     let server = RedisServer::start(Flavor::Redis);
//!     let here = "sharing::processes_share_a_bucket";
//!     let mut peers: Vec<Peer> =
//!         (0..8).map(|_| Peer::spawn(here, &[("TIDEGATE_TEST_URL", &server.url())])).collect();
//!     for peer in &mut peers {
//!         assert_eq!(peer.line(), "ready");
//!     }
//!     // peer.say("go"), peer.line(), peer.finish()
//! }
//! ```

use std::env;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::process::Process;
use super::process::guard::Guard;

/// What a report begins with, so that it is told from what the test harness prints.
const REPORT_PREFIX: &str = "peer reports: ";

/// How long a peer may be silent when a line of it is waited for.
const REPORT_TIMEOUT: Duration = Duration::from_secs(60);

/// Another process of this test's program. It is killed when dropped.
#[derive(Debug)]
pub struct Peer {
    process: Process,
    guard: Guard,
    reports: Receiver<String>,
    printed: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

impl Peer {
    /// Runs one test of this program in a new process, told what stands in `env`.
    ///
    /// `test` is the name as the harness prints it, such as `sharing::processes_share_a_bucket`.
    ///
    /// # Panics
    /// When the program cannot be started.
    #[must_use]
    pub fn spawn(test: &str, env: &[(&str, &str)]) -> Self {
        let program = env::current_exe().expect("a program knows itself");
        let mut command = Command::new(program);
        command.args(["--exact", test, "--nocapture"]).envs(env.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let guard = Guard::new(None);
        let mut process = Process::start(&mut command, &guard);
        let (sender, reports) = mpsc::channel();
        let printed = Arc::default();
        let (stdout, stderr) = (process.child().stdout.take(), process.child().stderr.take());
        let readers = [
            stdout.map(|stdout| forward_output(stdout, Arc::clone(&printed), Some(sender))),
            stderr.map(|stderr| forward_output(stderr, Arc::clone(&printed), None)),
        ];
        let readers = readers.into_iter().flatten().collect();
        Self { process, guard, reports, printed, readers }
    }

    /// In the peer: what it was told under this name; `None` in the test that starts it.
    #[must_use]
    pub fn told(name: &str) -> Option<String> {
        env::var_os(name).and_then(|value| value.into_string().ok())
    }

    /// In the peer: sends a line to the test that started it.
    ///
    /// # Panics
    /// When that test is gone.
    pub fn report(line: &str) {
        let mut stdout = io::stdout().lock();
        // The harness may have begun a line of its own.
        let written = write!(stdout, "\n{REPORT_PREFIX}{line}\n").and_then(|()| stdout.flush());
        written.expect("somebody listens");
    }

    /// In the peer: waits for a line of [`Peer::say`]; `None` when there will be none.
    #[must_use]
    pub fn heard() -> Option<String> {
        io::stdin().lines().next().and_then(Result::ok)
    }

    /// The next line that the peer reports.
    ///
    /// # Panics
    /// When the peer ends without, or is silent for a minute; the text has what it printed.
    #[must_use]
    pub fn line(&mut self) -> String {
        match self.reports.recv_timeout(REPORT_TIMEOUT) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                panic!("no report for {REPORT_TIMEOUT:?}:\n{}", self.output())
            }
            Err(RecvTimeoutError::Disconnected) => {
                panic!("the peer ended without a report:\n{}", self.output())
            }
        }
    }

    /// Sends a line to the peer.
    ///
    /// # Panics
    /// When the peer is gone.
    pub fn say(&mut self, line: &str) {
        let stdin = self.process.child().stdin.as_mut().expect("a peer that is not finished");
        let written = writeln!(stdin, "{line}");
        written.unwrap_or_else(|error| panic!("the peer is gone ({error}):\n{}", self.output()));
    }

    /// Waits for the end of the peer and returns the reports that were not read yet.
    ///
    /// # Panics
    /// When its test did not pass, or there is none of that name.
    #[must_use]
    pub fn finish(mut self) -> Vec<String> {
        drop(self.process.child().stdin.take());
        let reports = self.reports.iter().collect();
        let status = self.process.child().wait().expect("a child can be waited for");
        self.join_readers();
        assert!(status.success(), "the peer failed ({status}):\n{}", self.output());
        assert!(self.output().contains("1 passed"), "no test of that name:\n{}", self.output());
        reports
    }

    /// Kills the peer with SIGKILL. When this returns it is gone.
    pub fn kill(&mut self) {
        self.process.kill(&self.guard);
    }

    /// Freezes the peer with SIGSTOP.
    ///
    /// # Panics
    /// When it has ended.
    pub fn stop(&mut self) {
        self.process.freeze();
    }

    /// Lets a frozen peer go on, with SIGCONT.
    ///
    /// # Panics
    /// When it has ended.
    pub fn cont(&mut self) {
        self.process.thaw();
    }

    /// The number of its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Whatever it has printed.
    fn output(&self) -> String {
        self.printed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn join_readers(&mut self) {
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
        self.join_readers();
    }
}

/// Keeps what is printed, and passes reports on, until the pipe is closed.
fn forward_output(
    pipe: impl Read + Send + 'static,
    printed: Arc<Mutex<String>>,
    reports: Option<Sender<String>>,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if let (Some(reports), Some(report)) = (&reports, line.strip_prefix(REPORT_PREFIX)) {
                // Reports that nobody waits for any more are in `printed` all the same.
                let _ = reports.send(report.to_owned());
            }
            let mut printed = printed.lock().unwrap_or_else(PoisonError::into_inner);
            printed.push_str(&line);
            printed.push('\n');
        }
    })
}
