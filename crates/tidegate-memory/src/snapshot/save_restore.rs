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
use super::format::{MAX_LIMITS, Part, Writer};
use super::history::{Lineage, Numbers, Rest};
use super::part::{Head, SavedCell, SavedHold, SavedShared};
use super::reader::Reader;
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
        let mut writer = Writer::new(to, Head { wall: at.wall, seed: self.hasher.seed() })?;
        let mut saving = Saving { lineage: &self.restored, at, rest: Rest::Nothing };
        // The holds first: one that passes meanwhile becomes part of its bucket.
        let holds = self.side_table.all_holds();
        self.table.each_segment(|cells| {
            cells.iter().try_for_each(|cell| match saving.state(cell) {
                Some((state, generation)) => {
                    let fingerprint = cell.tag().fingerprint().bits();
                    writer.cell(&SavedCell { fingerprint, state, generation })
                }
                None => Ok(()),
            })
        })?;
        for (hash, hold) in holds {
            if let Some(hold) = saving.hold(hash, hold) {
                writer.hold(&hold)?;
            }
        }
        let shared: Vec<Arc<str>> = self.shared.lock().limits().collect();
        for identity in shared {
            let cells = self.shared.lock().each(&identity);
            let buckets: Vec<_> = (0..)
                .zip(cells)
                .filter_map(|(bucket, cell)| {
                    let (state, generation) = saving.state(&cell)?;
                    Some(SavedShared { bucket, state, generation })
                })
                .collect();
            writer.shared(&identity, &buckets)?;
        }
        // The limits last: each generation that was met above is known by now, since who writes
        // under a revised limit makes it known.
        let known = self.known(limits);
        let most = usize::try_from(MAX_LIMITS).unwrap_or(usize::MAX);
        for (identity, history) in self.restored.continued(&known, saving.rest).iter().take(most) {
            writer.limit(identity, history)?;
        }
        let (totals, bytes) = writer.finish()?;
        Ok(Saved { keys: totals.cells, bytes })
    }

    /// The newest that is known of each named limit.
    fn known(&self, limits: &[Limit]) -> BTreeMap<Arc<str>, Limit> {
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
struct Saving<'s> {
    lineage: &'s Lineage,
    at: Now,
    rest: Rest,
}

impl Saving<'_> {
    /// A state as it is written, and its number, if it is to be.
    fn state(&mut self, cell: &Cell) -> Option<(State, u32)> {
        let (state, tag) = (cell.state(), cell.tag());
        if state.is_fresh(self.at) {
            return None;
        }
        let number = match tag.restored_number() {
            Some(number) => self.old(number),
            // Of a limit that was revised more often than fits, this is a number from before all
            // that is remembered: an empty bucket.
            None => self.lineage.number(tag.kept_generation()),
        };
        Some((to_wall(state, self.at), number))
    }

    fn hold(&mut self, hash: u64, hold: Hold) -> Option<SavedHold> {
        let Hold { until, lapses, generation } = hold;
        (lapses > self.at.time).then(|| SavedHold {
            hash,
            until: wall_of(until, self.at),
            lapses: wall_of(lapses, self.at),
            generation: self.number(generation),
        })
    }

    fn number(&mut self, generation: u32) -> u32 {
        if generation & RESTORED == 0 {
            return self.lineage.number(generation);
        }
        self.old(generation & !RESTORED)
    }

    /// A number of an earlier process stays what it is.
    fn old(&mut self, number: u32) -> u32 {
        self.rest = Rest::Some;
        number
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
        while let Some(part) = reader.next()? {
            if let Part::Limits(more) = part {
                limits.extend(more);
            }
        }
        file.rewind()?;
        let mut reader = Reader::new(BufReader::new(&file))?;
        let head = reader.head();
        let mut store = self.build_with(head.seed)?;
        let (lineage, numbers) = Lineage::new(&limits, Tag::MAX_NUMBER);
        store.restored = lineage;
        let now = Now { time: store.clock.now(), wall: store.clock.wall() };
        let since = Now { wall: now.wall.max(head.wall), ..now };
        let (owing_until, done) = (Time::ZERO, Restored::default());
        let mut restoring = Restoring { store: &store, numbers, now, since, owing_until, done };
        while let Some(part) = reader.next()? {
            restoring.part(part);
        }
        let restored = restoring.finish();
        Ok((store, restored))
    }
}

/// A store that is being filled.
struct Restoring<'s> {
    store: &'s MemoryStore,
    numbers: Numbers,
    now: Now,
    /// The same moment, but not before the snapshot by the wall clock.
    since: Now,
    /// Until then somebody may owe to a shared bucket.
    owing_until: Time,
    done: Restored,
}

/// What becomes of a record.
#[derive(Clone, Copy)]
enum Fate {
    Kept,
    Full,
    NoRoom,
}

impl Restoring<'_> {
    fn part(&mut self, part: Part) {
        match part {
            Part::Cells(cells) => cells.iter().for_each(|cell| {
                let fate = self.cell(cell);
                self.count(fate);
            }),
            Part::Holds(holds) => holds.iter().for_each(|hold| {
                let fate = self.hold(hold);
                self.count(fate);
            }),
            Part::Shared(identity, buckets) => buckets.iter().for_each(|bucket| {
                let fate = self.shared(&identity, bucket);
                self.count(fate);
            }),
            // These were read before.
            Part::Limits(_) => {}
        }
    }

    fn cell(&self, saved: &SavedCell) -> Fate {
        let Some(state) = self.state(saved.state) else { return Fate::Full };
        let fingerprint = Fingerprint::from_bits(saved.fingerprint);
        let Some(cell) = Cell::new(fingerprint, state, self.numbers.of(saved.generation)) else {
            return Fate::Full;
        };
        let full_at = fresh_at(state, self.now.time, || self.now.wall);
        if line_locks::put(self.store, cell.restored(), full_at) {
            Fate::Kept
        } else {
            Fate::NoRoom
        }
    }

    fn hold(&self, saved: &SavedHold) -> Fate {
        let (until, lapses) = (time_of(saved.until, self.since), time_of(saved.lapses, self.since));
        if lapses <= self.now.time {
            return Fate::Full;
        }
        let generation = self.numbers.of(saved.generation) | RESTORED;
        let kept = self.store.side_table.restore(saved.hash, Hold { until, lapses, generation });
        if kept { Fate::Kept } else { Fate::NoRoom }
    }

    fn shared(&mut self, identity: &str, saved: &SavedShared) -> Fate {
        let Some(state) = self.state(saved.state) else { return Fate::Full };
        let number = self.numbers.of(saved.generation);
        if !self.store.shared.lock().restore(identity, saved.bucket, state, number) {
            return Fate::NoRoom;
        }
        let fresh_at = fresh_at(state, self.now.time, || self.now.wall);
        self.owing_until = self.owing_until.max(fresh_at);
        Fate::Kept
    }

    /// A state as the store keeps it; `None` if it has become full.
    fn state(&self, state: State) -> Option<State> {
        let state = to_store(state, self.since);
        (!state.is_fresh(self.now)).then_some(state)
    }

    fn count(&mut self, fate: Fate) {
        let Restored { keys, full, no_room } = &mut self.done;
        *match fate {
            Fate::Kept => keys,
            Fate::Full => full,
            Fate::NoRoom => no_room,
        } += 1;
    }

    /// Any key may owe to a shared bucket.
    fn finish(self) -> Restored {
        self.store.table.note_owing(self.owing_until);
        self.done
    }
}
