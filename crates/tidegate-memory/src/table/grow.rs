//! Making room for new keys: sweeping out full buckets, growing and splitting segments.
//!
//! This happens on the request path only. Before a segment grows, buckets that are full again are
//! swept out; at the maximum size that is the only way to make room. A segment has at most a few
//! thousand keys, so this takes a few tens of microseconds and delays only requests for the same
//! segment.

use std::time::Duration;

use tidegate_core::{State, Time, WallTime};

use super::{NEVER, Table};
use crate::clock::ClockSource;
use crate::table::cell::{Cell, Fingerprint};
use crate::table::segment::{LockedSegment, Prefix, Segment, SegmentTimes};

/// Minimum time between sweeps of a full segment when the last one freed little, so that a flood of
/// new keys cannot cause a sweep with every request.
const SWEEP_PAUSE: Duration = Duration::from_millis(1);
/// Maximum retry hint for a key for which there is no room.
const MAX_HINT: Duration = Duration::from_secs(60);

/// A request to make room for new keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoomRequest {
    pub(crate) fingerprint: Fingerprint,
    /// Number of keys to insert into the segment.
    pub(crate) new_keys: usize,
    /// Whether all cells within probe distance are taken, whatever the number of keys.
    pub(crate) probe_full: bool,
}

impl Table {
    /// Makes room in the segment of a key. Returns `false` if that is impossible; otherwise look
    /// the key up again.
    pub(crate) fn make_room(&self, request: RoomRequest, now: Time, clock: &ClockSource) -> bool {
        #[cfg(all(test, shuttle))]
        if self.is_forced_full() {
            return false;
        }
        let RoomRequest { fingerprint, new_keys, probe_full } = request;
        let segment = self.directory.stable_segment(fingerprint);
        if self.is_max_size(segment) && self.is_sweep_useless(self.header(segment).times(), now) {
            return false;
        }
        let mut locked = self.lock_segment(fingerprint);
        if locked.segment() != segment {
            // Another thread has changed the segment.
            return true;
        }
        let Some((homes, prefix)) = locked.header().shape() else { return true };
        let max_size = self.is_max_size(segment);
        let load = Segment::max_keys(homes);
        let (cells, freed) = self.sweep(&locked, Duration::ZERO, now, clock);
        // If less than a quarter is free, the next sweep would follow too soon.
        let has_free_quarter =
            (cells.len() + new_keys) * 4 <= load * 3 && !(probe_full && freed == 0);
        if max_size || has_free_quarter {
            if freed > 0 {
                locked.rebuild(&cells, (homes, homes, homes), prefix);
            }
            if max_size {
                let freed_little = freed * 16 < load;
                let pause = if freed_little { SWEEP_PAUSE } else { Duration::ZERO };
                let times = locked.header().times();
                locked.header().set_times(SegmentTimes { sweep_after: now.after(pause), ..times });
                return cells.len() + new_keys <= load && !(probe_full && freed == 0);
            }
            return true;
        }
        self.grow(locked, &cells, new_keys, prefix);
        true
    }

    /// Adds homes to a segment, or splits it.
    fn grow<'t>(
        &'t self,
        mut locked: LockedSegment<'t>,
        cells: &[Cell],
        new_keys: usize,
        prefix: Prefix,
    ) {
        let homes = locked.segment().homes();
        if homes < self.max_homes {
            let wanted = Segment::homes_for(cells.len() + new_keys, self.max_homes).max(homes + 1);
            locked.rebuild(cells, (wanted, self.max_homes, homes), prefix);
            self.directory.replace(prefix.bits, prefix.depth, locked.segment());
            return;
        }
        let Some(first) = self.arena.take_slab() else {
            locked.rebuild(cells, (homes, homes, homes), prefix);
            return;
        };
        let [low, high] = prefix.halves();
        let (upper, lower): (Vec<Cell>, Vec<Cell>) =
            cells.iter().partition(|cell| high.contains(cell.tag().fingerprint()));
        let mut other = LockedSegment::unused(&self.arena, first);
        other.header().set_times(locked.header().times());
        for (half, cells, prefix) in [(&mut locked, &lower, low), (&mut other, &upper, high)] {
            let wanted = Segment::homes_for(cells.len() + new_keys, self.max_homes);
            half.rebuild(cells, (wanted, homes, homes), prefix);
        }
        // The order matters: keys of the upper half keep waiting for lines of `locked` until the
        // directory sends them to `other`.
        self.directory.replace(high.bits, high.depth, other.segment());
        self.directory.replace(low.bits, low.depth, locked.segment());
    }

    /// Returns when a cell in the segment of a key may become free, at most a minute. This is an
    /// estimate: other keys may take the cell, and a refund may free one earlier.
    pub(crate) fn room_hint(&self, fingerprint: Fingerprint, now: Time) -> Duration {
        let times = self.header(self.directory.stable_segment(fingerprint)).times();
        times.earliest_full.max(times.sweep_after).since(now).clamp(SWEEP_PAUSE, MAX_HINT)
    }

    /// Returns the cells that have not been full for `idle`, and the number of the others. Records
    /// when the next one will be full.
    pub(super) fn sweep(
        &self,
        locked: &LockedSegment<'_>,
        idle: Duration,
        now: Time,
        clock: &ClockSource,
    ) -> (Vec<Cell>, usize) {
        let (mut wall, mut earliest_full) = (None, NEVER);
        let mut cells = locked.cells();
        let before = cells.len();
        cells.retain(|cell| {
            let wall = || *wall.get_or_insert_with(|| clock.wall());
            let fresh_at = fresh_at(cell.state(), now, wall);
            let stale = fresh_at < NEVER && fresh_at.after(idle) <= now;
            if !stale {
                earliest_full = earliest_full.min(fresh_at);
            }
            !stale
        });
        let times = locked.header().times();
        locked.header().set_times(SegmentTimes { earliest_full, ..times });
        let freed = before - cells.len();
        self.count_evicted(freed);
        (cells, freed)
    }

    fn is_max_size(&self, segment: Segment) -> bool {
        let shape = self.header(segment).shape();
        segment.homes() >= self.max_homes
            && shape.is_some_and(|(_, prefix)| prefix.depth >= self.max_depth)
    }

    /// Returns whether sweeping a full segment would free nothing, or would follow too soon after
    /// the last sweep.
    fn is_sweep_useless(&self, times: SegmentTimes, now: Time) -> bool {
        // The second comparison allows a sweep after the clock has stepped back.
        let too_soon = now < times.sweep_after && times.sweep_after <= now.after(SWEEP_PAUSE);
        now < times.earliest_full || too_soon
    }
}

