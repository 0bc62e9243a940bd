//! One shard: a part of the table, with the holds and leases of its keys, under one lock.
//!
//! Growth and eviction happen here, on the request path and nowhere else. Before a table grows,
//! what is full again is swept out; at its largest size that is the only way to make room.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Exact, Now, State, Time, WallTime};

use crate::clock::Source;
use crate::leases::{LeaseBudget, Leases};
use crate::table::{Slot, Table};

/// The smallest table of a shard that has any key.
const FIRST_SLOTS: usize = 16;
/// A full shard whose sweep freed little is not swept again before this has passed, so that a
/// flood of new keys cannot buy a sweep with every request.
const SWEEP_PAUSE: Duration = Duration::from_millis(1);
/// The longest hint to a key for which there is no room.
const MAX_HINT: Duration = Duration::from_secs(60);
/// The end of time: nothing to wait for.
const NEVER: Time = Time::from_nanos(u64::MAX);

/// A key that is closed.
#[derive(Clone, Copy, Debug)]
struct Hold {
    until: Time,
    /// When the bucket would be full again: the hold has no effect any more.
    lapses: Time,
    /// The policy under which the key was closed.
    generation: u32,
}

/// What happened in a shard since it was made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) inserted: u64,
    pub(crate) evicted: u64,
    pub(crate) overflowed: u64,
    pub(crate) saturated: u64,
}

/// One part of the store.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) table: Table,
    pub(crate) leases: Leases,
    pub(crate) counts: Counts,
    holds: BTreeMap<u64, Hold>,
    /// No slot becomes full before this.
    earliest: Time,
    /// No sweep of a full shard before this.
    sweep_after: Time,
    /// Until then a key of this shard may owe something to a shared bucket.
    owing_until: Time,
    #[cfg(all(test, shuttle))]
    full_by_force: bool,
}

impl Shard {
    /// Bytes that one hold takes in its map.
    pub(crate) const HOLD_BYTES: usize = 80;

    pub(crate) fn new(budget: Arc<LeaseBudget>) -> Self {
        Self {
            table: Table::default(),
            leases: Leases::new(budget),
            counts: Counts::default(),
            holds: BTreeMap::new(),
            earliest: Time::ZERO,
            sweep_after: Time::ZERO,
            owing_until: Time::ZERO,
            #[cfg(all(test, shuttle))]
            full_by_force: false,
        }
    }

    /// The place and the arrival time of a token bucket that is in the table under this
    /// generation, in a shard without holds.
    #[inline]
    pub(crate) fn find_plain(&self, hash: u64, generation: u32) -> Option<(usize, Exact)> {
        if !self.holds.is_empty() {
            return None;
        }
        self.table.bucket(hash, generation)
    }

    /// Writes the arrival time of a token bucket at its place, which is not full.
    #[inline]
    pub(crate) fn write_plain(&mut self, place: usize, tat: Exact) {
        self.earliest = self.earliest.min(Time::from_nanos(tat.ns));
        self.table.set_bucket(place, tat);
    }

    /// Until when a key is held, and under which generation.
    #[inline]
    pub(crate) fn held(&self, hash: u64) -> Option<(Time, u32)> {
        if self.holds.is_empty() {
            return None;
        }
        self.holds.get(&hash).map(|hold| (hold.until, hold.generation))
    }

    /// Holds a key until `until`, and not shorter than it is held already. `refill` is the time
    /// it then takes to fill. `None` if there are `most` already.
    pub(crate) fn hold(
        &mut self,
        hash: u64,
        hold: (Time, Duration, u32),
        most: usize,
        now: Time,
    ) -> Option<Time> {
        let (until, refill, generation) = hold;
        if self.holds.len() >= most {
            self.holds.retain(|_, hold| hold.lapses > now);
        }
        if self.holds.len() >= most && !self.holds.contains_key(&hash) {
            return None;
        }
        let new = Hold { until, lapses: Time::ZERO, generation };
        let hold = self.holds.entry(hash).or_insert(new);
        hold.until = hold.until.max(until);
        hold.lapses = hold.until.after(refill);
        hold.generation = generation;
        Some(hold.until)
    }

    /// Forgets the hold of a key, which has become part of its state.
    pub(crate) fn drop_hold(&mut self, hash: u64) {
        self.holds.remove(&hash);
    }

