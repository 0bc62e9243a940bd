//! Waiting for what another process does, and giving up in the end.

use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long other processes may take for anything that a test waits for.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// How long to rest between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Looks again and again until there is something to see, and returns it.
///
/// # Panics
/// When there is still nothing after ten seconds; the text names `what` was waited for.
pub fn wait_until<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    poll_within(TIMEOUT, &mut check)
        .unwrap_or_else(|| panic!("waited {TIMEOUT:?} in vain for {what}"))
}

/// Looks again and again, for at most so long.
pub(super) fn poll_within<T>(timeout: Duration, mut check: impl FnMut() -> Option<T>) -> Option<T> {
    let started = now();
    // Nobody sends: receiving is a rest with an end.
    let (_silent, rest) = mpsc::channel::<()>();
    loop {
        if let Some(seen) = check() {
            return Some(seen);
        }
        if started.elapsed() > timeout {
            return None;
        }
        let _ = rest.recv_timeout(POLL_INTERVAL);
    }
}

#[expect(clippy::disallowed_methods, reason = "bounds the wait for other processes")]
fn now() -> Instant {
    Instant::now()
}