/// Returns when a state becomes equivalent to no entry.
pub(crate) fn fresh_at(state: State, now: Time, wall: impl FnOnce() -> WallTime) -> Time {
    match state {
        State::Bucket(tat) => Time::from_nanos(tat.ceil()),
        State::Quota { ends, used } if used > 0 => in_store_time(ends, now, wall()),
        State::Allowance { used } if used > 0 => NEVER,
        _ => Time::ZERO,
    }
}

/// Converts the end of a calendar window to the store's clock.
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
    use tidegate_core::{Correction, Key, Limit, Operation, Policy, StoreResponse};

    use super::*;
    use crate::builder::{Overflow, Sizes};
    use crate::clock::{Clock, ManualClock};
    use crate::store::MemoryStore;

    /// Creates a store of one segment that is full of keys in debt for `secs` seconds.
    fn full_until(secs: u64) -> (MemoryStore, ManualClock, Limit, usize) {
        let clock = ManualClock::new();
        let sizes = Sizes {
            max_memory: 1 << 20,
            slab_lines: 64,
            max_depth: 0,
            max_holds: 1,
            max_leases: 1,
            max_shared_sets: 1,
        };
        let source = clock.clone().into_source();
        let store = MemoryStore::assemble(sizes, Overflow::Deny, source, 7, 7).unwrap();
        let policy = Policy::per_second(1).capacity(1_000_000).build().unwrap();
        let limit = Limit::named("a", policy).unwrap();
        let keys = Table::max_keys(&store.sizes);
        for number in 0..keys {
            assert!(take(&store, &limit, number, secs), "key {number} of {keys}");
        }
        (store, clock, limit, keys)
    }

    fn take(store: &MemoryStore, limit: &Limit, number: usize, cost: u64) -> bool {
        store.take_one(limit, Key::new(&number.to_string()), cost).is_allowed()
    }

    fn at(secs: u64) -> Time {
        Time::from_nanos(secs * 1_000_000_000)
    }

    #[test]
    fn full_buckets_are_evicted_and_others_kept() {
        let (store, clock, limit, keys) = full_until(10);
        clock.set(at(9));
        assert!(!take(&store, &limit, keys, 1));
        assert_eq!((store.len(), store.stats().overflowed), (keys, 1));
        clock.set(at(10));
        assert!(take(&store, &limit, keys, 1));
        assert_eq!(store.len(), 1);
    }

    #[test]
    fn refund_is_seen_by_the_next_sweep() {
        let (store, clock, limit, keys) = full_until(1_000);
        clock.set(at(9));
        assert!(!take(&store, &limit, keys, 1));
        let back = [Correction::new(&limit, "5", -980)];
        let settle = Operation::Settle { corrections: &back, receipt: None };
        assert!(matches!(store.execute(&settle), Ok(StoreResponse::Settled(_))));
        clock.set(at(19));
        assert!(!take(&store, &limit, keys, 1));
        clock.set(at(20));
        assert!(take(&store, &limit, keys, 1));
        assert_eq!(store.len(), keys);
    }

    #[test]
    fn clock_step_back_does_not_stop_sweeps() {
        let (store, clock, limit, keys) = full_until(10);
        clock.set(at(9));
        assert!(!take(&store, &limit, keys, 1), "the sweep frees nothing, so there is a pause");
        let header = store.table.header(store.table.directory.segment(Fingerprint::from_hash(0)));
        header.set_times(SegmentTimes { sweep_after: at(1_000_000), ..header.times() });
        clock.set(at(11));
        assert!(take(&store, &limit, keys, 1));
    }
}
