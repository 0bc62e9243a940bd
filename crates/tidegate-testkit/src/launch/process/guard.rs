//! Ensures that no process started by a test outlives it, however the test ends.
//!
//! `Drop` does not run when a test is killed, nor for a server in a static. So each started process
//! is accompanied by a shell that reads from a pipe. Only the test holds the other end. When the
//! test has ended, the shell reads the end of the pipe, kills the watched process and removes the
//! folder.
//!
//! The signal that Linux sends at the death of the parent does not work here: the parent is the
//! thread that started the child, and each test has its own thread.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Script of the shell. The last line it reads is the process id to kill, or empty.
const WATCH: &str = r#"
last=
while read -r line; do last=$line; done
if [ -n "$last" ]; then kill -9 "$last"; fi
if [ -n "$1" ]; then rm -rf "$1"; fi
"#;

/// A shell that cleans up after this process.
#[derive(Debug)]
pub(in crate::launch) struct Guard {
    shell: Child,
    pipe: Mutex<Option<ChildStdin>>,
}

impl Guard {
    /// Starts a guard that finally removes `folder`, if given.
    pub(in crate::launch) fn new(folder: Option<&Path>) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", WATCH, "guard"]).arg(folder.unwrap_or(Path::new("")));
        // In its own process group, so that Ctrl-C at the terminal does not end the guard first.
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let mut shell = shell.spawn().expect("cannot start a shell");
        let pipe = Mutex::new(shell.stdin.take());
        Self { shell, pipe }
    }

    /// Watches this process instead of the previous one.
    pub(in crate::launch) fn watch(&self, child: &Child) {
        self.send(&child.id().to_string());
    }

    /// Stops watching. Call it before waiting for a killed process: afterwards the system may reuse
    /// the process id.
    pub(in crate::launch) fn forget(&self) {
        self.send("");
    }

    fn send(&self, line: &str) {
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipe) = pipe.as_mut() {
            // Fails if the guard was killed, and then nothing can be done.
            let _ = writeln!(pipe, "{line}");
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.pipe.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        let _ = self.shell.wait();
    }
}
