//! The lines that one list of charges has locked, and where its keys are in them.
//!
//! LineLocks are locked in ascending order, those of a key from its home on without a gap. So lists
//! cannot wait for each other in a circle. A key that is not there gets a place at once, before
//! anything is decided: no lock has to be taken later, out of order. A place that was not needed is
//! vacated when the locks are given back.

use smallvec::SmallVec;
use tidegate_core::{Exact, Time};

use crate::operation::list_entry::{ListEntries, ListEntry};
use crate::store::MemoryStore;
use crate::sync::Backoff;
use crate::table::cell::{Cell, Fingerprint, Tag};
use crate::table::line::LineGuard;
use crate::table::segment::{Segment, probe_range};
use crate::table::{RoomRequest, Table};

/// Room is made_room so many times for each key of a list before they are taken to have none.
const MAX_ATTEMPTS: usize = 16;

/// Locked lines, by their numbers.
#[derive(Debug)]
pub(crate) struct LineLocks<'s> {
    table: &'s Table,
    locked: SmallVec<[(usize, LineGuard<'s>); 2]>,
    /// Places that were taken for new keys and have nothing in them yet.
    inserted: SmallVec<[SlotRef; 2]>,
}

/// Where the cell of a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotRef {
    line: usize,
    cell: usize,
    segment: Segment,
}

/// Whether a key that is not there gets a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewKeys {
    Insert,
    Skip,
}

/// Why a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FindError {
    /// The segment has changed meanwhile: begin again, without any lock.
    Moved,
    /// There is no place for a new key.
    NoRoom {
        /// Whether there was none within reach, although the segment is not full.
        probe_full: bool,
    },
}

impl<'s> LineLocks<'s> {
    pub(crate) fn new(table: &'s Table) -> Self {
        Self { table, locked: SmallVec::new(), inserted: SmallVec::new() }
    }

    /// Finds a key, or a place for it. Keys are sought in the order of their homes.
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

    /// Whether the key was not there before.
    pub(crate) fn is_new(&self, slot: SlotRef) -> bool {
        self.inserted.contains(&slot)
    }

    pub(crate) fn set(&mut self, slot: SlotRef, cell: Cell) {
        self.inserted.retain(|inserted| *inserted != slot);
        self.locked[slot.line].1.set(slot.cell, cell);
    }

    /// Takes a key out, unless it has never been in.
    pub(crate) fn vacate(&mut self, slot: SlotRef) {
        if !self.is_new(slot) {
            self.clear(slot);
            self.table.count_removed(1);
        }
    }

    /// Takes a place for a key that is not there.
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
                // As long as nothing else is written here it is a bucket that is full.
                let full = Cell::from_bucket(Tag::bucket(fingerprint, 0), Exact::ZERO);
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

    /// Locks a line, unless it is locked already; says where it is in the list.
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

/// Puts a cell into the table, in place of one of the same key if there is one; says whether there
/// was room.
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

/// Locks the lines of every entry, in their order, and makes room for new keys.
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
                // Not with any line locked: somebody may be waiting for it.
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
        // Slots are not in the table; but a limit of slots may have been something else before, and
        // who forgets a key forgets that too.
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
