//! One cache line: three cells, a lock of one byte, and how far its keys have spilled over.
//!
//! Whoever holds the lock of a line may read and write its cells. Locks are held for some tens of
//! nanoseconds, and while a segment is built anew; who waits spins, then yields. A line can be
//! closed: then it is part of no segment, and nobody gets its lock. Zeroed memory is a closed line.

use std::fmt;

use crate::sync::atomic::{AtomicU8, Ordering};
use crate::sync::{Backoff, UnsafeCell};
use crate::table::cell::{Cell, Fingerprint, Tag};

/// Cells of one line.
pub(crate) const CELLS: usize = 3;

const CLOSED: u8 = 0;
const FREE: u8 = 1;
const LOCKED: u8 = 2;

/// One cache line of the table.
#[cfg_attr(not(any(loom, shuttle)), repr(C, align(64)))]
pub(crate) struct Line {
    cells: UnsafeCell<[Cell; CELLS]>,
    lock: AtomicU8,
    /// How many lines further on a key may be that belongs here.
    probe_len: UnsafeCell<u8>,
}

// SAFETY: `cells` and `probe_len` are accessed by the holder of `lock` only: through `LineGuard`, of which
// there is one at a time, since it is made when the lock is taken and gone when it is given back.
#[allow(unsafe_code, reason = "a lock of one byte, which std has not")]
unsafe impl Sync for Line {}

impl Line {
    /// A closed line. Outside of model checkers lines are zeroed memory, which is the same.
    #[cfg(any(loom, shuttle))]
    pub(crate) fn new() -> Self {
        Self {
            cells: UnsafeCell::new([Cell::default(); CELLS]),
            lock: AtomicU8::new(CLOSED),
            probe_len: UnsafeCell::new(0),
        }
    }

    /// Takes the lock; `None` if the line is closed.
    #[inline]
    pub(crate) fn lock(&self) -> Option<LineGuard<'_>> {
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

    /// Opens a closed line that nobody else can know yet, and holds it.
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

/// The lock of a line. It is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct LineGuard<'t> {
    line: &'t Line,
}

#[allow(unsafe_code, reason = "the cells under the lock")]
impl LineGuard<'_> {
    #[inline]
    pub(crate) fn cell(&self, index: usize) -> Cell {
        // SAFETY: the lock of the line is held, see `Line`; the borrow ends in this call.
        self.line.cells.with(|cells| unsafe { (&(*cells))[index] })
    }

    #[inline]
    pub(crate) fn set(&mut self, index: usize, cell: Cell) {
        // SAFETY: the lock of the line is held, see `Line`; the borrow ends in this call.
        self.line.cells.with_mut(|cells| unsafe { (&mut (*cells))[index] = cell });
    }

    /// The place of a cell with exactly this tag. All three are compared, since nobody could guess
    /// which one it is.
    #[inline]
    pub(crate) fn find(&self, tag: Tag) -> Option<usize> {
        // SAFETY: the lock of the line is held, see `Line`; the borrow ends in this call.
        let tags = self.line.cells.with(|cells| unsafe { (*cells).map(|cell| cell.tag()) });
        let mut found = 0;
        for (index, other) in tags.into_iter().enumerate() {
            found |= u32::from(other == tag) << index;
        }
        (found != 0).then_some(found.trailing_zeros() as usize)
    }

    /// How many lines further on a key may be that belongs here.
    #[inline]
    pub(crate) fn probe_len(&self) -> usize {
        // SAFETY: the lock of the line is held, see `Line`; the borrow ends in this call.
        self.line.probe_len.with(|probe_len| usize::from(unsafe { *probe_len }))
    }

    pub(crate) fn set_probe_len(&mut self, lines: u8) {
        // SAFETY: the lock of the line is held, see `Line`; the borrow ends in this call.
        self.line.probe_len.with_mut(|probe_len| unsafe { *probe_len = lines });
    }
}

impl LineGuard<'_> {
    /// The place of the cell of a key, of whatever kind and generation.
    pub(crate) fn find_key(&self, fingerprint: Fingerprint) -> Option<usize> {
        (0..CELLS).find(|&index| {
            let tag = self.cell(index).tag();
            !tag.is_vacant() && tag.fingerprint() == fingerprint
        })
    }

    /// Notes that a key which belongs here is so many lines further on.
    pub(crate) fn extend_probe(&mut self, lines: usize) {
        if lines > self.probe_len() {
            self.set_probe_len(u8::try_from(lines).unwrap_or(u8::MAX));
        }
    }

    pub(crate) fn find_vacant(&self) -> Option<usize> {
        self.find(Tag::VACANT)
    }

    /// Empties the line and closes it.
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
