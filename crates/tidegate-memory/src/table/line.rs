//! One cache line: three cells, a one-byte lock, and how far its keys have spilled over.
//!
//! The cells are accessed under the lock of the line. It is held for a few tens of nanoseconds, or
//! while a segment is rebuilt; waiting threads spin, then yield. A closed line belongs to no
//! segment and cannot be locked. Zeroed memory is a closed line.

use std::fmt;

use crate::sync::atomic::{AtomicU8, Ordering};
use crate::sync::{Backoff, UnsafeCell};
use crate::table::cell::{Cell, Fingerprint, Tag};

/// Number of cells per line.
pub(crate) const CELLS: usize = 3;

const CLOSED: u8 = 0;
const FREE: u8 = 1;
const LOCKED: u8 = 2;

#[cfg_attr(not(any(loom, shuttle)), repr(C, align(64)))]
pub(crate) struct Line {
    cells: UnsafeCell<[Cell; CELLS]>,
    lock: AtomicU8,
    /// Number of following lines that may contain keys whose home is this line.
    probe_len: UnsafeCell<u8>,
}

// SAFETY: `cells` and `probe_len` are accessed only through `LineGuard`. At most one exists at a
// time: it is created when the lock is acquired and dropped when it is released.
#[allow(unsafe_code, reason = "a one-byte lock")]
unsafe impl Sync for Line {}

impl Line {
    /// Creates a closed line. Without a model checker, lines are zeroed memory instead, which is
    /// equivalent.
    #[cfg(any(loom, shuttle))]
    pub(crate) fn new() -> Self {
        Self {
            cells: UnsafeCell::new([Cell::default(); CELLS]),
            lock: AtomicU8::new(CLOSED),
            probe_len: UnsafeCell::new(0),
        }
    }

    /// Acquires the lock; `None` if the line is closed.
    #[inline]
    pub(crate) fn lock(&self) -> Option<LineGuard<'_>> {
        #[cfg(test)]
        crate::work::count_line();
        match self.lock.compare_exchange(FREE, LOCKED, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Some(LineGuard { line: self }),
            Err(_) => self.lock_slow(),
        }
    }

    #[cold]
    fn lock_slow(&self) -> Option<LineGuard<'_>> {
        let mut backoff = Backoff::default();
        loop {
            match self.lock.load(Ordering::Relaxed) {
                CLOSED => return None,
                FREE => {
                    let taken = self.lock.compare_exchange(
                        FREE,
                        LOCKED,
                        Ordering::Acquire,
                        Ordering::Relaxed,
                    );
                    if taken.is_ok() {
                        return Some(LineGuard { line: self });
                    }
                }
                _ => {}
            }
            backoff.wait();
        }
    }

    /// Opens a closed line that no other thread can find yet, and locks it.
    pub(crate) fn open(&self) -> LineGuard<'_> {
        self.lock.store(LOCKED, Ordering::Relaxed);
        LineGuard { line: self }
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").finish_non_exhaustive()
    }
}

/// The lock of a line, released on drop.
#[derive(Debug)]
pub(crate) struct LineGuard<'t> {
    line: &'t Line,
}

#[allow(unsafe_code, reason = "access to the cells under the lock")]
impl LineGuard<'_> {
    #[inline]
    pub(crate) fn cell(&self, index: usize) -> Cell {
        // SAFETY: the lock is held, see `Line`; the borrow ends in this call.
        self.line.cells.with(|cells| unsafe { (&(*cells))[index] })
    }

    #[inline]
    pub(crate) fn set(&mut self, index: usize, cell: Cell) {
        // SAFETY: the lock is held, see `Line`; the borrow ends in this call.
        self.line.cells.with_mut(|cells| unsafe { (&mut (*cells))[index] = cell });
    }

    /// Returns the index of the cell with exactly this tag. Compares all three without branching,
    /// since the match is unpredictable.
    #[inline]
    pub(crate) fn find(&self, tag: Tag) -> Option<usize> {
        // SAFETY: the lock is held, see `Line`; the borrow ends in this call.
        let tags = self.line.cells.with(|cells| unsafe { (*cells).map(|cell| cell.tag()) });
        let mut found = 0;
        for (index, other) in tags.into_iter().enumerate() {
            found |= u32::from(other == tag) << index;
        }
        (found != 0).then_some(found.trailing_zeros() as usize)
    }

    /// Returns the number of following lines that may contain keys whose home is this line.
    #[inline]
    pub(crate) fn probe_len(&self) -> usize {
        // SAFETY: the lock is held, see `Line`; the borrow ends in this call.
        self.line.probe_len.with(|probe_len| usize::from(unsafe { *probe_len }))
    }

    pub(crate) fn set_probe_len(&mut self, lines: u8) {
        // SAFETY: the lock is held, see `Line`; the borrow ends in this call.
        self.line.probe_len.with_mut(|probe_len| unsafe { *probe_len = lines });
    }
}

impl LineGuard<'_> {
    /// Returns the index of the cell of a key, of any kind and generation.
    pub(crate) fn find_key(&self, fingerprint: Fingerprint) -> Option<usize> {
        (0..CELLS).find(|&index| {
            let tag = self.cell(index).tag();
            !tag.is_vacant() && tag.fingerprint() == fingerprint
        })
    }

    /// Notes that a key whose home is this line is stored `lines` lines further on.
    pub(crate) fn extend_probe(&mut self, lines: usize) {
        if lines > self.probe_len() {
            self.set_probe_len(u8::try_from(lines).unwrap_or(u8::MAX));
        }
    }

    pub(crate) fn find_vacant(&self) -> Option<usize> {
        self.find(Tag::VACANT)
    }

    /// Clears the line and closes it.
    pub(crate) fn close(mut self) {
        for index in 0..CELLS {
            self.set(index, Cell::default());
        }
        self.set_probe_len(0);
        let line = self.line;
        std::mem::forget(self);
        line.lock.store(CLOSED, Ordering::Release);
    }
}

impl Drop for LineGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.line.lock.store(FREE, Ordering::Release);
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn line_is_one_cache_line() {
        assert_eq!((size_of::<Line>(), align_of::<Line>()), (64, 64));
    }
}
