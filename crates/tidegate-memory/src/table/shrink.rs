//! Releasing memory: segments shrink, and two that fit into one are merged.

use std::time::Duration;

use tidegate_core::Time;

use super::{NEVER, Table};
use crate::clock::ClockSource;
use crate::table::cell::Cell;
use crate::table::segment::{LockedSegment, Prefix, Segment, SegmentTimes};

impl Table {
    /// Removes keys that have been full for `idle` and releases memory. Returns the number of keys
    /// removed.
    pub(crate) fn clean(&self, idle: Duration, now: Time, clock: &ClockSource) -> usize {
        let mut freed = 0;
        self.for_each_segment(|mut locked, prefix| {
            let (cells, gone) = self.sweep(&locked, idle, now, clock);
            freed += gone;
            if gone > 0 || self.needed_homes(&locked, &cells) < locked.segment().homes() {
                self.shrink(&mut locked, &cells, prefix);
            }
        });
        self.merge_all();
        freed
    }

    /// Removes every key.
    pub(crate) fn clear(&self) {
        self.for_each_segment(|mut locked, prefix| {
            self.count_removed(locked.header().keys());
            let nothing = SegmentTimes {
                earliest_full: NEVER,
                sweep_after: Time::ZERO,
                shared_debt_until: Time::ZERO,
            };
            locked.header().set_times(nothing);
            self.shrink(&mut locked, &[], prefix);
        });
        self.merge_all();
    }

    /// Shrinks a segment with these cells to the homes they need.
    fn shrink(&self, locked: &mut LockedSegment<'_>, cells: &[Cell], prefix: Prefix) {
        let (homes, fewer) = (locked.segment().homes(), self.needed_homes(locked, cells));
        locked.rebuild(cells, (fewer, homes, homes), prefix);
        self.directory.replace(prefix.bits, prefix.depth, locked.segment());
    }

    /// Returns how many homes are enough for these cells, at most the current number.
    fn needed_homes(&self, locked: &LockedSegment<'_>, cells: &[Cell]) -> usize {
        Segment::homes_for(cells.len(), self.max_homes).min(locked.segment().homes())
    }

    /// Merges pairs of segments that fit into one.
    fn merge_all(&self) {
        for prefix in self.prefixes() {
            let mut parent = prefix.parent();
            while let Some(prefix) = parent.filter(|prefix| self.merge(*prefix)) {
                parent = prefix.parent();
            }
        }
    }

    /// Merges the two halves of a prefix, if both exist and fit into one segment. Returns whether
    /// it did.
    fn merge(&self, prefix: Prefix) -> bool {
        let halves = prefix.halves();
        let segments = halves.map(|half| self.directory.stable_segment(half.any_key()));
        let shape = |index: usize| self.header(segments[index]).shape();
        let is_half = |index: usize| shape(index).is_some_and(|(_, seen)| seen == halves[index]);
        let keys: usize = segments.iter().map(|segment| self.header(*segment).keys()).sum();
        if !is_half(0) || !is_half(1) || keys * 2 > Segment::max_keys(self.max_homes) {
            return false;
        }
        // In the order of their lines, as every lock is acquired.
        let order = if segments[0].first() < segments[1].first() { [0, 1] } else { [1, 0] };
        let lock = |index: usize| {
            let current = || self.directory.is_current(halves[index].any_key(), segments[index]);
            LockedSegment::lock(&self.arena, segments[index], current)
        };
        let (Some(mut kept), Some(other)) = (lock(order[0]), lock(order[1])) else { return false };
        if !is_half(0) || !is_half(1) {
            return false;
        }
        let times = [kept.header().times(), other.header().times()];
        let (own, homes) = (kept.cells(), kept.segment().homes());
        let cells: Vec<Cell> = own.iter().copied().chain(other.cells()).collect();
        kept.header().set_times(SegmentTimes {
            earliest_full: times[0].earliest_full.min(times[1].earliest_full),
            sweep_after: times[0].sweep_after.max(times[1].sweep_after),
            shared_debt_until: times[0].shared_debt_until.max(times[1].shared_debt_until),
        });
        let wanted = Segment::homes_for(cells.len(), self.max_homes);
        if !kept.rebuild(&cells, (wanted, self.max_homes, self.max_homes), prefix) {
            kept.rebuild(&own, (homes, homes, homes), halves[order[0]]);
            return false;
        }
        self.directory.replace(prefix.bits, prefix.depth, kept.segment());
        let first = other.segment().first();
        other.close();
        self.arena.return_slab(first);
        true
    }
}
