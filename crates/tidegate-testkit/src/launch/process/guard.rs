//! Nothing started by a test outlives it, however the test ends.
//!
//! `Drop` does not run when a test is killed, nor for a server that all tests of a program share
//! in a static. So beside each started process sits a shell that reads from a pipe. Only the test
//! holds the other end; when the test is gone, the shell sees the end of the pipe, kills what it
//! was told to watch and removes the folder.
//!
//! The kernel's own way, a signal at the death of the parent, comes too early: it counts the
//! thread that started the child as the parent, and each test has a thread of its own.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// The last line is the process to kill; an empty one stands for none.
const WATCH: &str = r#"
last=
while read -r line; do last=$line; done
if [ -n "$last" ]; then kill -9 "$last"; fi
if [ -n "$1" ]; then rm -rf "$1"; fi
"#;

/// A process that cleans up after this one.
#[derive(Debug)]
pub(in crate::launch) struct Guard {
    shell: Child,
    pipe: Mutex<Option<ChildStdin>>,
}

impl Guard {
    /// A guard that removes `folder` in the end, if there is one.
    pub(in crate::launch) fn new(folder: Option<&Path>) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", WATCH, "guard"]).arg(folder.unwrap_or(Path::new("")));
        // A group of its own: an interrupt at the terminal must not take the guard first.
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let mut shell = shell.spawn().expect("a shell starts");
        let pipe = Mutex::new(shell.stdin.take());
        Self { shell, pipe }
    }

    /// Kills this process in the end, instead of the one before.
    pub(in crate::launch) fn watch(&self, child: &Child) {
        self.send(&child.id().to_string());
    }

    /// Kills nobody in the end. To be called while the number of the killed process is still
    /// taken, that is before it is waited for.
    pub(in crate::launch) fn forget(&self) {
        self.send("");
    }

    fn send(&self, line: &str) {
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipe) = pipe.as_mut() {
            // A guard that somebody killed cannot be told, and there is nothing to be done.
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
