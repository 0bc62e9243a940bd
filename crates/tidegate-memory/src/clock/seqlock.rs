//! The line in force and the one before it, in one cache line, read without a lock.
//!
//! A reader writes nothing. It notes the turn, reads, and looks whether the turn is still the
//! same. A writer (one at a time; its caller sees to that) writes the older of the two lines, so
//! those who go by the newer one are not held up, and then starts a new turn.

use std::sync::atomic::Ordering;

use super::calibration::{Line, Reach};
use crate::sync::{AtomicU64, fence};

/// Two lines: that of this turn, and that of the turn before.
#[derive(Debug)]
#[cfg_attr(not(any(loom, shuttle)), repr(align(64)))]
pub(super) struct SeqLock {
    /// Odd while the line of the turn before is being written over; the rest counts turns.
    turn: AtomicU64,
    /// Ticks after the start of the line in force from which on readers take the long way. Zero
    /// sends all of them there.
    due: AtomicU64,
    slots: [Slot; 2],
}

#[derive(Debug)]
struct Slot {
    ticks: AtomicU64,
    ns: AtomicU64,
    slope: AtomicU64,
}

/// What the lines say of a number of ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The time.
    At(u64),
    /// The time, and that the next line is due.
    Due(u64),
    /// Nothing: they lie after all lines, or between two of them, or are older than both.
    Nowhere,
}

impl SeqLock {
    pub(super) fn new(line: Line, reach: Reach) -> Self {
        let slot = || Slot {
            ticks: AtomicU64::new(line.ticks),
            ns: AtomicU64::new(line.ns),
            slope: AtomicU64::new(line.slope),
        };
        Self { turn: AtomicU64::new(0), due: AtomicU64::new(reach.due), slots: [slot(), slot()] }
    }

    /// The time by the line in force, unless there is anything else to think of.
    #[inline]
    pub(super) fn at(&self, ticks: u64) -> Option<u64> {
        let turn = self.turn.load(Ordering::Acquire);
        let line = self.newest(turn).load();
        // Before the start of the line this is a large number.
        let gone = ticks.wrapping_sub(line.ticks);
        let usual = gone < self.due.load(Ordering::Relaxed);
        (usual && self.is_still(turn)).then(|| line.after(gone))
    }

    /// The time by either line.
    pub(super) fn find(&self, ticks: u64, reach: Reach) -> Found {
        let turn = self.turn.load(Ordering::Acquire);
        let (newest, older) = (self.newest(turn).load(), self.older(turn).load());
        if !self.is_still(turn) {
            return Found::Nowhere;
        }
        let gone = ticks.wrapping_sub(newest.ticks);
        if gone < reach.end {
            let time = newest.after(gone);
            return if gone < reach.due { Found::At(time) } else { Found::Due(time) };
        }
        let gone = ticks.wrapping_sub(older.ticks);
        if turn % 2 == 0 && gone < reach.end {
            return Found::At(older.after(gone));
        }
        Found::Nowhere
    }

    /// Puts a line into force. One caller at a time.
    pub(super) fn publish(&self, line: Line) {
        let turn = self.turn.load(Ordering::Relaxed);
        // Whoever reads this number goes by the line of before, and must see all of it.
        self.turn.store(turn + 1, Ordering::Release);
        // Whoever sees any of what follows sees the odd turn too.
        fence(Ordering::Release);
        self.older(turn).store(line);
        self.turn.store(turn + 2, Ordering::Release);
    }

    /// Sends every reader the long way, for good.
    pub(super) fn close(&self) {
        self.due.store(0, Ordering::Relaxed);
    }

    #[inline]
    fn newest(&self, turn: u64) -> &Slot {
        &self.slots[usize::from(turn & 2 != 0)]
    }

    #[inline]
    fn older(&self, turn: u64) -> &Slot {
        &self.slots[usize::from(turn & 2 == 0)]
    }

    /// Whether all that was read so far belongs to this turn.
    #[inline]
    fn is_still(&self, turn: u64) -> bool {
        fence(Ordering::Acquire);
        self.turn.load(Ordering::Relaxed) == turn
    }
}

impl Slot {
    #[inline]
    fn load(&self) -> Line {
        Line {
            ticks: self.ticks.load(Ordering::Relaxed),
            ns: self.ns.load(Ordering::Relaxed),
            slope: self.slope.load(Ordering::Relaxed),
        }
    }

    fn store(&self, line: Line) {
        self.ticks.store(line.ticks, Ordering::Relaxed);
        self.ns.store(line.ns, Ordering::Relaxed);
        self.slope.store(line.slope, Ordering::Relaxed);
    }
}
