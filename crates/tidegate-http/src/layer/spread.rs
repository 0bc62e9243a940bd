//! Hints that differ, so that those who were refused together do not come back together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::field::RetryAfter;

/// Hints made longer, each by another part.
#[derive(Clone)]
pub(super) struct Spread {
    percent: u8,
    turn: Arc<AtomicU64>,
}

impl Spread {
    pub(super) fn new(percent: u8) -> Self {
        Self { percent: percent.min(100), turn: Arc::default() }
    }

    pub(super) fn apply(&self, hint: RetryAfter) -> RetryAfter {
        // Multiples of the golden ratio, modulo one, fill an interval evenly from the start: no
        // chance is needed.
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let part = self.turn.fetch_add(GOLDEN, Ordering::Relaxed) >> 48;
        let parts = part * u64::from(self.percent) / 100;
        hint.lengthened(u16::try_from(parts).unwrap_or(u16::MAX))
    }
}
