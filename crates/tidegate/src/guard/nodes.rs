//! The number of nodes that limits are divided by.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long a store must have answered before it is assumed to know all nodes.
const SETTLING_TIME: Duration = Duration::from_secs(10);

/// The number of nodes: as the store reports it, and at first at least the expected number. A store
/// that has just started knows only the nodes that have reached it so far.
#[derive(Debug)]
pub(super) struct Nodes {
    expected: NonZeroU32,
    /// Set once the store has answered for long enough. From then on only its report counts.
    is_settled: AtomicBool,
    /// Since when the store has answered, until `is_settled` is set.
    answering_since: Mutex<Option<Instant>>,
}

impl Nodes {
    pub(super) const fn new(expected: NonZeroU32) -> Self {
        Self { expected, is_settled: AtomicBool::new(false), answering_since: Mutex::new(None) }
    }

    /// Records an answer of the store.
    #[inline]
    pub(super) fn store_answered(&self) {
        if !self.is_settled.load(Ordering::Relaxed) {
            self.store_answered_at(Instant::now());
        }
    }

    fn store_answered_at(&self, now: Instant) {
        let mut since = self.answering_since.lock().unwrap_or_else(PoisonError::into_inner);
        let since = *since.get_or_insert(now);
        if now.saturating_duration_since(since) >= SETTLING_TIME {
            self.is_settled.store(true, Ordering::Relaxed);
        }
    }

    /// Records that the store is down.
    pub(super) fn store_went_down(&self) {
        *self.answering_since.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Number of nodes, given what the store reports.
    pub(super) fn count(&self, reported: Option<NonZeroU32>) -> NonZeroU32 {
        let reported = reported.unwrap_or(self.expected);
        if self.is_settled.load(Ordering::Relaxed) { reported } else { reported.max(self.expected) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(number: u32) -> NonZeroU32 {
        NonZeroU32::new(number).unwrap()
    }

    #[test]
    fn the_expected_count_is_a_minimum_until_the_store_has_answered_for_a_while() {
        let (counted, start) = (Nodes::new(nodes(3)), Instant::now());
        let reported = [None, Some(nodes(1)), Some(nodes(7))];
        let numbers = || reported.map(|reported| counted.count(reported).get());
        assert_eq!(numbers(), [3, 3, 7]);
        counted.store_answered_at(start);
        counted.store_answered_at(start + SETTLING_TIME - Duration::from_nanos(1));
        assert_eq!(numbers(), [3, 3, 7], "not long enough");
        counted.store_went_down();
        counted.store_answered_at(start + SETTLING_TIME);
        assert_eq!(numbers(), [3, 3, 7], "the store was down in between");
        counted.store_answered_at(start + SETTLING_TIME * 2);
        assert_eq!(numbers(), [3, 1, 7]);
        counted.store_went_down();
        assert_eq!(numbers(), [3, 1, 7], "settled for good");
    }
}
