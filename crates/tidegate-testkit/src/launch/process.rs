//! A child process that can be frozen and never outlives the test.

pub(super) mod guard;
pub(super) mod privileges;

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use self::guard::Guard;
use super::deadline;

/// A running process that a guard watches.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    frozen: bool,
}

impl Process {
    /// Starts a process in its own process group, so that signals of the terminal do not reach it.
    pub(super) fn start(command: &mut Command, guard: &Guard) -> Self {
        let child = match command.process_group(0).spawn() {
            Ok(child) => child,
            Err(error) => panic!("cannot start {}: {error}", command.get_program().display()),
        };
        guard.watch(&child);
        Self { child, frozen: false }
    }

    /// Returns the child, for access to its pipes.
    pub(super) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The process id.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The exit status, if the process has ended.
    pub(super) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("cannot query a child process")
    }

    /// Stops the process with SIGSTOP and waits until it has stopped.
    pub(super) fn freeze(&mut self) {
        // The system does not report a second stop, so waiting for it would block.
        if !self.frozen {
            self.change(Signal::STOP, WaitOptions::UNTRACED);
            self.frozen = true;
        }
    }

    /// Resumes the process.
    pub(super) fn thaw(&mut self) {
        if self.frozen {
            self.change(Signal::CONT, WaitOptions::CONTINUED);
            self.frozen = false;
        }
    }

    /// Kills the process, frozen or not, and waits until it has ended.
    pub(super) fn kill(&mut self, guard: &Guard) -> ExitStatus {
        // Fails if the process has already ended, which is fine.
        let _ = self.child.kill();
        guard.forget();
        self.child.wait().expect("cannot wait for a child process")
    }

    /// Stops the process with SIGQUIT, so that it stops its own children, and waits until it has
    /// ended.
    pub(super) fn quit(&mut self, guard: &Guard) {
        self.end(Signal::QUIT, guard);
    }

    /// Stops the process with SIGTERM and waits until it has ended.
    pub(super) fn terminate(&mut self, guard: &Guard) {
        self.end(Signal::TERM, guard);
    }

    fn end(&mut self, signal: Signal, guard: &Guard) {
        // Fails if the process has already ended, which is fine.
        let _ = kill_process(Pid::from_child(&self.child), signal);
        guard.forget();
        if deadline::poll_within(deadline::TIMEOUT, || self.exit_status()).is_none() {
            self.kill(guard);
        }
    }

    /// Sends a signal and waits until it has taken effect.
    fn change(&self, signal: Signal, done: WaitOptions) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("cannot signal a child process");
        let (_, status) =
            waitpid(Some(pid), done).expect("cannot wait for a child process").expect("no status");
        assert!(
            status.stopped() || status.continued(),
            "the process has already ended: {status:?}"
        );
    }
}
