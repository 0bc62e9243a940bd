//! Sequence lock around the current and the previous conversion, in one cache line.
//!
//! Readers write nothing: they load the sequence number, the data, and the sequence number again.
//! The single writer (the caller ensures that there is only one) overwrites the older of the two
//! conversions, so that readers of the current one are not delayed, and then advances the sequence
//! number.

use std::sync::atomic::Ordering;

use super::calibration::{Conversion, Validity};
use crate::sync::{AtomicU64, fence};

/// The conversion of the current sequence number and the one before.
#[derive(Debug)]
#[cfg_attr(not(any(loom, shuttle)), repr(align(64)))]
pub(super) struct SeqLock {
    /// Odd while the older conversion is being overwritten. The remaining bits count publications.
    sequence: AtomicU64,
    /// Ticks after the start of the current conversion from which on readers take the slow path.
    /// Zero sends all of them there.
    due: AtomicU64,
    slots: [Slot; 2],
}

#[derive(Debug)]
struct Slot {
    ticks: AtomicU64,
    ns: AtomicU64,
    slope: AtomicU64,
}

/// Result of converting a number of ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// The time.
    Valid(u64),
    /// The time; the next conversion is due.
    Due(u64),
    /// Unknown: after both conversions, between them, or before both.
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

    /// Converts `ticks` with the current conversion, in the common case.
    #[inline]
    pub(super) fn at(&self, ticks: u64) -> Option<u64> {
        let sequence = self.sequence.load(Ordering::Acquire);
        let conversion = self.newest(sequence).load();
        // Before the start of the conversion, this wraps to a large number.
        let elapsed = ticks.wrapping_sub(conversion.ticks);
        let is_common_case = elapsed < self.due.load(Ordering::Relaxed);
        (is_common_case && self.is_current(sequence)).then(|| conversion.after(elapsed))
    }

    /// Converts `ticks` with either conversion.
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

    /// Publishes a conversion. Only one caller at a time.
    pub(super) fn publish(&self, conversion: Conversion) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        // Release: a reader of this number uses the current conversion and must see all of it.
        self.sequence.store(sequence + 1, Ordering::Release);
        // A reader that sees any of the following stores also sees the odd sequence number.
        fence(Ordering::Release);
        self.older(sequence).store(conversion);
        self.sequence.store(sequence + 2, Ordering::Release);
    }

    /// Permanently sends all readers to the slow path.
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

    /// Returns whether everything read so far belongs to this sequence number.
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
