//! Runs a test in further processes, to check what several processes do to one server.
//!
//! ```text
//! #[test]
//! fn processes_share_a_bucket() {
//!     if let Some(url) = Peer::env_var("TIDEGATE_TEST_URL") {
//!         return client(&url); // communicates by Peer::report and Peer::read_line
//!     }
//!     let server = RedisServer::start(Flavor::Redis);
//!     let here = "sharing::processes_share_a_bucket";
//!     let mut peers: Vec<Peer> =
//!         (0..8).map(|_| Peer::spawn(here, &[("TIDEGATE_TEST_URL", &server.url())])).collect();
//!     for peer in &mut peers {
//!         assert_eq!(peer.line(), "ready");
//!     }
//!     // peer.send_line("go"), peer.line(), peer.finish()
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

/// Prefix of a report, to tell it from the output of the test harness.
const REPORT_PREFIX: &str = "peer reports: ";

/// How long to wait for a report.
const REPORT_TIMEOUT: Duration = Duration::from_secs(60);

/// Another process that runs this test program. It is killed when dropped.
#[derive(Debug)]
pub struct Peer {
    process: Process,
    guard: Guard,
    reports: Receiver<String>,
    printed: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

impl Peer {
    /// Runs one test of this program in a new process, with the additional environment `env`.
    ///
    /// `test` is the name as printed by the harness, such as `sharing::processes_share_a_bucket`.
    ///
    /// # Panics
    /// If the program cannot be started.
    #[must_use]
    pub fn spawn(test: &str, env: &[(&str, &str)]) -> Self {
        let program = env::current_exe().expect("cannot find the test program");
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

    /// In the peer: returns this environment variable. Returns `None` in the test that starts it.
    #[must_use]
    pub fn env_var(name: &str) -> Option<String> {
        env::var_os(name).and_then(|value| value.into_string().ok())
    }

    /// In the peer: sends a line to the test that started it.
    ///
    /// # Panics
    /// If that test has ended.
    pub fn report(line: &str) {
        let mut stdout = io::stdout().lock();
        // The harness may have started a line of its own.
        let written = write!(stdout, "\n{REPORT_PREFIX}{line}\n").and_then(|()| stdout.flush());
        written.expect("the test that started this peer has ended");
    }

    /// In the peer: waits for a line sent with [`Peer::send_line`]. Returns `None` at the end of
    /// input.
    #[must_use]
    pub fn read_line() -> Option<String> {
        io::stdin().lines().next().and_then(Result::ok)
    }

    /// Waits for the next line that the peer reports.
    ///
    /// # Panics
    /// If the peer ends without a report, or sends none for a minute; the message has its output.
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
    /// If the peer has ended.
    pub fn send_line(&mut self, line: &str) {
        let stdin = self.process.child().stdin.as_mut().expect("the peer has been finished");
        let written = writeln!(stdin, "{line}");
        written.unwrap_or_else(|error| panic!("the peer has ended ({error}):\n{}", self.output()));
    }

    /// Waits until the peer ends and returns the unread reports.
    ///
    /// # Panics
    /// If its test failed, or there is no test of that name.
    #[must_use]
    pub fn finish(mut self) -> Vec<String> {
        drop(self.process.child().stdin.take());
        let reports = self.reports.iter().collect();
        let status = self.process.child().wait().expect("cannot wait for a child process");
        self.join_readers();
        assert!(status.success(), "the peer failed ({status}):\n{}", self.output());
        assert!(self.output().contains("1 passed"), "no test of that name:\n{}", self.output());
        reports
    }

    /// Kills the peer with SIGKILL and waits until it has ended.
    pub fn kill(&mut self) {
        self.process.kill(&self.guard);
    }

    /// Freezes the peer with SIGSTOP.
    ///
    /// # Panics
    /// If it has ended.
    pub fn stop(&mut self) {
        self.process.freeze();
    }

    /// Resumes a frozen peer with SIGCONT.
    ///
    /// # Panics
    /// If it has ended.
    pub fn cont(&mut self) {
        self.process.thaw();
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Everything the peer has printed.
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

/// Collects the output and forwards reports until the pipe is closed.
fn forward_output(
    pipe: impl Read + Send + 'static,
    printed: Arc<Mutex<String>>,
    reports: Option<Sender<String>>,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if let (Some(reports), Some(report)) = (&reports, line.strip_prefix(REPORT_PREFIX)) {
                // If the receiver is gone, the report is still in `printed`.
                let _ = reports.send(report.to_owned());
            }
            let mut printed = printed.lock().unwrap_or_else(PoisonError::into_inner);
            printed.push_str(&line);
            printed.push('\n');
        }
    })
}
