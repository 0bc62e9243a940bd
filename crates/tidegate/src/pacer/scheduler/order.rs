//! The order between callers: who has had least for its share goes next.
//!
//! Self-clocked fair queueing. The time of an order is what has been spent on those in it, and moves
//! on with every grant. An entry is due when its share of that time is worth the cost of its first
//! waiter: at its start, which is the time when it came or when it was last served, plus that cost.
//! Whoever comes and goes starts at the present time again, so that leaving gains nothing, and an
//! entry that waits keeps its start, so that newcomers, however many, are due after it before long.
//! Others are served before it for at most the cost of its own first waiter each. What they ask for
//! besides, such as one huge request, makes no difference to it.

use std::collections::BTreeSet;

use crate::pacer::scheduler::slab::Id;

/// Where an entry stands in an order.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::pacer) struct Turn {
    /// From when on its share counts.
    start: u128,
    /// Of those that are due at the same time the one that was served longest ago is first.
    stamp: u64,
    /// When it is due; `None` while it has nobody who could go.
    due: Option<u128>,
}

/// Entries by the time at which they are due.
#[derive(Debug, Default)]
pub(in crate::pacer) struct Order {
    entries: BTreeSet<(u128, u64, Id)>,
    now: u128,
    stamps: u64,
}

impl Order {
    /// The turn of a new entry.
    pub(in crate::pacer) fn enter(&mut self) -> Turn {
        self.stamps += 1;
        Turn { start: self.now, stamp: self.stamps, due: None }
    }

    /// Puts an entry where it belongs by the cost of its first waiter, or takes it out if it has
    /// none. An entry that could not go has saved nothing up.
    pub(in crate::pacer) fn place(&mut self, id: Id, turn: &mut Turn, first: Option<u64>) {
        match turn.due.take() {
            Some(due) => {
                self.entries.remove(&(due, turn.stamp, id));
            }
            None => turn.start = turn.start.max(self.now),
        }
        if let Some(cost) = first {
            let due = turn.start + u128::from(cost);
            self.entries.insert((due, turn.stamp, id));
            turn.due = Some(due);
        }
    }

    /// A waiter of an entry was granted. The entry is to be [placed](Self::place) again.
    pub(in crate::pacer) fn served(&mut self, id: Id, turn: &mut Turn, cost: u64) {
        let before = (turn.due, turn.stamp);
        turn.start += u128::from(cost);
        self.now = self.now.max(turn.start);
        self.stamps += 1;
        turn.stamp = self.stamps;
        if let (Some(due), stamp) = before {
            self.entries.remove(&(due, stamp, id));
            self.entries.insert((turn.start, turn.stamp, id));
            turn.due = Some(turn.start);
        }
    }

    pub(in crate::pacer) fn first(&self) -> Option<Id> {
        self.entries.first().map(|(.., id)| *id)
    }

    pub(in crate::pacer) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Entries that could go, the next first.
    pub(in crate::pacer) fn iter(&self) -> impl Iterator<Item = Id> + '_ {
        self.entries.iter().map(|(.., id)| *id)
    }

    /// The cost of what an entry gets before another that is due then: its first waiter if that is
    /// due as soon, and others that are due sooner.
    pub(in crate::pacer) fn room(turn: &Turn, due: u128) -> u128 {
        match turn.due {
            Some(first) if first <= due => {
                (due - turn.start).saturating_sub(1).max(first - turn.start)
            }
            _ => 0,
        }
    }

    /// From when on the share of an entry counts that asks for more now.
    pub(in crate::pacer) fn start_of(&self, turn: Option<&Turn>) -> u128 {
        match turn {
            Some(turn) if turn.due.is_some() => turn.start,
            Some(turn) => turn.start.max(self.now),
            None => self.now,
        }
    }
}
