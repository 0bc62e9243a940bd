//! The number of nodes that limits are divided by.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long a store must have answered before it is assumed to know all nodes.
const MEETING: Duration = Duration::from_secs(10);

/// The number of nodes: as the store reports it, and at first at least the expected number. A store
/// that has just started knows only the nodes that have reached it so far.
#[derive(Debug)]
pub(super) struct Nodes {
    expected: NonZeroU32,
    /// Set once the store has answered for long enough. From then on only its report counts.
    met: AtomicBool,
    /// Since when the store has answered, until `is_settled` is set.
    since: Mutex<Option<Instant>>,
}

impl Nodes {
    pub(super) const fn new(expected: NonZeroU32) -> Self {
        Self { expected, met: AtomicBool::new(false), since: Mutex::new(None) }
    }

    /// Records an answer of the store.
    #[inline]
    pub(super) fn answered(&self) {
        if !self.met.load(Ordering::Relaxed) {
            self.answered_at(Instant::now());
        }
    }

    fn answered_at(&self, now: Instant) {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let since = *since.get_or_insert(now);
        if now.saturating_duration_since(since) >= MEETING {
            self.met.store(true, Ordering::Relaxed);
        }
    }

    /// Records that the store is down.
    pub(super) fn lost(&self) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Number of nodes, given what the store reports.
    pub(super) fn number(&self, told: Option<NonZeroU32>) -> NonZeroU32 {
        let told = told.unwrap_or(self.expected);
        if self.met.load(Ordering::Relaxed) { told } else { told.max(self.expected) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(number: u32) -> NonZeroU32 {
        NonZeroU32::new(number).unwrap()
    }

    #[test]
    fn those_expected_are_a_floor_until_the_store_has_answered_for_a_while() {
        let (counted, start) = (Nodes::new(nodes(3)), Instant::now());
        let told = [None, Some(nodes(1)), Some(nodes(7))];
        let numbers = || told.map(|told| counted.number(told).get());
        assert_eq!(numbers(), [3, 3, 7]);
        counted.answered_at(start);
        counted.answered_at(start + MEETING - Duration::from_nanos(1));
        assert_eq!(numbers(), [3, 3, 7], "not long enough");
        counted.lost();
        counted.answered_at(start + MEETING);
        assert_eq!(numbers(), [3, 3, 7], "it was down in between");
        counted.answered_at(start + MEETING * 2);
        assert_eq!(numbers(), [3, 1, 7]);
        counted.lost();
        assert_eq!(numbers(), [3, 1, 7], "once is enough");
    }
}
