//! Waiting for another process, with a timeout.

use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long a test waits for another process.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// Pause between two checks.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Calls `check` until it returns a value, and returns that value.
///
/// # Panics
/// If there is no value after ten seconds; the message names `what` was waited for.
pub fn wait_until<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    poll_within(TIMEOUT, &mut check)
        .unwrap_or_else(|| panic!("timed out after {TIMEOUT:?} waiting for {what}"))
}

/// Calls `check` until it returns a value or the timeout has passed.
pub(super) fn poll_within<T>(timeout: Duration, mut check: impl FnMut() -> Option<T>) -> Option<T> {
    let started = now();
    // Nothing is ever sent: `recv_timeout` pauses without the banned `thread::sleep`.
    let (_sender, pause) = mpsc::channel::<()>();
    loop {
        if let Some(seen) = check() {
            return Some(seen);
        }
        if started.elapsed() > timeout {
            return None;
        }
        let _ = pause.recv_timeout(POLL_INTERVAL);
    }
}

#[expect(clippy::disallowed_methods, reason = "bounds the wait for other processes")]
fn now() -> Instant {
    Instant::now()
}
