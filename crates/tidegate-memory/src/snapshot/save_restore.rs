//! Copying the table of a store to a snapshot and back.
//!
//! Segments are saved one after another while the store continues to decide: the lines of a segment
//! are locked while its cells are copied, not while they are written. If a list is spent during the
//! save, the file may contain only part of its charges.

use std::collections::BTreeMap;
use std::io::{BufReader, Seek, Write};
use std::path::Path;
use std::sync::{Arc, PoisonError};

use tidegate_core::{Limit, Now, State, Time};

use super::error::SnapshotError;
use super::file;
use super::format::{MAX_LIMITS, Records, Writer};
use super::history::{RestoredCells, RestoredLimits, VersionMap};
use super::reader::Reader;
use super::records::{FileHeader, SavedCell, SavedHold, SavedShared};
use super::times::{time_of, to_store, to_wall, wall_of};
use super::{Restored, Saved};
use crate::builder::MemoryStoreBuilder;
use crate::operation::line_locks;
use crate::side_table::holds::{Hold, RESTORED};
use crate::store::MemoryStore;
use crate::table::cell::{Cell, Fingerprint, Tag};
use crate::table::fresh_at;

impl MemoryStore {
    /// Saves usage to a file, replacing it, so that [`restore`](MemoryStoreBuilder::restore) can
    /// continue from there. `limits` are the named limits in use: usage under a name that the file
    /// does not contain counts as an empty bucket after the restart. Leases of concurrency limits
    /// are not saved.
    ///
    /// The file is replaced atomically: it is written under a temporary name, synced and renamed.
    /// Decisions are not blocked, but this call takes as long as the disk needs. The file contains
    /// the secret of the hash and is readable only by its owner. Only one process may save to a
    /// path.
    ///
    /// ```
    /// use tidegate::{MemoryStore, Policy};
    /// use tidegate_core::Limit;
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("buckets");
    /// let limit = Limit::named("daily", Policy::per_minute(1).capacity(2).build()?)?;
    /// let store = MemoryStore::new();
    /// assert!(store.take_one(&limit, "alice".into(), 2).is_allowed());
    /// assert_eq!(store.save(&path, std::slice::from_ref(&limit))?.keys, 1);
    ///
    /// // The next process.
    /// let (store, restored) = MemoryStore::builder().restore(&path)?;
    /// assert_eq!(restored.keys, 1);
    /// assert!(!store.take_one(&limit, "alice".into(), 1).is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be written. The previous file is still in place then, unless only syncing
    /// the directory failed; then the new one is.
    pub fn save(&self, path: impl AsRef<Path>, limits: &[Limit]) -> Result<Saved, SnapshotError> {
        file::replace(path.as_ref(), |file| self.write_snapshot(file, limits))
    }

    fn write_snapshot(&self, to: impl Write, limits: &[Limit]) -> Result<Saved, SnapshotError> {
        let at = Now { time: self.clock.now(), wall: self.clock.wall() };
        let mut writer = Writer::new(to, FileHeader { wall: at.wall, seed: self.hasher.seed() })?;
        let mut context = SaveContext {
            restored_limits: &self.restored,
            at,
            restored_cells: RestoredCells::Gone,
        };
        // Holds first: one that ends meanwhile becomes part of its bucket.
        let holds = self.side_table.all_holds();
        self.table.for_each_segment_cells(|cells| {
            cells.iter().try_for_each(|cell| match context.state(cell) {
                Some((state, version)) => {
                    let fingerprint = cell.tag().fingerprint().bits();
                    writer.cell(&SavedCell { fingerprint, state, version })
                }
                None => Ok(()),
            })
        })?;
        for (hash, hold) in holds {
            if let Some(hold) = context.hold(hash, hold) {
                writer.hold(&hold)?;
            }
        }
        let shared: Vec<Arc<str>> = self.shared.lock().limits().collect();
        for identity in shared {
            let cells = self.shared.lock().cells(&identity);
            let buckets: Vec<_> = (0..)
                .zip(cells)
                .filter_map(|(bucket, cell)| {
                    let (state, version) = context.state(&cell)?;
                    Some(SavedShared { bucket, state, version })
                })
                .collect();
            writer.shared(&identity, &buckets)?;
        }
        // Limits last: every generation found above is known by now, since a thread that writes
        // under a revised limit records the limit.
        let newest = self.newest_limits(limits);
        let max = usize::try_from(MAX_LIMITS).unwrap_or(usize::MAX);
        for (identity, history) in
            self.restored.extended(&newest, context.restored_cells).iter().take(max)
        {
            writer.limit(identity, history)?;
        }
        let (totals, bytes) = writer.finish()?;
        Ok(Saved { keys: totals.cells, bytes })
    }