    pub(crate) fn holds(&self) -> usize {
        self.holds.len()
    }

    /// Makes sure that `more` new keys fit into at most `max_slots` slots.
    pub(crate) fn make_room(
        &mut self,
        more: usize,
        max_slots: usize,
        now: Time,
        clock: &Source,
    ) -> bool {
        #[cfg(all(test, shuttle))]
        if self.full_by_force {
            return false;
        }
        let fits = |table: &Table| table.len() + more <= Table::load(table.slots());
        if fits(&self.table) {
            return true;
        }
        let full_size = self.table.slots() >= max_slots;
        // The second test lets a clock that stepped back sweep again.
        let paused = now < self.sweep_after && self.sweep_after <= now.after(SWEEP_PAUSE);
        if full_size && (now < self.earliest || paused) {
            return false;
        }
        let load = Table::load(self.table.slots());
        let freed = self.sweep(Duration::ZERO, now, clock);
        if full_size {
            let little = freed * 16 < load;
            self.sweep_after = if little { now.after(SWEEP_PAUSE) } else { now };
            return fits(&self.table);
        }
        // Unless a quarter of the table is free now, the next sweep would come too soon.
        while self.table.slots() < max_slots
            && (self.table.len() + more) * 4 > Table::load(self.table.slots()) * 3
        {
            self.table.resize((self.table.slots() * 2).clamp(FIRST_SLOTS, max_slots));
        }
        fits(&self.table)
    }

    /// Notes that a key of this shard was charged on a shared bucket, which is now in `state`.
    pub(crate) fn note_shared(&mut self, state: State, now: Now) {
        let fresh_at = fresh_at(state, now.time, || now.wall);
        self.owing_until = self.owing_until.max(fresh_at);
    }

    /// Whether a key of this shard may owe something to a shared bucket.
    #[inline]
    pub(crate) fn may_owe(&self, now: Time) -> bool {
        now < self.owing_until
    }

    /// From now on there is no room: as if the table were full of keys in debt.
    #[cfg(all(test, shuttle))]
    pub(crate) fn pretend_full(&mut self) {
        self.full_by_force = true;
    }

    /// How long until a slot of this shard may become free. Others may want it too, and a debt
    /// may be forgiven: an estimate, and not more than a minute.
    pub(crate) fn room_in(&self, now: Time) -> Duration {
        self.earliest.max(self.sweep_after).since(now).clamp(SWEEP_PAUSE, MAX_HINT)
    }

    /// Evicts what has been full for `idle` and remembers when the next one will be.
    fn sweep(&mut self, idle: Duration, now: Time, clock: &Source) -> usize {
        let mut wall = None;
        let mut earliest = NEVER;
        let freed = self.table.sweep(|slot| {
            let fresh_at =
                fresh_at(slot.state(), now, || *wall.get_or_insert_with(|| clock.wall()));
            let stale = fresh_at < NEVER && fresh_at.after(idle) <= now;
            if !stale {
                earliest = earliest.min(fresh_at);
            }
            stale
        });
        self.earliest = earliest;
        self.counts.evicted += freed as u64;
        freed
    }

    /// Writes the state of a key. The caller has made room for it if it is new.
    #[inline]
    pub(crate) fn write(&mut self, hash: u64, state: State, generation: u32, now: Now) {
        if state.is_fresh(now) {
            self.table.remove(hash);
            return;
        }
        self.earliest = self.earliest.min(match state {
            State::Bucket(Exact { ns, .. }) => Time::from_nanos(ns),
            State::Allowance { .. } => NEVER,
            // The end of a calendar window is in wall time: let the next sweep find out.
            _ => now.time,
        });
        if let Some(slot) = Slot::new(hash, state, generation) {
            let before = self.table.len();
            self.table.put(slot);
            self.counts.inserted += (self.table.len() - before) as u64;
        }
    }

    /// Forgets everything but the counts.
    pub(crate) fn clear(&mut self) {
        self.leases.clear();
        let (counts, budget) = (self.counts, self.leases.budget());
        *self = Self { counts, ..Self::new(budget) };
    }

    /// Forgets a key; says whether there was anything to forget.
    pub(crate) fn forget(&mut self, hash: u64) -> bool {
        let slot = self.table.remove(hash);
        let hold = self.holds.remove(&hash).is_some();
        let lease = self.leases.forget(hash);
        slot | hold | lease
    }

