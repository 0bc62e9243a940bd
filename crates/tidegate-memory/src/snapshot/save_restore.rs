//! Between a snapshot and the table of a store.
//!
//! A store is written one segment after the other, each as it is at its moment, and goes on deciding
//! meanwhile: the lines of a segment are held while its keys are copied, not while they are written.
//! Of a list that is spent just then the file may hold a part.

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
    /// Writes what was spent to a file, in place of what was there, so that
    /// [`restore`](MemoryStoreBuilder::restore) can go on with it. `limits` are the named limits in
    /// use: what was spent under a name that the file does not know is an empty bucket after the
    /// restart. Leases of concurrency limits are not written.
    ///
    /// The file is whole at every moment: it is written beside, brought to the disk and renamed.
    /// Nobody waits for it, but the call itself takes as long as the disk does. It holds the secret
    /// of the hash, and is readable by its owner alone. One process writes to a path.
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
    /// When the file cannot be written. The one of before is still there then, unless only the folder
    /// could not be brought to the disk; then the new one is.
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
        // The holds first: one that passes meanwhile becomes part of its bucket.
        let holds = self.side_table.all_holds();
        self.table.for_each_segment_cells(|cells| {
            cells.iter().try_for_each(|cell| match context.state(cell) {
                Some((state, generation)) => {
                    let fingerprint = cell.tag().fingerprint().bits();
                    writer.cell(&SavedCell { fingerprint, state, generation })
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
                    let (state, generation) = context.state(&cell)?;
                    Some(SavedShared { bucket, state, generation })
                })
                .collect();
            writer.shared(&identity, &buckets)?;
        }
        // The limits last: each generation that was met above is known by now, since who writes
        // under a revised limit makes it known.
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

    /// The newest that is known of each named limit.
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

/// How states are written, and what was seen of them.
struct SaveContext<'s> {
    restored_limits: &'s RestoredLimits,
    at: Now,
    restored_cells: RestoredCells,
}

impl SaveContext<'_> {
    /// A state as it is written, and its number, if it is to be.
    fn state(&mut self, cell: &Cell) -> Option<(State, u32)> {
        let (state, tag) = (cell.state(), cell.tag());
        if state.is_fresh(self.at) {
            return None;
        }
        let version = match tag.restored_version() {
            Some(version) => self.restored_version(version),
            // Of a limit that was revised more often than fits, this is a number from before all
            // that is remembered: an empty bucket.
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
            generation: self.version_of(generation),
        })
    }

    fn version_of(&mut self, generation: u32) -> u32 {
        if generation & RESTORED == 0 {
            return self.restored_limits.version_of(generation);
        }
        self.restored_version(generation & !RESTORED)
    }

    /// A number of an earlier process stays what it is.
    fn restored_version(&mut self, version: u32) -> u32 {
        self.restored_cells = RestoredCells::Remain;
        version
    }
}

impl MemoryStoreBuilder {
    /// The store, with what [`save`](MemoryStore::save) wrote to a file. The time that has passed
    /// since counts as refill; if the wall clock went back meanwhile, none has passed.
    ///
    /// A limit may have another policy now: tokens stay then, as if it had been changed while the
    /// program ran. What does not fit into a smaller store is counted, and starts anew.
    ///
    /// # Errors
    /// When there is no such file, it cannot be read, is damaged, or is of a format or a hash
    /// function that this version does not know; or when [`build`](Self::build) fails.
    pub fn restore(self, path: impl AsRef<Path>) -> Result<(MemoryStore, Restored), SnapshotError> {
        let mut file = file::open(path.as_ref())?;
        // The whole file is checked before any of it is used.
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

/// A store that is being filled.
struct Restorer<'s> {
    store: &'s MemoryStore,
    versions: VersionMap,
    now: Now,
    /// The same moment, but not before the snapshot by the wall clock.
    since: Now,
    /// Until then somebody may owe to a shared bucket.
    shared_debt_until: Time,
    done: Restored,
}

/// What becomes of a record.
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
            // These were read before.
            Records::Limits(_) => {}
        }
    }

    fn cell(&self, saved: &SavedCell) -> RestoreOutcome {
        let Some(state) = self.state(saved.state) else { return RestoreOutcome::Full };
        let fingerprint = Fingerprint::from_bits(saved.fingerprint);
        let Some(cell) = Cell::new(fingerprint, state, self.versions.get(saved.generation)) else {
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
        let generation = self.versions.get(saved.generation) | RESTORED;
        let kept = self.store.side_table.restore(saved.hash, Hold { until, lapses, generation });
        if kept { RestoreOutcome::Kept } else { RestoreOutcome::NoRoom }
    }

    fn shared(&mut self, identity: &str, saved: &SavedShared) -> RestoreOutcome {
        let Some(state) = self.state(saved.state) else { return RestoreOutcome::Full };
        let version = self.versions.get(saved.generation);
        if !self.store.shared.lock().restore(identity, saved.bucket, state, version) {
            return RestoreOutcome::NoRoom;
        }
        let fresh_at = fresh_at(state, self.now.time, || self.now.wall);
        self.shared_debt_until = self.shared_debt_until.max(fresh_at);
        RestoreOutcome::Kept
    }

    /// A state as the store keeps it; `None` if it has become full.
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

    /// Any key may owe to a shared bucket.
    fn finish(self) -> Restored {
        self.store.table.note_shared_debt(self.shared_debt_until);
        self.done
    }
}
