//! What a layer logs of its own troubles: seldom, and without keys.
//!
//! A store that is away fails every request, and a line for each would be a flood on top.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::{StoreError, WallTime};

/// The shortest time between two lines about the store.
const PAUSE: Duration = Duration::from_secs(5);

/// What has been told already.
#[derive(Debug)]
pub(super) struct Troubles {
    /// When the store was last told of, in nanoseconds and one.
    last: AtomicU64,
    /// How often it failed since.
    unsaid: AtomicU64,
    no_peer: Once,
    no_runtime: Once,
    panicked: Once,
}

impl Default for Troubles {
    fn default() -> Self {
        Self {
            last: AtomicU64::new(0),
            unsaid: AtomicU64::new(0),
            no_peer: Once::new(),
            no_runtime: Once::new(),
            panicked: Once::new(),
        }
    }
}

impl Troubles {
    /// A request could not be decided.
    pub(super) fn not_decided(&self, wall: WallTime, error: &StoreError) {
        if let Some(unsaid) = self.turn(wall) {
            tracing::error!(error = error as &dyn std::error::Error, unsaid, "limits not checked");
        }
    }

    /// A cost could not be corrected, or a slot not be given back.
    pub(super) fn not_settled(&self, wall: WallTime, error: &StoreError) {
        if let Some(unsaid) = self.turn(wall) {
            tracing::error!(error = error as &dyn std::error::Error, unsaid, "cost not settled");
        }
    }

    /// Nobody wrote down the address of a peer.
    pub(super) fn no_peer(&self) {
        self.no_peer.call_once(|| {
            tracing::error!(
                "a request has neither a key nor a known peer: put PeerAddr into its extensions, \
                 or choose what becomes of requests without a key"
            );
        });
    }

    /// There is a store to wait for and no runtime to wait in.
    pub(super) fn no_runtime(&self) {
        self.no_runtime.call_once(|| {
            tracing::error!("a request ended outside of any tokio runtime: not settled");
        });
    }

    /// Calls a function of the application, of which a panic must not keep others from what they
    /// are owed; `None` if it panics. What it says is not logged: it may name people.
    pub(super) fn contained<T>(&self, call: impl FnOnce() -> T) -> Option<T> {
        let called = catch_unwind(AssertUnwindSafe(call)).ok();
        if called.is_none() {
            self.panicked.call_once(|| {
                tracing::error!("a function that was given to the layer panics: it is left out");
            });
        }
        called
    }

    /// Whether to say something now, and how much was left unsaid before.
    fn turn(&self, wall: WallTime) -> Option<u64> {
        let now = wall.as_nanos().saturating_add(1);
        let last = self.last.load(Ordering::Relaxed);
        let pause = u64::try_from(PAUSE.as_nanos()).unwrap_or(u64::MAX);
        // A clock that was set back must not silence us until it has caught up.
        let quiet = last != 0 && now >= last && now - last < pause;
        let ours = !quiet
            && self.last.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if ours {
            return Some(self.unsaid.swap(0, Ordering::Relaxed));
        }
        self.unsaid.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_fails_all_the_time_is_told_of_every_five_seconds() {
        let troubles = Troubles::default();
        let at = |seconds| troubles.turn(WallTime::from_secs(seconds));
        assert_eq!(at(100), Some(0));
        assert_eq!((at(100), at(104)), (None, None));
        assert_eq!(at(105), Some(2));
        // The clock was set back.
        assert_eq!(at(50), Some(0));
        assert_eq!(at(51), None);
    }
}