    /// Removes what has been full for `idle` and gives memory back.
    pub(crate) fn clean(&mut self, idle: Duration, now: Time, clock: &Source) -> usize {
        let freed = self.sweep(idle, now, clock);
        self.holds.retain(|_, hold| hold.lapses.after(idle) > now);
        self.leases.expire_all(now);
        let mut slots = if self.table.len() == 0 { 0 } else { FIRST_SLOTS };
        while Table::load(slots) < self.table.len() {
            slots *= 2;
        }
        if slots < self.table.slots() {
            self.table.resize(slots);
        }
        freed
    }
}

/// When a state is the same as no entry.
fn fresh_at(state: State, now: Time, wall: impl FnOnce() -> WallTime) -> Time {
    match state {
        State::Bucket(tat) => Time::from_nanos(tat.ceil()),
        State::Quota { ends, used } if used > 0 => in_store_time(ends, now, wall()),
        State::Allowance { used } if used > 0 => NEVER,
        _ => Time::ZERO,
    }
}

/// The instant of the store's clock at which a calendar window ends.
fn in_store_time(ends: u32, now: Time, wall: WallTime) -> Time {
    let ends = WallTime::from_secs(ends);
    if ends <= wall {
        let ago = u64::try_from(wall.since(ends).as_nanos()).unwrap_or(u64::MAX);
        Time::from_nanos(now.as_nanos().saturating_sub(ago))
    } else {
        now.after(ends.since(wall))
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    const MAX_SLOTS: usize = 64;
    const MAX_KEYS: usize = Table::load(MAX_SLOTS);

    fn shard_full_until(secs: u64) -> (Shard, Source) {
        let (mut shard, clock) = (shard(), Source::System(SystemClock::new()));
        for hash in 1..=MAX_KEYS as u64 {
            assert!(shard.make_room(1, MAX_SLOTS, Time::ZERO, &clock));
            shard.write(hash, State::Bucket(tat(secs)), 0, Now::default());
        }
        (shard, clock)
    }

    fn shard() -> Shard {
        Shard::new(Arc::new(LeaseBudget::new(1)))
    }

    fn tat(secs: u64) -> Exact {
        Exact::whole(secs * 1_000_000_000)
    }

    fn at(secs: u64) -> Time {
        Time::from_nanos(secs * 1_000_000_000)
    }

    #[test]
    fn indebted_keys_are_kept_and_full_ones_make_room() {
        let (mut shard, clock) = shard_full_until(10);
        assert!(!shard.make_room(1, MAX_SLOTS, at(9), &clock));
        assert_eq!(shard.table.len(), MAX_KEYS);
        assert!(shard.room_in(at(9)) <= Duration::from_secs(1));
        assert!(shard.make_room(1, MAX_SLOTS, at(10), &clock));
        assert_eq!(shard.table.len(), 0);
    }

    #[test]
    fn a_refund_is_noticed_by_the_next_sweep() {
        let (mut shard, clock) = shard_full_until(1_000);
        assert!(!shard.make_room(1, MAX_SLOTS, at(9), &clock));
        shard.write(5, State::Bucket(tat(20)), 0, Now::at(at(10)));
        assert!(!shard.make_room(1, MAX_SLOTS, at(19), &clock));
        assert!(shard.make_room(1, MAX_SLOTS, at(20), &clock));
        assert_eq!(shard.table.len(), MAX_KEYS - 1);
    }

    #[test]
    fn a_clock_that_stepped_back_does_not_stop_the_sweeps() {
        let (mut shard, clock) = shard_full_until(10);
        shard.sweep_after = at(1_000_000);
        assert!(shard.make_room(1, MAX_SLOTS, at(11), &clock));
    }

    #[test]
    fn cleaning_gives_memory_back() {
        let (mut shard, clock) = shard_full_until(10);
        let kept = 7;
        shard.write(kept, State::Bucket(tat(60)), 0, Now::default());
        assert_eq!(shard.clean(Duration::from_secs(5), at(14), &clock), 0);
        assert_eq!(shard.clean(Duration::from_secs(5), at(15), &clock), MAX_KEYS - 1);
        assert_eq!((shard.table.len(), shard.table.slots()), (1, FIRST_SLOTS));
        assert!(shard.table.get(kept).is_some());
    }
}
