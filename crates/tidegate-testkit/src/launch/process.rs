//! A child process that can be frozen and is always ended.

pub(super) mod guard;
pub(super) mod privileges;

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use self::guard::Guard;
use super::deadline;

/// A started process under a guard.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    frozen: bool,
}

impl Process {
    /// Starts it, apart from the terminal's signals: whoever holds it ends it, or the guard does.
    pub(super) fn start(command: &mut Command, guard: &Guard) -> Self {
        let child = match command.process_group(0).spawn() {
            Ok(child) => child,
            Err(error) => panic!("cannot start {}: {error}", command.get_program().display()),
        };
        guard.watch(&child);
        Self { child, frozen: false }
    }

    /// The child, for its pipes.
    pub(super) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The number of the process.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub(super) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be asked for")
    }

    /// Stops it where it stands. When this returns it does nothing more.
    pub(super) fn freeze(&mut self) {
        // Of a process that is frozen already, the system would not tell it again.
        if !self.frozen {
            self.change(Signal::STOP, WaitOptions::UNTRACED);
            self.frozen = true;
        }
    }

    /// Lets it go on.
    pub(super) fn thaw(&mut self) {
        if self.frozen {
            self.change(Signal::CONT, WaitOptions::CONTINUED);
            self.frozen = false;
        }
    }

    /// Kills it, frozen or not. When this returns it is gone.
    pub(super) fn kill(&mut self, guard: &Guard) -> ExitStatus {
        // Of one that has ended by itself this is an error, and no matter.
        let _ = self.child.kill();
        guard.forget();
        self.child.wait().expect("a child can be waited for")
    }

    /// Asks it to end at once, with SIGQUIT, so that it takes its own children along. When this
    /// returns it is gone.
    pub(super) fn quit(&mut self, guard: &Guard) {
        // Of one that has ended by itself this is an error, and no matter.
        let _ = kill_process(Pid::from_child(&self.child), Signal::QUIT);
        guard.forget();
        if deadline::poll_within(deadline::TIMEOUT, || self.exit_status()).is_none() {
            self.kill(guard);
        }
    }

    /// Sends a signal and waits until it has done what it does.
    fn change(&self, signal: Signal, done: WaitOptions) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("a child can be signalled");
        let (_, status) = waitpid(Some(pid), done).expect("a child").expect("it was waited for");
        assert!(status.stopped() || status.continued(), "the process has ended: {status:?}");
    }
}
