//! The line in force and the one before it, in one cache line, read without a lock.
//!
//! A reader writes nothing. It notes the sequence, reads, and looks whether the sequence is still the
//! same. A writer (one at a time; its caller sees to that) writes the older of the two lines, so
//! those who go by the newer one are not held up, and then starts a new sequence.

use std::sync::atomic::Ordering;

use super::calibration::{Conversion, Validity};
use crate::sync::{AtomicU64, fence};

/// Two lines: that of this sequence, and that of the sequence before.
#[derive(Debug)]
#[cfg_attr(not(any(loom, shuttle)), repr(align(64)))]
pub(super) struct SeqLock {
    /// Odd while the line of the sequence before is being written over; the rest counts turns.
    sequence: AtomicU64,
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
pub(super) enum Reading {
    /// The time.
    Valid(u64),
    /// The time, and that the next line is due.
    Due(u64),
    /// Nothing: they lie after all lines, or between two of them, or are older than both.
    Unknown,
}

impl SeqLock {
    pub(super) fn new(conversion: Conversion, validity: Validity) -> Self {
        let slot = || Slot {
            ticks: AtomicU64::new(conversion.ticks),
            ns: AtomicU64::new(conversion.ns),
            slope: AtomicU64::new(conversion.slope),
        };
        Self {
            sequence: AtomicU64::new(0),
            due: AtomicU64::new(validity.due),
            slots: [slot(), slot()],
        }
    }

    /// The time by the line in force, unless there is anything else to think of.
    #[inline]
    pub(super) fn at(&self, ticks: u64) -> Option<u64> {
        let sequence = self.sequence.load(Ordering::Acquire);
        let conversion = self.newest(sequence).load();
        // Before the start of the line this is a large number.
        let elapsed = ticks.wrapping_sub(conversion.ticks);
        let is_common_case = elapsed < self.due.load(Ordering::Relaxed);
        (is_common_case && self.is_current(sequence)).then(|| conversion.after(elapsed))
    }

    /// The time by either line.
    pub(super) fn find(&self, ticks: u64, validity: Validity) -> Reading {
        let sequence = self.sequence.load(Ordering::Acquire);
        let (newest, older) = (self.newest(sequence).load(), self.older(sequence).load());
        if !self.is_current(sequence) {
            return Reading::Unknown;
        }
        let elapsed = ticks.wrapping_sub(newest.ticks);
        if elapsed < validity.end {
            let time = newest.after(elapsed);
            return if elapsed < validity.due { Reading::Valid(time) } else { Reading::Due(time) };
        }
        let elapsed = ticks.wrapping_sub(older.ticks);
        if sequence % 2 == 0 && elapsed < validity.end {
            return Reading::Valid(older.after(elapsed));
        }
        Reading::Unknown
    }

    /// Puts a line into force. One caller at a time.
    pub(super) fn publish(&self, conversion: Conversion) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        // Whoever reads this number goes by the line of before, and must see all of it.
        self.sequence.store(sequence + 1, Ordering::Release);
        // Whoever sees any of what follows sees the odd sequence too.
        fence(Ordering::Release);
        self.older(sequence).store(conversion);
        self.sequence.store(sequence + 2, Ordering::Release);
    }

    /// Sends every reader the long way, for good.
    pub(super) fn close(&self) {
        self.due.store(0, Ordering::Relaxed);
    }

    #[inline]
    fn newest(&self, sequence: u64) -> &Slot {
        &self.slots[usize::from(sequence & 2 != 0)]
    }

    #[inline]
    fn older(&self, sequence: u64) -> &Slot {
        &self.slots[usize::from(sequence & 2 == 0)]
    }

    /// Whether all that was read so far belongs to this sequence.
    #[inline]
    fn is_current(&self, sequence: u64) -> bool {
        fence(Ordering::Acquire);
        self.sequence.load(Ordering::Relaxed) == sequence
    }
}

impl Slot {
    #[inline]
    fn load(&self) -> Conversion {
        Conversion {
            ticks: self.ticks.load(Ordering::Relaxed),
            ns: self.ns.load(Ordering::Relaxed),
            slope: self.slope.load(Ordering::Relaxed),
        }
    }

    fn store(&self, conversion: Conversion) {
        self.ticks.store(conversion.ticks, Ordering::Relaxed);
        self.ns.store(conversion.ns, Ordering::Relaxed);
        self.slope.store(conversion.slope, Ordering::Relaxed);
    }
}
