//! A segment: the lines of one slab that are in use, and rebuilding all of them at once.
//!
//! A key is stored in its home line or, if that is full, in one of the lines that follow. Probing
//! does not wrap around, so that locks are always acquired in ascending order. A few extra lines
//! after the last home take keys that spill over there.

use tidegate_core::Time;

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::table::arena::Arena;
use crate::table::cell::{Cell, Fingerprint};
use crate::table::line::{CELLS, LineGuard};
use crate::table::prefetch::prefetch;

/// Number of extra lines after the last home.
pub(crate) const SPILL_LINES: usize = if cfg!(any(loom, shuttle)) { 1 } else { 15 };
/// The number of homes is a multiple of this.
const HOMES_STEP: usize = if cfg!(any(loom, shuttle)) { 1 } else { 8 };
/// How many lines ahead to prefetch while locking all of them.
const PREFETCH_AHEAD: usize = 16;
/// Maximum distance of a key from its home line.
const MAX_PROBE: usize = 127;

/// Position and size of a segment: one entry of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Number of the header, which precedes the first line.
    first: usize,
    homes: usize,
}

impl Segment {
    /// Homes of the smallest segment.
    pub(crate) const FIRST_HOMES: usize = HOMES_STEP;

    pub(crate) const fn new(first: usize, homes: usize) -> Self {
        Self { first, homes }
    }

    /// Returns the maximum number of homes in a slab.
    pub(crate) const fn max_homes(slab_lines: usize) -> usize {
        (slab_lines - 1 - SPILL_LINES) / HOMES_STEP * HOMES_STEP
    }

    /// Returns the maximum number of keys in `homes` homes, chosen so that few of them spill over.
    pub(crate) const fn max_keys(homes: usize) -> usize {
        homes * CELLS * 11 / 16
    }

    /// Returns the number of homes for `keys` keys and some room for more. Close to the maximum it
    /// returns the maximum, so that keys are not moved for a few homes.
    pub(crate) fn homes_for(keys: usize, max_homes: usize) -> usize {
        let homes = (keys * 2).div_ceil(CELLS).next_multiple_of(HOMES_STEP);
        if homes * 4 > max_homes * 3 { max_homes } else { homes.max(Self::FIRST_HOMES) }
    }

    #[inline]
    pub(crate) const fn pack(self) -> u64 {
        (self.first as u64) << 16 | self.homes as u64
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "packed from values of this size")]
    pub(crate) const fn unpack(packed: u64) -> Self {
        Self { first: (packed >> 16) as usize, homes: (packed & 0xffff) as usize }
    }

    #[inline]
    pub(crate) const fn first(self) -> usize {
        self.first
    }

    pub(crate) const fn homes(self) -> usize {
        self.homes
    }

    /// Returns the number of the home line of a key.
    #[inline]
    pub(crate) const fn home(self, fingerprint: Fingerprint) -> usize {
        self.first + 1 + fingerprint.home(self.homes)
    }

    /// Returns the number after its last line.
    #[inline]
    pub(crate) const fn end(self) -> usize {
        self.first + 1 + self.homes + SPILL_LINES
    }
}

/// Metadata of a segment, stored in place of the first line of its slab. Decisions on existing keys
/// do not read it.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Header {
    /// No key becomes full before this.
    earliest_full: AtomicU64,
    /// A full segment is not swept before this.
    sweep_after: AtomicU64,
    /// Until then a key of this segment may have debt on a shared bucket.
    shared_debt_until: AtomicU64,
    /// Prefix, depth and homes in one word, since they are also read without a lock. Zero homes
    /// mean that the slab is not in use.
    shape: AtomicU64,
    keys: AtomicU32,
}

/// The first bits shared by the fingerprints of all keys of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    pub(crate) bits: usize,
    pub(crate) depth: u32,
}

impl Prefix {
    pub(crate) const ROOT: Self = Self { bits: 0, depth: 0 };
    /// Prefix of the first keys in order.
    pub(crate) const FIRST: Self = Self { bits: 0, depth: Fingerprint::PREFIX_BITS };

    /// Returns the two halves of this prefix.
    pub(crate) const fn halves(self) -> [Self; 2] {
        let (bits, depth) = (self.bits << 1, self.depth + 1);
        [Self { bits, depth }, Self { bits: bits | 1, depth }]
    }

