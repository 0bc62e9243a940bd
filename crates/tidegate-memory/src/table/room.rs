//! How room is made for new keys, on the request path and nowhere else.
//!
//! Before a segment grows, what is full again is swept out; at its largest size that is the only
//! way to make room. One segment has at most a few thousand keys, so whoever pays for it takes
//! some tens of microseconds, and only those who want the same segment wait with him.

use std::time::Duration;

use tidegate_core::{State, Time, WallTime};

use super::{NEVER, Table};
use crate::clock::ClockSource;
use crate::table::cell::{Cell, Fingerprint};
use crate::table::segment::{Prefix, Segment, Times, Whole};

/// A full segment whose sweep freed little is not swept again before this has passed, so that a
/// flood of new keys cannot buy a sweep with every request.
const SWEEP_PAUSE: Duration = Duration::from_millis(1);
/// The longest hint to a key for which there is no room.
const MAX_HINT: Duration = Duration::from_secs(60);

/// For whom room is to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) fingerprint: Fingerprint,
    /// How many keys are to be put into its segment.
    pub(crate) more: usize,
    /// Whether it found no room within reach, whatever the number of keys.
    pub(crate) crowded: bool,
}

impl Table {
    /// Makes room in the segment of a key. `false` if there is none to be made; else the key is to
    /// be looked up again.
    pub(crate) fn make_room(&self, wanted: Wanted, now: Time, clock: &ClockSource) -> bool {
        #[cfg(all(test, shuttle))]
        if self.is_full_by_force() {
            return false;
        }
        let Wanted { fingerprint, more, crowded } = wanted;
        let segment = self.directory.settled(fingerprint);
        if self.is_full_size(segment) && self.is_paused(self.header(segment).times(), now) {
            return false;
        }
        let mut whole = self.lock_whole(fingerprint);
        if whole.segment() != segment {
            // Somebody else was here meanwhile: look again.
            return true;
        }
        let Some((homes, prefix)) = whole.header().shape() else { return true };
        let full_size = self.is_full_size(segment);
        let load = Segment::load(homes);
        let (cells, freed) = self.sweep(&whole, Duration::ZERO, now, clock);
        // Unless a quarter of the room is free now, the next sweep would come too soon.
        let roomy = (cells.len() + more) * 4 <= load * 3 && !(crowded && freed == 0);
        if full_size || roomy {
            if freed > 0 {
                whole.rebuild(&cells, (homes, homes, homes), prefix);
            }
            if full_size {
                let little = freed * 16 < load;
                let pause = if little { SWEEP_PAUSE } else { Duration::ZERO };
                let times = whole.header().times();
                whole.header().set_times(Times { sweep_after: now.after(pause), ..times });
                return cells.len() + more <= load && !(crowded && freed == 0);
            }
            return true;
        }
        self.grow(whole, &cells, more, prefix);
        true
    }

