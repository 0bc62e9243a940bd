//! The table of buckets: finding and locking the line of a key.
//!
//! The first bits of a fingerprint select a segment, the others a line within it. Segments grow,
//! split and shrink independently (`grow.rs`, `shrink.rs`), under the locks of all their lines.
//! Holding the lock of one line therefore keeps its segment unchanged.

mod arena;
pub(crate) mod cell;
mod cell_refs;
pub(crate) mod directory;
mod grow;
pub(crate) mod hash;
pub(crate) mod line;
pub(crate) mod overflow;
pub(crate) mod prefetch;
pub(crate) mod segment;
mod shrink;

use tidegate_core::Time;

use crate::builder::Sizes;
use crate::sync::Backoff;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::table::arena::Arena;
use crate::table::cell::{Cell, Fingerprint, Tag};
use crate::table::directory::{Directory, Lookup};
use crate::table::line::{Line, LineGuard};
use crate::table::prefetch::prefetch;
use crate::table::segment::{Header, LockedSegment, Prefix, SPILL_LINES, Segment};

pub(crate) use grow::{RoomRequest, fresh_at};

/// The largest instant: never.
pub(crate) const NEVER: Time = Time::from_nanos(u64::MAX);
/// Granularity in which memory is committed and released, in bytes.
const PAGE: usize = 4_096;

/// All buckets of a store except those of concurrency limits.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) arena: Arena,
    pub(crate) directory: Directory,
    max_depth: u32,
    max_homes: usize,
    /// Keys removed because they were full again.
    evicted: AtomicU64,
    /// Keys removed for other reasons.
    removed: AtomicU64,
    /// Largest number of inserted keys reported so far.
    inserted: AtomicU64,
    #[cfg(all(test, shuttle))]
    forced_full: std::sync::atomic::AtomicBool,
}

/// Current size of the table and its counters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TableStats {
    pub(crate) keys: usize,
    pub(crate) bytes: usize,
    pub(crate) evicted: u64,
    pub(crate) inserted: u64,
}

impl Table {
    /// Creates an empty table; `None` if there is no address space for it.
    pub(crate) fn new(sizes: &Sizes) -> Option<Self> {
        let arena = Arena::new(1 << sizes.max_depth, sizes.slab_lines)?;
        let max_homes = Segment::max_homes(sizes.slab_lines);
        let mut only = LockedSegment::unused(&arena, arena.take_slab()?);
        let first = Segment::FIRST_HOMES;
        only.rebuild(&[], (first, first, first), Prefix::ROOT);
        let directory = Directory::new(sizes.max_depth, only.segment());
        drop(only);
        Some(Self {
            arena,
            directory,
            max_depth: sizes.max_depth,
            max_homes,
            evicted: AtomicU64::new(0),
            removed: AtomicU64::new(0),
            inserted: AtomicU64::new(0),
            #[cfg(all(test, shuttle))]
            forced_full: std::sync::atomic::AtomicBool::new(false),
        })
    }

    /// Returns the maximum number of keys for these sizes.
    pub(crate) const fn max_keys(sizes: &Sizes) -> usize {
        Segment::max_keys(Segment::max_homes(sizes.slab_lines)) << sizes.max_depth
    }

    /// Finds the segment of a key.
    #[inline(always)]
    pub(crate) fn look_up(&self, fingerprint: Fingerprint) -> Lookup {
        self.directory.look_up(fingerprint)
    }

    /// Finds the segment of a key and prefetches its home line.
    #[inline(always)]
    pub(crate) fn look_up_and_prefetch(&self, fingerprint: Fingerprint) -> Lookup {
        let found = self.directory.look_up(fingerprint);
        prefetch(self.arena.line(found.segment().home(fingerprint)));
        found
    }

    /// Locks the line, after the home line, that contains a token bucket. `home` is the locked home
    /// line. Also returns the index of the cell.
    #[cold]
    pub(crate) fn lock_spilled(
        &self,
        tag: Tag,
        segment: Segment,
        home: &LineGuard<'_>,
    ) -> Option<(LineGuard<'_>, usize)> {
        let number = segment.home(tag.fingerprint());
        (number + 1..=number + home.probe_len()).find_map(|number| {
            let line = self.arena.line(number).lock()?;
            line.find(tag).map(|cell| (line, cell))
        })
    }

    /// Locks the home line of a key. Also returns its segment.
    #[inline(always)]
    pub(crate) fn lock_home(&self, fingerprint: Fingerprint) -> (Segment, LineGuard<'_>) {
        self.lock_found(fingerprint, self.directory.look_up(fingerprint))
    }

    /// Locks the home line of a key that was looked up before. Also returns its segment, which may
    /// have changed since.
    #[inline(always)]
    pub(crate) fn lock_found(
        &self,
        fingerprint: Fingerprint,
        found: Lookup,
    ) -> (Segment, LineGuard<'_>) {
        match self.try_lock_found(fingerprint, found) {
            Some(line) => (found.segment(), line),
            None => self.lock_slow(fingerprint),
        }
    }

