//! Dropping root privileges: root can write read-only files, and PostgreSQL refuses to run as root.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::panic;
use std::path::Path;
use std::process::Command;

use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_gid, set_thread_uid};

/// The user and group id of `nobody`.
const NOBODY: u32 = 65_534;

/// Runs `work` on a thread without root privileges, so that file permissions apply even if root
/// runs the tests. Threads that `work` starts inherit this.
///
/// # Panics
/// If `work` panics, or the privileges cannot be dropped.
pub fn unprivileged<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let thread = || {
        if geteuid().is_root() {
            // This affects the current thread only.
            set_thread_gid(Gid::from_raw(NOBODY)).expect("cannot change the group id");
            set_thread_uid(Uid::from_raw(NOBODY)).expect("cannot change the user id");
        }
        work()
    };
    let done = std::thread::scope(|scope| scope.spawn(thread).join());
    done.unwrap_or_else(|cause| panic::resume_unwind(cause))
}

/// A command that runs as `nobody` if the tests run as root.
pub(in crate::launch) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    if geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// Changes the owner of a folder and its files to the user of [`command`].
pub(in crate::launch) fn hand_over(folder: &Path) {
    if !geteuid().is_root() {
        return;
    }
    let entries = fs::read_dir(folder).expect("cannot read the folder");
    let files = entries.map(|entry| entry.expect("cannot read the folder").path());
    for path in files.chain([folder.to_owned()]) {
        chown(&path, Some(NOBODY), Some(NOBODY)).expect("cannot change the owner");
    }
}
