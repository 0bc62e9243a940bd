//! The launchers: processes they start can be controlled, and end with the test.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod databases;
mod metrics;
mod orphans;
mod peers;
mod proxies;
mod scripts;
mod servers;

use std::io;
use std::path::{Path, PathBuf};

/// Whether a process is running; a zombie is not.
fn is_alive(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

/// The state letter of a process; `T` means stopped.
fn state(pid: u32) -> Option<char> {
    let stat: io::Result<String> = std::fs::read_to_string(proc(pid).join("stat"));
    stat.ok()?.rsplit_once(") ")?.1.chars().next()
}

fn proc(pid: u32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}
