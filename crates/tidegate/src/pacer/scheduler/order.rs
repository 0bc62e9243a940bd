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
pub(in crate::pacer) struct Turn {
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
    pub(in crate::pacer) fn enter(&mut self) -> Turn {
        self.stamps += 1;
        Turn { start: self.now, stamp: self.stamps, due: None }
    }

    /// Updates the position of an entry by the cost of its first waiter; without one, the entry is
    /// removed. An entry that could not go has saved up nothing.
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

    /// Records a grant to a waiter of an entry. The position must be [updated](Self::update)
    /// afterwards.
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

    /// Entries that could go, next one first.
    pub(in crate::pacer) fn iter(&self) -> impl Iterator<Item = Id> + '_ {
        self.entries.iter().map(|(.., id)| *id)
    }

    /// Cost that an entry is served before another one that is due at `due`: its first waiter if
    /// that is due by then, and further waiters that are due sooner.
    pub(in crate::pacer) fn room(turn: &Turn, due: u128) -> u128 {
        match turn.due {
            Some(first) if first <= due => {
                (due - turn.start).saturating_sub(1).max(first - turn.start)
            }
            _ => 0,
        }
    }

    /// Virtual time from which the share of an entry counts if it gets another waiter now.
    pub(in crate::pacer) fn start_of(&self, turn: Option<&Turn>) -> u128 {
        match turn {
            Some(turn) if turn.due.is_some() => turn.start,
            Some(turn) => turn.start.max(self.now),
            None => self.now,
        }
    }
}
