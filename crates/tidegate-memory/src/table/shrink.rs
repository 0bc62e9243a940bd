//! How a table gives memory back: segments get smaller, and two that fit one become one.

use std::time::Duration;

use tidegate_core::Time;

use super::{NEVER, Table};
use crate::clock::ClockSource;
use crate::table::cell::Cell;
use crate::table::segment::{Prefix, Segment, Times, Whole};

impl Table {
    /// Takes out what has been full for `idle`, and gives memory back. Says how many that were.
    pub(crate) fn clean(&self, idle: Duration, now: Time, clock: &ClockSource) -> usize {
        let mut freed = 0;
        self.each(|mut whole, prefix| {
            let (cells, gone) = self.sweep(&whole, idle, now, clock);
            freed += gone;
            if gone > 0 || self.fewer_homes(&whole, &cells) < whole.segment().homes() {
                self.shrink(&mut whole, &cells, prefix);
            }
        });
        self.merge_all();
        freed
    }

    /// Forgets every key.
    pub(crate) fn clear(&self) {
        self.each(|mut whole, prefix| {
            self.count_removed(whole.header().keys());
            let nothing =
                Times { earliest: NEVER, sweep_after: Time::ZERO, owing_until: Time::ZERO };
            whole.header().set_times(nothing);
            self.shrink(&mut whole, &[], prefix);
        });
        self.merge_all();
    }

    /// Leaves a segment with these cells as many homes as they need.
    fn shrink(&self, whole: &mut Whole<'_>, cells: &[Cell], prefix: Prefix) {
        let (homes, fewer) = (whole.segment().homes(), self.fewer_homes(whole, cells));
        whole.rebuild(cells, (fewer, homes, homes), prefix);
        self.directory.replace(prefix.bits, prefix.depth, whole.segment());
    }

    /// How many homes are enough for these cells, and not more than there are.
    fn fewer_homes(&self, whole: &Whole<'_>, cells: &[Cell]) -> usize {
        Segment::homes_for(cells.len(), self.max_homes).min(whole.segment().homes())
    }

    /// Puts halves together that fit one segment.
    fn merge_all(&self) {
        for prefix in self.prefixes() {
            let mut parent = prefix.parent();
            while let Some(prefix) = parent.filter(|prefix| self.merge(*prefix)) {
                parent = prefix.parent();
            }
        }
    }

    /// Puts the two halves of a prefix together, if there are two and they fit.
    fn merge(&self, prefix: Prefix) -> bool {
        let halves = prefix.halves();
        let segments = halves.map(|half| self.directory.settled(half.any_key()));
        let shape = |index: usize| self.header(segments[index]).shape();
        let is_half = |index: usize| shape(index).is_some_and(|(_, seen)| seen == halves[index]);
        let keys: usize = segments.iter().map(|segment| self.header(*segment).keys()).sum();
        if !is_half(0) || !is_half(1) || keys * 2 > Segment::load(self.max_homes) {
            return false;
        }
        // In the order of their lines, as everybody locks.
        let order = if segments[0].first() < segments[1].first() { [0, 1] } else { [1, 0] };
        let lock = |index: usize| {
            let current = || self.directory.is_current(halves[index].any_key(), segments[index]);
            Whole::lock(&self.arena, segments[index], current)
        };
        let (Some(mut kept), Some(other)) = (lock(order[0]), lock(order[1])) else { return false };
        if !is_half(0) || !is_half(1) {
            return false;
        }
        let times = [kept.header().times(), other.header().times()];
        let (own, homes) = (kept.cells(), kept.segment().homes());
        let cells: Vec<Cell> = own.iter().copied().chain(other.cells()).collect();
        kept.header().set_times(Times {
            earliest: times[0].earliest.min(times[1].earliest),
            sweep_after: times[0].sweep_after.max(times[1].sweep_after),
            owing_until: times[0].owing_until.max(times[1].owing_until),
        });
        let wanted = Segment::homes_for(cells.len(), self.max_homes);
        if !kept.rebuild(&cells, (wanted, self.max_homes, self.max_homes), prefix) {
            kept.rebuild(&own, (homes, homes, homes), halves[order[0]]);
            return false;
        }
        self.directory.replace(prefix.bits, prefix.depth, kept.segment());
        let first = other.segment().first();
        other.close();
        self.arena.put_back(first);
        true
    }
}