    /// Locks the home line, unless its segment has changed since the lookup.
    #[inline(always)]
    fn try_lock_found(&self, fingerprint: Fingerprint, found: Lookup) -> Option<LineGuard<'_>> {
        let line = self.arena.line(found.segment().home(fingerprint)).lock();
        line.filter(|_| self.directory.is_unchanged(found))
    }

    #[cold]
    fn lock_slow(&self, fingerprint: Fingerprint) -> (Segment, LineGuard<'_>) {
        let mut backoff = Backoff::default();
        loop {
            let found = self.directory.look_up(fingerprint);
            if let Some(line) = self.try_lock_found(fingerprint, found) {
                return (found.segment(), line);
            }
            backoff.wait();
        }
    }

    pub(crate) fn header(&self, segment: Segment) -> &Header {
        self.arena.header(segment.first())
    }

    /// Counts keys that were removed although they were not full.
    pub(crate) fn count_removed(&self, keys: usize) {
        self.removed.fetch_add(keys as u64, Ordering::Relaxed);
    }

    fn count_evicted(&self, keys: usize) {
        self.evicted.fetch_add(keys as u64, Ordering::Relaxed);
    }

    /// Calls `look` with the cells of one segment after another, holding no lock during the call.
    /// Keys that are inserted, removed or moved meanwhile may be omitted or occur twice; all others
    /// occur once.
    pub(crate) fn for_each_segment_cells<E>(
        &self,
        mut look: impl FnMut(&[Cell]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.try_for_each_segment(|locked, _| {
            let cells = locked.cells();
            drop(locked);
            look(&cells)
        })
    }

    /// Notes that any key may have debt on a shared bucket until `until`.
    pub(crate) fn note_shared_debt(&self, until: Time) {
        self.for_each_segment(|locked, _| locked.header().note_shared_debt(until));
    }

    /// Returns the current statistics.
    pub(crate) fn stats(&self) -> TableStats {
        let evicted = self.evicted.load(Ordering::Relaxed);
        let mut stats =
            TableStats { evicted, bytes: self.directory.bytes(), ..TableStats::default() };
        for first in self.arena.used_slabs() {
            let header = self.arena.header(first);
            if let Some((homes, _)) = header.shape() {
                stats.keys += header.keys();
                stats.bytes +=
                    ((1 + homes + SPILL_LINES) * size_of::<Line>()).next_multiple_of(PAGE);
            }
        }
        let removed = self.removed.load(Ordering::Relaxed);
        // The counters are not read atomically, so the sum may be slightly too low.
        let inserted = stats.keys as u64 + evicted + removed;
        stats.inserted = self.inserted.fetch_max(inserted, Ordering::Relaxed).max(inserted);
        stats
    }

    /// Makes the table behave as if it were full of keys in debt.
    #[cfg(all(test, shuttle))]
    pub(crate) fn force_full(&self) {
        self.forced_full.store(true, Ordering::SeqCst);
    }

    #[cfg(all(test, shuttle))]
    pub(crate) fn is_forced_full(&self) -> bool {
        self.forced_full.load(Ordering::SeqCst)
    }

    /// Locks all lines of the segment of a key.
    fn lock_segment(&self, fingerprint: Fingerprint) -> LockedSegment<'_> {
        let mut backoff = Backoff::default();
        loop {
            let segment = self.directory.segment(fingerprint);
            let current = || self.directory.is_current(fingerprint, segment);
            if let Some(locked) = LockedSegment::lock(&self.arena, segment, current) {
                return locked;
            }
            backoff.wait();
        }
    }

    /// Visits all segments in the order of their prefixes. None is omitted, even if segments split
    /// or merge meanwhile.
    fn try_for_each_segment<E>(
        &self,
        mut visit: impl FnMut(LockedSegment<'_>, Prefix) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut next = Prefix::FIRST;
        loop {
            let locked = self.lock_segment(next.any_key());
            let shape = locked.header().shape();
            debug_assert!(shape.is_some(), "a segment in the directory has a shape");
            let Some((_, prefix)) = shape else { return Ok(()) };
            visit(locked, prefix)?;
            match prefix.next() {
                Some(prefix) => next = prefix,
                None => return Ok(()),
            }
        }
    }

    /// Visits all segments with a function that cannot fail.
    fn for_each_segment(&self, mut visit: impl FnMut(LockedSegment<'_>, Prefix)) {
        let done: Result<(), std::convert::Infallible> =
            self.try_for_each_segment(|locked, prefix| {
                visit(locked, prefix);
                Ok(())
            });
        let Ok(()) = done;
    }

    /// Returns the prefixes of all segments.
    fn prefixes(&self) -> Vec<Prefix> {
        let shapes = self.arena.used_slabs().filter_map(|first| self.arena.header(first).shape());
        shapes.map(|(_, prefix)| prefix).collect()
    }
}
