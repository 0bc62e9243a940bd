//! The order between callers: the caller that has had the least goes next.
//!
//! This is self-clocked fair queueing. The virtual time of an order is what has been spent on its
//! entries, and advances with every grant. An entry is due at its start (the virtual time when it
//! arrived or was last served) plus the cost of its first waiter. An entry that leaves and comes
//! back starts at the current time, so leaving gains nothing. An entry that waits keeps its start,
//! so newcomers, however many, are soon due after it. Each other entry is served before it for at
//! most the cost of its own first waiter. Whatever else they ask for, such as one huge request,
//! makes no difference to it.

use std::collections::BTreeSet;

use crate::pacer::scheduler::slab::Id;

/// Position of an entry in an order.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::pacer) struct Position {
    /// Virtual time from which its share counts.
    start: u128,
    /// Tie breaker: among entries that are due at the same time, the one served longest ago comes
    /// first.
    stamp: u64,
    /// When it is due; `None` while none of its waiters could go.
    due: Option<u128>,
}

/// Entries by the virtual time at which they are due.
#[derive(Debug, Default)]
pub(in crate::pacer) struct Order {
    entries: BTreeSet<(u128, u64, Id)>,
    now: u128,
    stamps: u64,
}

impl Order {
    /// The position of a new entry.
    pub(in crate::pacer) fn new_position(&mut self) -> Position {
        self.stamps += 1;
        Position { start: self.now, stamp: self.stamps, due: None }
    }

    /// Updates the position of an entry by the cost of its first waiter; without one, the entry is
    /// removed. An entry that could not go has saved up nothing.
    pub(in crate::pacer) fn update(&mut self, id: Id, position: &mut Position, first: Option<u64>) {
        match position.due.take() {
            Some(due) => {
                self.entries.remove(&(due, position.stamp, id));
            }
            None => position.start = position.start.max(self.now),
        }
        if let Some(cost) = first {
            let due = position.start + u128::from(cost);
            self.entries.insert((due, position.stamp, id));
            position.due = Some(due);
        }
    }

    /// Records a grant to a waiter of an entry. The position must be [updated](Self::update)
    /// afterwards.
    pub(in crate::pacer) fn served(&mut self, id: Id, position: &mut Position, cost: u64) {
        let before = (position.due, position.stamp);
        position.start += u128::from(cost);
        self.now = self.now.max(position.start);
        self.stamps += 1;
        position.stamp = self.stamps;
        if let (Some(due), stamp) = before {
            self.entries.remove(&(due, stamp, id));
            self.entries.insert((position.start, position.stamp, id));
            position.due = Some(position.start);
        }
    }

    pub(in crate::pacer) fn first(&self) -> Option<Id> {
        self.entries.first().map(|(.., id)| *id)
    }

    pub(in crate::pacer) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Entries that could go, next one first.
    pub(in crate::pacer) fn iter(&self) -> impl Iterator<Item = Id> + '_ {
        self.entries.iter().map(|(.., id)| *id)
    }

    /// Cost that an entry is served before another one that is due at `due`: its first waiter if
    /// that is due by then, and further waiters that are due sooner.
    pub(in crate::pacer) fn served_before(position: &Position, due: u128) -> u128 {
        match position.due {
            Some(first) if first <= due => {
                (due - position.start).saturating_sub(1).max(first - position.start)
            }
            _ => 0,
        }
    }

    /// Virtual time from which the share of an entry counts if it gets another waiter now.
    pub(in crate::pacer) fn start_of(&self, position: Option<&Position>) -> u128 {
        match position {
            Some(position) if position.due.is_some() => position.start,
            Some(position) => position.start.max(self.now),
            None => self.now,
        }
    }
}
