//! The lines locked by one list of charges, and the position of its keys in them.
//!
//! Lines are locked in ascending order, and those of a key contiguously from its home line, so
//! lists cannot deadlock. A key that is not in the table is inserted at once, before anything is
//! decided, so that no lock is needed later and out of order. If the cell turns out not to be
//! needed, it is vacated when the locks are released.

use smallvec::SmallVec;
use tidegate_core::{ExactTime, Time};

use crate::operation::list_entry::{ListEntries, ListEntry};
use crate::store::MemoryStore;
use crate::sync::Backoff;
use crate::table::cell::{Cell, Fingerprint, Tag};
use crate::table::line::LineGuard;
use crate::table::segment::{Segment, probe_range};
use crate::table::{RoomRequest, Table};

/// Maximum attempts to make room, per key of a list.
const MAX_ATTEMPTS: usize = 16;

/// Locked lines with their numbers, in ascending order.
#[derive(Debug)]
pub(crate) struct LineLocks<'s> {
    table: &'s Table,
    locked: SmallVec<[(usize, LineGuard<'s>); 2]>,
    /// Cells reserved for new keys that have not been written yet.
    inserted: SmallVec<[SlotRef; 2]>,
}

/// Position of a key's cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotRef {
    line: usize,
    cell: usize,
    segment: Segment,
}

/// Whether keys that are not in the table are inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewKeys {
    Insert,
    Skip,
}

/// Why a key could not be found or inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FindError {
    /// The segment has changed. Release all locks and start again.
    Moved,
    /// There is no vacant cell for a new key.
    NoRoom {
        /// Whether all cells within probe distance are taken, although the segment is not full.
        probe_full: bool,
    },
}

impl<'s> LineLocks<'s> {
    pub(crate) fn new(table: &'s Table) -> Self {
        Self { table, locked: SmallVec::new(), inserted: SmallVec::new() }
    }

    /// Finds a key or reserves a cell for it. Call it for keys in the order of their home lines.
    pub(crate) fn find_or_insert(
        &mut self,
        fingerprint: Fingerprint,
        segment: Segment,
        new_keys: NewKeys,
    ) -> Result<Option<SlotRef>, FindError> {
        let home = segment.home(fingerprint);
        let first = self.lock_line(home)?;
        if !self.table.directory.is_current(fingerprint, segment) {
            return Err(FindError::Moved);
        }
        for number in home..=home + self.locked[first].1.probe_len() {
            let line = self.lock_line(number)?;
            if let Some(cell) = self.locked[line].1.find_key(fingerprint) {
                return Ok(Some(SlotRef { line, cell, segment }));
            }
        }
        match new_keys {
            NewKeys::Insert => self.insert(fingerprint, segment, first).map(Some),
            NewKeys::Skip => Ok(None),
        }
    }

    #[inline]
    pub(crate) fn cell(&self, slot: SlotRef) -> Cell {
        self.locked[slot.line].1.cell(slot.cell)
    }

    /// Returns whether the key was not in the table before.
    pub(crate) fn is_new(&self, slot: SlotRef) -> bool {
        self.inserted.contains(&slot)
    }

    pub(crate) fn set(&mut self, slot: SlotRef, cell: Cell) {
        self.inserted.retain(|inserted| *inserted != slot);
        self.locked[slot.line].1.set(slot.cell, cell);
    }

    /// Removes a key, unless it was only reserved.
    pub(crate) fn vacate(&mut self, slot: SlotRef) {
        if !self.is_new(slot) {
            self.clear(slot);
            self.table.count_removed(1);
        }
    }

    /// Reserves a cell for a key that is not in the table.
    fn insert(
        &mut self,
        fingerprint: Fingerprint,
        segment: Segment,
        first: usize,
    ) -> Result<SlotRef, FindError> {
        #[cfg(all(test, shuttle))]
        if self.table.is_forced_full() {
            return Err(FindError::NoRoom { probe_full: true });
        }
        let header = self.table.header(segment);
        if !header.has_room(segment) {
            return Err(FindError::NoRoom { probe_full: false });
        }
        let home = segment.home(fingerprint);
        for number in probe_range(segment, home) {
            let line = self.lock_line(number)?;
            if let Some(cell) = self.locked[line].1.find_vacant() {
                // Until its state is written, the cell is a full bucket.
                let full = Cell::from_bucket(Tag::bucket(fingerprint, 0), ExactTime::ZERO);
                self.locked[line].1.set(cell, full);
                self.locked[first].1.extend_probe(number - home);
                header.add_key();
                let slot = SlotRef { line, cell, segment };
                self.inserted.push(slot);
                return Ok(slot);
            }
        }
        Err(FindError::NoRoom { probe_full: true })
    }

