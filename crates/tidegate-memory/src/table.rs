//! The table: where a key lives, and how its line is found and locked.
//!
//! The first bits of a fingerprint choose a segment, the others a line of it. Segments grow, split
//! and shrink alone (`room.rs`, `shrink.rs`), under the locks of all their lines, so whoever holds
//! one line of a segment keeps it as it is.

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

/// The end of time: nothing to wait for.
pub(crate) const NEVER: Time = Time::from_nanos(u64::MAX);
/// Memory is taken and given back in such pieces.
const PAGE: usize = 4_096;

/// All buckets of a store but those of concurrency limits.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) arena: Arena,
    pub(crate) directory: Directory,
    max_depth: u32,
    max_homes: usize,
    /// Keys taken out because they were full again.
    evicted: AtomicU64,
    /// Keys taken out for other reasons.
    removed: AtomicU64,
    /// The most that was told of keys put in.
    inserted: AtomicU64,
    #[cfg(all(test, shuttle))]
    forced_full: std::sync::atomic::AtomicBool,
}

/// What a table has, and has had.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TableStats {
    pub(crate) keys: usize,
    pub(crate) bytes: usize,
    pub(crate) evicted: u64,
    pub(crate) inserted: u64,
}

impl Table {
    /// An empty table; `None` if there is no address space for it.
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

    /// How many keys so much room is for.
    pub(crate) const fn max_keys(sizes: &Sizes) -> usize {
        Segment::max_keys(Segment::max_homes(sizes.slab_lines)) << sizes.max_depth
    }

    /// Looks a key up.
    #[inline(always)]
    pub(crate) fn look_up(&self, fingerprint: Fingerprint) -> Lookup {
        self.directory.look_up(fingerprint)
    }

    /// Looks a key up, and begins to fetch the line where its search begins.
    #[inline(always)]
    pub(crate) fn look_up_and_prefetch(&self, fingerprint: Fingerprint) -> Lookup {
        let found = self.directory.look_up(fingerprint);
        prefetch(self.arena.line(found.segment().home(fingerprint)));
        found
    }

    /// Locks the line in which a token bucket is, further on than the line where its search began,
    /// which is held; also says which cell it is.
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

    /// Locks the line where the search for a key begins, and says in which segment that is.
    #[inline(always)]
    pub(crate) fn lock_home(&self, fingerprint: Fingerprint) -> (Segment, LineGuard<'_>) {
        self.lock_found(fingerprint, self.directory.look_up(fingerprint))
    }

    /// The same for a key that was looked up before.
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

    /// Takes the lock of a line, unless its segment has changed meanwhile.
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

    /// The header of a segment.
    pub(crate) fn header(&self, segment: Segment) -> &Header {
        self.arena.header(segment.first())
    }

    /// Counts a key that was taken out of a segment, though it was not full again.
    pub(crate) fn count_removed(&self, keys: usize) {
        self.removed.fetch_add(keys as u64, Ordering::Relaxed);
    }

    fn count_evicted(&self, keys: usize) {
        self.evicted.fetch_add(keys as u64, Ordering::Relaxed);
    }

    /// Looks at the cells of one segment after another, without any lock. Keys that come, go or
    /// move meanwhile may be shown or not, or twice; all others are shown.
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

    /// Any key may owe something to a shared bucket until then.
    pub(crate) fn note_shared_debt(&self, until: Time) {
        self.for_each_segment(|locked, _| locked.header().note_shared_debt(until));
    }

    /// What there is now, and has been.
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
        // Read one after the other while keys come and go, the sum may be a little too low.
        let inserted = stats.keys as u64 + evicted + removed;
        stats.inserted = self.inserted.fetch_max(inserted, Ordering::Relaxed).max(inserted);
        stats
    }

    /// From now on there is no room: as if the table were full of keys in debt.
    #[cfg(all(test, shuttle))]
    pub(crate) fn force_full(&self) {
        self.forced_full.store(true, Ordering::SeqCst);
    }

    #[cfg(all(test, shuttle))]
    pub(crate) fn is_forced_full(&self) -> bool {
        self.forced_full.load(Ordering::SeqCst)
    }

    /// All lines of the segment of a key.
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

    /// Goes through all segments, in the order of their prefixes: whatever splits or merges
    /// meanwhile, none is left out.
    fn try_for_each_segment<E>(
        &self,
        mut visit: impl FnMut(LockedSegment<'_>, Prefix) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut next = Prefix::FIRST;
        loop {
            let locked = self.lock_segment(next.any_key());
            let shape = locked.header().shape();
            debug_assert!(shape.is_some(), "a segment that is in the directory has a shape");
            let Some((_, prefix)) = shape else { return Ok(()) };
            visit(locked, prefix)?;
            match prefix.next() {
                Some(prefix) => next = prefix,
                None => return Ok(()),
            }
        }
    }

    /// The same for those who cannot fail.
    fn for_each_segment(&self, mut visit: impl FnMut(LockedSegment<'_>, Prefix)) {
        let done: Result<(), std::convert::Infallible> =
            self.try_for_each_segment(|locked, prefix| {
                visit(locked, prefix);
                Ok(())
            });
        let Ok(()) = done;
    }

    /// What is in the table now, by prefix.
    fn prefixes(&self) -> Vec<Prefix> {
        let shapes = self.arena.used_slabs().filter_map(|first| self.arena.header(first).shape());
        shapes.map(|(_, prefix)| prefix).collect()
    }
}