    /// Gives a segment more homes, or splits it.
    fn grow<'t>(&'t self, mut whole: Whole<'t>, cells: &[Cell], more: usize, prefix: Prefix) {
        let homes = whole.segment().homes();
        if homes < self.max_homes {
            let wanted = Segment::homes_for(cells.len() + more, self.max_homes).max(homes + 1);
            whole.rebuild(cells, (wanted, self.max_homes, homes), prefix);
            self.directory.replace(prefix.bits, prefix.depth, whole.segment());
            return;
        }
        let Some(first) = self.arena.take() else {
            whole.rebuild(cells, (homes, homes, homes), prefix);
            return;
        };
        let [low, high] = prefix.halves();
        let (upper, lower): (Vec<Cell>, Vec<Cell>) =
            cells.iter().partition(|cell| high.holds(cell.tag().fingerprint()));
        let mut other = Whole::unused(&self.arena, first);
        other.header().set_times(whole.header().times());
        for (half, cells, prefix) in [(&mut whole, &lower, low), (&mut other, &upper, high)] {
            let wanted = Segment::homes_for(cells.len() + more, self.max_homes);
            half.rebuild(cells, (wanted, homes, homes), prefix);
        }
        // In this order: keys of the upper half keep waiting for lines of `whole` until they find
        // themselves in `other`.
        self.directory.replace(high.bits, high.depth, other.segment());
        self.directory.replace(low.bits, low.depth, whole.segment());
    }

    /// How long until a place in the segment of a key may become free. Others may want it too, and
    /// a debt may be forgiven: an estimate, and not more than a minute.
    pub(crate) fn room_in(&self, fingerprint: Fingerprint, now: Time) -> Duration {
        let times = self.header(self.directory.settled(fingerprint)).times();
        times.earliest.max(times.sweep_after).since(now).clamp(SWEEP_PAUSE, MAX_HINT)
    }

    /// The cells that are not full for `idle`, and how many others there were. Remembers when the
    /// next one will be full.
    pub(super) fn sweep(
        &self,
        whole: &Whole<'_>,
        idle: Duration,
        now: Time,
        clock: &ClockSource,
    ) -> (Vec<Cell>, usize) {
        let (mut wall, mut earliest) = (None, NEVER);
        let mut cells = whole.cells();
        let before = cells.len();
        cells.retain(|cell| {
            let wall = || *wall.get_or_insert_with(|| clock.wall());
            let fresh_at = fresh_at(cell.state(), now, wall);
            let stale = fresh_at < NEVER && fresh_at.after(idle) <= now;
            if !stale {
                earliest = earliest.min(fresh_at);
            }
            !stale
        });
        let times = whole.header().times();
        whole.header().set_times(Times { earliest, ..times });
        let freed = before - cells.len();
        self.count_evicted(freed);
        (cells, freed)
    }

    fn is_full_size(&self, segment: Segment) -> bool {
        let shape = self.header(segment).shape();
        segment.homes() >= self.max_homes
            && shape.is_some_and(|(_, prefix)| prefix.depth >= self.max_depth)
    }

    /// Whether a sweep of a full segment would be in vain, or too soon after the last one.
    fn is_paused(&self, times: Times, now: Time) -> bool {
        // The second test lets a clock that stepped back sweep again.
        let too_soon = now < times.sweep_after && times.sweep_after <= now.after(SWEEP_PAUSE);
        now < times.earliest || too_soon
    }
}

/// When a state is the same as no entry.
pub(crate) fn fresh_at(state: State, now: Time, wall: impl FnOnce() -> WallTime) -> Time {
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
    use tidegate_core::{Answer, Correction, Key, Limit, Operation, Policy};

    use super::*;
    use crate::builder::{Overflow, Sizes};
    use crate::clock::{Clock, ManualClock};
    use crate::store::MemoryStore;

    /// A store of one segment, full of keys that owe for so many seconds.
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
    fn indebted_keys_are_kept_and_full_ones_make_room() {
        let (store, clock, limit, keys) = full_until(10);
        clock.set(at(9));
        assert!(!take(&store, &limit, keys, 1));
        assert_eq!((store.len(), store.stats().overflowed), (keys, 1));
        clock.set(at(10));
        assert!(take(&store, &limit, keys, 1));
        assert_eq!(store.len(), 1);
    }

    #[test]
    fn a_refund_is_noticed_by_the_next_sweep() {
        let (store, clock, limit, keys) = full_until(1_000);
        clock.set(at(9));
        assert!(!take(&store, &limit, keys, 1));
        let back = [Correction::new(&limit, "5", -980)];
        let settle = Operation::Settle { corrections: &back, receipt: None };
        assert!(matches!(store.execute(&settle), Ok(Answer::Settled(_))));
        clock.set(at(19));
        assert!(!take(&store, &limit, keys, 1));
        clock.set(at(20));
        assert!(take(&store, &limit, keys, 1));
        assert_eq!(store.len(), keys);
    }

    #[test]
    fn a_clock_that_stepped_back_does_not_stop_the_sweeps() {
        let (store, clock, limit, keys) = full_until(10);
        clock.set(at(9));
        assert!(!take(&store, &limit, keys, 1), "a sweep in vain, after which there is a pause");
        let header = store.table.header(store.table.directory.segment(Fingerprint::of(0)));
        header.set_times(Times { sweep_after: at(1_000_000), ..header.times() });
        clock.set(at(11));
        assert!(take(&store, &limit, keys, 1));
    }
}