    /// Locks a line unless it is locked already. Returns its index in `locked`.
    fn lock_line(&mut self, number: usize) -> Result<usize, FindError> {
        match self.locked.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(index) => Ok(index),
            Err(index) => {
                debug_assert_eq!(index, self.locked.len(), "lines are locked in ascending order");
                let line = self.table.arena.line(number).lock().ok_or(FindError::Moved)?;
                self.locked.push((number, line));
                Ok(self.locked.len() - 1)
            }
        }
    }

    fn clear(&mut self, slot: SlotRef) {
        self.locked[slot.line].1.set(slot.cell, Cell::default());
        self.table.header(slot.segment).remove_key();
    }
}

impl Drop for LineLocks<'_> {
    fn drop(&mut self) {
        for slot in std::mem::take(&mut self.inserted) {
            self.clear(slot);
        }
    }
}

/// Inserts a cell, replacing one of the same key. Returns whether there was room.
pub(crate) fn insert_cell(store: &MemoryStore, cell: Cell, full_at: Time) -> bool {
    let fingerprint = cell.tag().fingerprint();
    for _ in 0..MAX_ATTEMPTS {
        let segment = store.table.look_up(fingerprint).segment();
        let mut lines = LineLocks::new(&store.table);
        match lines.find_or_insert(fingerprint, segment, NewKeys::Insert) {
            Ok(Some(slot)) => {
                lines.set(slot, cell);
                store.table.header(segment).note_full_at(full_at);
                return true;
            }
            Ok(None) | Err(FindError::Moved) => {}
            Err(FindError::NoRoom { probe_full }) => {
                drop(lines);
                let request = RoomRequest { fingerprint, new_keys: 1, probe_full };
                if !store.table.make_room(request, store.clock.now(), &store.clock) {
                    return false;
                }
            }
        }
    }
    false
}

/// Locks the lines of all entries in order, and makes room for new keys.
pub(crate) fn lock_lines<'s>(
    store: &'s MemoryStore,
    entries: &mut ListEntries<'_>,
    new_keys: NewKeys,
) -> LineLocks<'s> {
    let (mut backoff, mut attempts) = (Backoff::default(), 0);
    loop {
        let mut lines = LineLocks::new(&store.table);
        match find_all(store, entries, &mut lines, new_keys) {
            Ok(()) => return lines,
            Err((_, FindError::Moved)) => {
                // Release all lines before waiting: another thread may need them to make progress.
                drop(lines);
                backoff.wait();
            }
            Err((index, FindError::NoRoom { probe_full })) => {
                drop(lines);
                let fingerprint = entries[index].fingerprint();
                let segment = entries[index].segment;
                let of_segment = |entry: &&ListEntry<'_>| entry.segment == segment;
                let count = entries.iter().filter(of_segment).count();
                let request = RoomRequest { fingerprint, new_keys: count, probe_full };
                attempts += 1;
                let made_room = attempts <= MAX_ATTEMPTS * entries.len()
                    && store.table.make_room(request, store.clock.now(), &store.clock);
                entries[index].no_slot = !made_room;
            }
        }
    }
}

fn find_all(
    store: &MemoryStore,
    entries: &mut ListEntries<'_>,
    lines: &mut LineLocks<'_>,
    new_keys: NewKeys,
) -> Result<(), (usize, FindError)> {
    let mut order: SmallVec<[(usize, usize, Segment); 2]> = SmallVec::new();
    for (index, entry) in entries.iter_mut().enumerate() {
        (entry.slot, entry.segment) = (None, None);
        // Slots are not in the table. But the limit may have been of another kind before, and a
        // reset must forget that bucket too.
        if !entry.is_concurrency() || new_keys == NewKeys::Skip {
            let segment = store.table.directory.segment(entry.fingerprint());
            order.push((segment.home(entry.fingerprint()), index, segment));
        }
    }
    order.sort_unstable_by_key(|(home, index, _)| (*home, *index));
    for (_, index, segment) in order {
        let entry = &mut entries[index];
        entry.segment = Some(segment);
        let new_keys = if entry.no_slot { NewKeys::Skip } else { new_keys };
        entry.slot = lines
            .find_or_insert(entry.fingerprint(), segment, new_keys)
            .map_err(|error| (index, error))?;
    }
    Ok(())
}