    /// Returns the prefix of which this is one half.
    pub(crate) fn parent(self) -> Option<Self> {
        let depth = self.depth.checked_sub(1)?;
        Some(Self { bits: self.bits >> 1, depth })
    }

    /// Returns the first full-depth prefix after this one.
    pub(crate) fn next(self) -> Option<Self> {
        let finer = Fingerprint::PREFIX_BITS - self.depth;
        let bits = (self.bits + 1) << finer;
        let depth = Fingerprint::PREFIX_BITS;
        (bits < 1 << depth).then_some(Self { bits, depth })
    }

    pub(crate) fn contains(self, fingerprint: Fingerprint) -> bool {
        fingerprint.prefix(self.depth) == self.bits
    }

    /// Returns a fingerprint with this prefix.
    pub(crate) const fn any_key(self) -> Fingerprint {
        Fingerprint::with_prefix(self.bits, self.depth)
    }
}

/// The times of a header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentTimes {
    pub(crate) earliest_full: Time,
    pub(crate) sweep_after: Time,
    pub(crate) shared_debt_until: Time,
}

impl Header {
    pub(crate) fn keys(&self) -> usize {
        self.keys.load(Ordering::Relaxed) as usize
    }

    /// Returns whether one more key may be inserted.
    pub(crate) fn has_room(&self, segment: Segment) -> bool {
        self.keys() < Segment::max_keys(segment.homes())
    }

    pub(crate) fn add_key(&self) {
        self.keys.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove_key(&self) {
        self.keys.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of homes and the prefix; `None` if the slab is not in use.
    #[allow(clippy::cast_possible_truncation, reason = "packed from values of this size")]
    pub(crate) fn shape(&self) -> Option<(usize, Prefix)> {
        let shape = self.shape.load(Ordering::Relaxed);
        let (homes, depth) = ((shape & 0xffff) as usize, (shape >> 16 & 0xff) as u32);
        let bits = (shape >> 32) as usize;
        (homes > 0).then_some((homes, Prefix { bits, depth }))
    }

    pub(crate) fn times(&self) -> SegmentTimes {
        let time = |word: &AtomicU64| Time::from_nanos(word.load(Ordering::Relaxed));
        SegmentTimes {
            earliest_full: time(&self.earliest_full),
            sweep_after: time(&self.sweep_after),
            shared_debt_until: time(&self.shared_debt_until),
        }
    }

    pub(crate) fn set_times(&self, times: SegmentTimes) {
        self.earliest_full.store(times.earliest_full.as_nanos(), Ordering::Relaxed);
        self.sweep_after.store(times.sweep_after.as_nanos(), Ordering::Relaxed);
        self.shared_debt_until.store(times.shared_debt_until.as_nanos(), Ordering::Relaxed);
    }

    /// Notes that a key becomes full at `time`, possibly before all others.
    pub(crate) fn note_full_at(&self, time: Time) {
        self.earliest_full.fetch_min(time.as_nanos(), Ordering::Relaxed);
    }

    /// Notes that a key of this segment may have debt on a shared bucket until `until`.
    pub(crate) fn note_shared_debt(&self, until: Time) {
        self.shared_debt_until.fetch_max(until.as_nanos(), Ordering::Relaxed);
    }

    #[expect(clippy::cast_possible_truncation, reason = "a segment has a few thousand keys")]
    fn set_shape(&self, keys: usize, homes: usize, prefix: Prefix) {
        self.keys.store(keys as u32, Ordering::Relaxed);
        let shape = (prefix.bits as u64) << 32 | u64::from(prefix.depth) << 16 | homes as u64;
        self.shape.store(shape, Ordering::Relaxed);
    }
}

/// A segment with all its lines locked.
#[derive(Debug)]
pub(crate) struct LockedSegment<'t> {
    arena: &'t Arena,
    first: usize,
    lines: Vec<LineGuard<'t>>,
}

impl<'t> LockedSegment<'t> {
    /// Locks every line. Returns `None`, with nothing locked, if the segment is not current once
    /// its first line is locked.
    pub(crate) fn lock(
        arena: &'t Arena,
        segment: Segment,
        is_current: impl FnOnce() -> bool,
    ) -> Option<Self> {
        let mut lines = Vec::with_capacity(segment.end() - segment.first);
        lines.push(arena.line(segment.first + 1).lock()?);
        if !is_current() {
            return None;
        }
        for number in segment.first + 2..segment.end() {
            if number + PREFETCH_AHEAD < segment.end() {
                prefetch(arena.line(number + PREFETCH_AHEAD));
            }
            // Holding one line keeps the segment unchanged, so none of the others is closed.
            lines.push(arena.line(number).lock()?);
        }
        Some(Self { arena, first: segment.first, lines })
    }