    /// Returns the newest known revision of each named limit.
    fn newest_limits(&self, limits: &[Limit]) -> BTreeMap<Arc<str>, Limit> {
        let mut known = self.newest.read().unwrap_or_else(PoisonError::into_inner).clone();
        for limit in limits.iter().filter(|limit| !limit.is_inline()) {
            let entry = known.entry(limit.shared_identity()).or_insert_with(|| limit.clone());
            if limit.generation() > entry.generation() {
                *entry = limit.clone();
            }
        }
        known
    }
}

/// How states are saved, and whether any of them was restored.
struct SaveContext<'s> {
    restored_limits: &'s RestoredLimits,
    at: Now,
    restored_cells: RestoredCells,
}

impl SaveContext<'_> {
    /// Returns the state to save and its policy version; `None` if the cell is not saved.
    fn state(&mut self, cell: &Cell) -> Option<(State, u32)> {
        let (state, tag) = (cell.state(), cell.tag());
        if state.is_fresh(self.at) {
            return None;
        }
        let version = match tag.restored_version() {
            Some(version) => self.restored_version(version),
            // If the limit has been revised more often than fits, this version is older than all
            // that are kept: an empty bucket.
            None => self.restored_limits.version_of(tag.generation_bits()),
        };
        Some((to_wall(state, self.at), version))
    }

    fn hold(&mut self, hash: u64, hold: Hold) -> Option<SavedHold> {
        let Hold { until, lapses, generation } = hold;
        (lapses > self.at.time).then(|| SavedHold {
            hash,
            until: wall_of(until, self.at),
            lapses: wall_of(lapses, self.at),
            version: self.version_of(generation),
        })
    }

    fn version_of(&mut self, generation: u32) -> u32 {
        if generation & RESTORED == 0 {
            return self.restored_limits.version_of(generation);
        }
        self.restored_version(generation & !RESTORED)
    }

    /// Keeps the version assigned by an earlier process.
    fn restored_version(&mut self, version: u32) -> u32 {
        self.restored_cells = RestoredCells::Remain;
        version
    }
}

impl MemoryStoreBuilder {
    /// Builds a store from a file written by [`save`](MemoryStore::save). The time since then
    /// counts as refill. If the wall clock was set back meanwhile, no time has passed.
    ///
    /// If a limit has another policy now, tokens are kept, as if it had been changed while the
    /// program ran. Entries that do not fit into a smaller store are counted and start fresh.
    ///
    /// # Errors
    /// If the file does not exist, cannot be read, is damaged, or has a format or a hash function
    /// unknown to this version; or if [`build`](Self::build) fails.
    pub fn restore(self, path: impl AsRef<Path>) -> Result<(MemoryStore, Restored), SnapshotError> {
        let mut file = file::open(path.as_ref())?;
        // Verify the whole file before using any of it.
        let mut reader = Reader::new(BufReader::new(&file))?;
        let mut limits = Vec::new();
        while let Some(records) = reader.next()? {
            if let Records::Limits(more) = records {
                limits.extend(more);
            }
        }
        file.rewind()?;
        let mut reader = Reader::new(BufReader::new(&file))?;
        let header = reader.header();
        let mut store = self.build_with_seed(header.seed)?;
        let (restored_limits, versions) = RestoredLimits::new(&limits, Tag::MAX_VERSION);
        store.restored = restored_limits;
        let now = Now { time: store.clock.now(), wall: store.clock.wall() };
        let since = Now { wall: now.wall.max(header.wall), ..now };
        let (shared_debt_until, done) = (Time::ZERO, Restored::default());
        let mut restorer =
            Restorer { store: &store, versions, now, since, shared_debt_until, done };
        while let Some(records) = reader.next()? {
            restorer.restore(records);
        }
        let restored = restorer.finish();
        Ok((store, restored))
    }
}

