//! Without the rights of root, for whom no file is read-only and PostgreSQL does not start.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::panic;
use std::path::Path;
use std::process::Command;

use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_gid, set_thread_uid};

/// Who has no rights of their own on any Linux.
const NOBODY: u32 = 65_534;

/// Runs work on a thread to which the permissions of files apply, also if root runs the tests.
/// Threads that the work starts are the same.
///
/// # Panics
/// When the work does, or the rights cannot be given up.
pub fn unprivileged<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let thread = || {
        if geteuid().is_root() {
            // The rights of a thread of ours: the others keep theirs.
            set_thread_gid(Gid::from_raw(NOBODY)).expect("root may be in any group");
            set_thread_uid(Uid::from_raw(NOBODY)).expect("root may be anybody");
        }
        work()
    };
    let done = std::thread::scope(|scope| scope.spawn(thread).join());
    done.unwrap_or_else(|cause| panic::resume_unwind(cause))
}

/// A command that does not run as root: if we are, as nobody.
pub(in crate::launch) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    if geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// Gives a folder and what is in it to those who run by [`command`].
pub(in crate::launch) fn hand_over(folder: &Path) {
    if !geteuid().is_root() {
        return;
    }
    let entries = fs::read_dir(folder).expect("a folder of ours can be read");
    let files = entries.map(|entry| entry.expect("a folder of ours can be read").path());
    for path in files.chain([folder.to_owned()]) {
        chown(&path, Some(NOBODY), Some(NOBODY)).expect("root may give files away");
    }
}