    /// Wraps a new slab without any open lines, which no other thread can find yet.
    pub(crate) fn unused(arena: &'t Arena, first: usize) -> Self {
        Self { arena, first, lines: Vec::new() }
    }

    pub(crate) fn header(&self) -> &'t Header {
        self.arena.header(self.first)
    }

    pub(crate) fn segment(&self) -> Segment {
        Segment::new(self.first, self.lines.len() - SPILL_LINES)
    }

    /// Returns all cells that are not vacant.
    pub(crate) fn cells(&self) -> Vec<Cell> {
        let all = self.lines.iter().flat_map(|line| (0..CELLS).map(|index| line.cell(index)));
        all.filter(|cell| !cell.tag().is_vacant()).collect()
    }

    /// Rebuilds the segment from `cells`, in `homes` homes, or as many more as are needed to fit
    /// them all, up to `max_homes`, or else in `fallback_homes`. Returns `false` if they do not fit
    /// even there; then some are missing, and the caller must rebuild it differently.
    ///
    /// Cells that were stored in a number of homes always fit into as many homes again, and so does
    /// any subset of them: with linear probing, the set of occupied cells does not depend on the
    /// order of insertion.
    pub(crate) fn rebuild(
        &mut self,
        cells: &[Cell],
        (homes, max_homes, fallback_homes): (usize, usize, usize),
        prefix: Prefix,
    ) -> bool {
        let mut homes = homes.next_multiple_of(HOMES_STEP).clamp(Segment::FIRST_HOMES, max_homes);
        let mut fits = self.fill(cells, homes);
        while !fits && homes < max_homes {
            homes = (homes + homes.div_ceil(4)).next_multiple_of(HOMES_STEP).min(max_homes);
            fits = self.fill(cells, homes);
        }
        if !fits {
            homes = fallback_homes;
            fits = self.fill(cells, homes);
        }
        self.header().set_shape(cells.len(), homes, prefix);
        fits
    }

    /// Closes every line.
    pub(crate) fn close(mut self) {
        self.header().set_shape(0, 0, Prefix::ROOT);
        self.lines.drain(..).for_each(LineGuard::close);
    }

    /// Stores the cells in `homes` homes. Returns whether all of them fit.
    fn fill(&mut self, cells: &[Cell], homes: usize) -> bool {
        let before = self.lines.len();
        while self.lines.len() > homes + SPILL_LINES {
            if let Some(line) = self.lines.pop() {
                line.close();
            }
        }
        if self.lines.len() < before {
            self.arena.release_from(self.first + 1 + self.lines.len());
        }
        while self.lines.len() < homes + SPILL_LINES {
            self.lines.push(self.arena.line(self.first + 1 + self.lines.len()).open());
        }
        for line in &mut self.lines {
            (0..CELLS).for_each(|index| line.set(index, Cell::default()));
            line.set_probe_len(0);
        }
        cells.iter().all(|cell| self.put(*cell, homes))
    }

    fn put(&mut self, cell: Cell, homes: usize) -> bool {
        let home = cell.tag().fingerprint().home(homes);
        let end = self.lines.len().min(home + MAX_PROBE + 1);
        for at in home..end {
            if let Some(vacant) = self.lines[at].find_vacant() {
                self.lines[at].set(vacant, cell);
                self.lines[home].extend_probe(at - home);
                return true;
            }
        }
        false
    }
}

/// Returns the lines that may contain a key whose home line is `home`.
pub(crate) fn probe_range(segment: Segment, home: usize) -> std::ops::Range<usize> {
    home..segment.end().min(home + MAX_PROBE + 1)
}
