//! Waiting for what another process does, and giving up in the end.

use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long other processes may take for anything that a test waits for.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

/// How long to rest between two looks.
const REST: Duration = Duration::from_millis(2);

/// Looks again and again until there is something to see, and returns it.
///
/// # Panics
/// When there is still nothing after ten seconds; the text names `what` was waited for.
pub fn wait_until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    seen_within(LIMIT, &mut look).unwrap_or_else(|| panic!("waited {LIMIT:?} in vain for {what}"))
}

/// Looks again and again, for at most so long.
pub(super) fn seen_within<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let started = now();
    // Nobody sends: receiving is a rest with an end.
    let (_silent, rest) = mpsc::channel::<()>();
    loop {
        if let Some(seen) = look() {
            return Some(seen);
        }
        if started.elapsed() > limit {
            return None;
        }
        let _ = rest.recv_timeout(REST);
    }
}

#[expect(clippy::disallowed_methods, reason = "bounds the wait for other processes")]
fn now() -> Instant {
    Instant::now()
}