/// A store that is being restored.
struct Restorer<'s> {
    store: &'s MemoryStore,
    versions: VersionMap,
    now: Now,
    /// `now`, but by the wall clock not before the snapshot.
    since: Now,
    /// Until then any key may have debt on a shared bucket.
    shared_debt_until: Time,
    done: Restored,
}

/// What happened to a record.
#[derive(Clone, Copy)]
enum RestoreOutcome {
    Kept,
    Full,
    NoRoom,
}

impl Restorer<'_> {
    fn restore(&mut self, records: Records) {
        match records {
            Records::Cells(cells) => cells.iter().for_each(|cell| {
                let outcome = self.cell(cell);
                self.count(outcome);
            }),
            Records::Holds(holds) => holds.iter().for_each(|hold| {
                let outcome = self.hold(hold);
                self.count(outcome);
            }),
            Records::Shared(identity, buckets) => buckets.iter().for_each(|bucket| {
                let outcome = self.shared(&identity, bucket);
                self.count(outcome);
            }),
            // Read in the first pass.
            Records::Limits(_) => {}
        }
    }

    fn cell(&self, saved: &SavedCell) -> RestoreOutcome {
        let Some(state) = self.state(saved.state) else { return RestoreOutcome::Full };
        let fingerprint = Fingerprint::from_bits(saved.fingerprint);
        let Some(cell) = Cell::new(fingerprint, state, self.versions.get(saved.version)) else {
            return RestoreOutcome::Full;
        };
        let full_at = fresh_at(state, self.now.time, || self.now.wall);
        if line_locks::insert_cell(self.store, cell.restored(), full_at) {
            RestoreOutcome::Kept
        } else {
            RestoreOutcome::NoRoom
        }
    }

    fn hold(&self, saved: &SavedHold) -> RestoreOutcome {
        let (until, lapses) = (time_of(saved.until, self.since), time_of(saved.lapses, self.since));
        if lapses <= self.now.time {
            return RestoreOutcome::Full;
        }
        let generation = self.versions.get(saved.version) | RESTORED;
        let kept = self.store.side_table.restore(saved.hash, Hold { until, lapses, generation });
        if kept { RestoreOutcome::Kept } else { RestoreOutcome::NoRoom }
    }

    fn shared(&mut self, identity: &str, saved: &SavedShared) -> RestoreOutcome {
        let Some(state) = self.state(saved.state) else { return RestoreOutcome::Full };
        let version = self.versions.get(saved.version);
        if !self.store.shared.lock().restore(identity, saved.bucket, state, version) {
            return RestoreOutcome::NoRoom;
        }
        let fresh_at = fresh_at(state, self.now.time, || self.now.wall);
        self.shared_debt_until = self.shared_debt_until.max(fresh_at);
        RestoreOutcome::Kept
    }

    /// Returns the state in the store's time; `None` if it has become full.
    fn state(&self, state: State) -> Option<State> {
        let state = to_store(state, self.since);
        (!state.is_fresh(self.now)).then_some(state)
    }

    fn count(&mut self, outcome: RestoreOutcome) {
        let Restored { keys, full, no_room } = &mut self.done;
        *match outcome {
            RestoreOutcome::Kept => keys,
            RestoreOutcome::Full => full,
            RestoreOutcome::NoRoom => no_room,
        } += 1;
    }

    /// Notes that any key may have debt on a shared bucket, and returns the totals.
    fn finish(self) -> Restored {
        self.store.table.note_shared_debt(self.shared_debt_until);
        self.done
    }
}
