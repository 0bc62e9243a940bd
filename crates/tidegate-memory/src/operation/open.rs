//! Finding the state of every key of a list, under its locks.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use tidegate_core::{Now, Place, Receipt, State, StoreError, Time};

use super::locked::Locked;
use crate::side_table::Besides;
use crate::builder::Overflow;
use crate::table::cell::Cell;
use crate::side_table::holds::Hold;
use crate::table::overflow::bucket;
use crate::operation::list_entry::{Seat, Seats};
use crate::snapshot::adopt;

impl Locked<'_> {
    /// Finds the state of every seat, where it lives, and the limit that decides.
    #[inline]
    pub(crate) fn open(
        &mut self,
        seats: &mut Seats<'_>,
        receipt: Option<&Receipt>,
        now: Now,
    ) -> Result<(), StoreError> {
        for index in 0..seats.as_slice().len() {
            let stamp = receipt.and_then(|receipt| seats.stamp_of(index, receipt));
            let seat = &mut seats.as_mut_slice()[index];
            let hold = self.hold_of(seat, now.time);
            if seat.is_of_slots() {
                self.open_slots(seat, now.time)?;
                count_hold(seat, hold, now.time);
                continue;
            }
            let known = seat.berth.filter(|berth| !self.lines.is_new(*berth));
            let own = known.map(|berth| self.lines.cell(berth));
            let charged = match stamp.map(|stamp| stamp.place) {
                Some(Place::Shared) => self.open_charged(seat),
                _ => None,
            };
            let found = match charged.or(own) {
                Some(found) => Some(found),
                None => self.open_newcomer(seat, now),
            };
            match found {
                Some(cell) => self.adopt(seat, cell, now.time),
                None => seat.shut_out = true,
            }
            count_hold(seat, hold, now.time);
            if seat.place == Place::Shared {
                join_neighbour(seats, index);
            }
        }
        Ok(())
    }

    /// The hold of a key. One that has no effect any more is forgotten, unless the clock may step back
    /// to when it had.
    fn hold_of(&mut self, seat: &Seat<'_>, now: Time) -> Option<Hold> {
        let hold = self.part(seat).and_then(|part| Besides::held(part, seat.hash))?;
        if hold.lapses > now || !self.store.clock.is_steady() {
            return Some(hold);
        }
        self.drop_hold(seat);
        None
    }

    fn open_slots(&mut self, seat: &mut Seat<'_>, now: Time) -> Result<(), StoreError> {
        let Some(part) = self.part(seat) else { return Err(StoreError::Full) };
        if seat.amount > 0 && !part.leases.have_room(now) {
            return Err(StoreError::Full);
        }
        seat.state = State::Concurrency { taken: part.leases.taken(seat.hash, now) };
        Ok(())
    }

    /// A key that is not in the table: new, or back after its bucket was full.
    fn open_newcomer(&mut self, seat: &mut Seat<'_>, now: Now) -> Option<Cell> {
        if !seat.roomless {
            // What it owes to a shared bucket comes with it, so that nobody gets rid of a debt
            // by the end of a flood.
            let may_owe = seat.segment.is_some_and(|segment| {
                now.time < self.store.table.header(segment).times().owing_until
            });
            let owed = if may_owe { self.shared().look(seat.limit(), seat.hash) } else { None };
            return Some(owed.filter(|cell| !cell.state().is_fresh(now)).unwrap_or_default());
        }
        self.store.overflowed.fetch_add(1, Ordering::Relaxed);
        match self.store.overflow {
            Overflow::Shared => self.open_shared(seat, now),
            Overflow::Deny => None,
        }
    }

    /// The shared bucket of a key that has no room of its own.
    fn open_shared(&mut self, seat: &mut Seat<'_>, now: Now) -> Option<Cell> {
        let found = self.shared().open(seat.limit(), seat.hash, now);
        if found.is_some() {
            seat.place = Place::Shared;
        }
        found
    }

    /// The shared bucket that a receipt names. A set that is gone was full again: then there is
    /// nothing left to give back, and a further charge goes to the key's own bucket.
    fn open_charged(&mut self, seat: &mut Seat<'_>) -> Option<Cell> {
        let found = self.shared().look(seat.limit(), seat.hash);
        if found.is_some() {
            seat.place = Place::Shared;
        } else {
            seat.repaid = true;
        }
        found
    }

    /// Brings a stored state under the policy that decides: the newer one of caller and store.
    #[inline]
    fn adopt(&mut self, seat: &mut Seat<'_>, cell: Cell, now: Time) {
        if cell.tag().is_vacant() {
            seat.state = State::Fresh;
            return;
        }
        if let Some(number) = cell.tag().restored_number() {
            let history = self.store.restored.get(seat.limit().identity());
            seat.state = adopt::carried(cell.state(), number, history, seat.limit(), now);
            seat.converted = true;
            return;
        }
        let generation = cell.tag().generation_near(seat.limit().generation());
        if generation > seat.limit().generation() {
            let newest = self.store.newest.read().unwrap_or_else(PoisonError::into_inner);
            seat.newer = newest.get(seat.limit().identity()).cloned();
        }
        let generation = cell.tag().generation_near(seat.limit().generation());
        seat.converted = generation != seat.limit().generation();
        seat.state = cell.state().carried(seat.limit(), generation, now);
    }
}

/// Counts the hold of a key. One that has passed under an older policy is, like the tokens of
/// the bucket, carried over to the present one; it must not close the key a second time.
fn count_hold(seat: &mut Seat<'_>, hold: Option<Hold>, now: Time) {
    let Some(Hold { until, generation, .. }) = hold else { return };
    let limit = seat.limit();
    if until > now || generation == limit.generation() {
        seat.held_until = until;
        return;
    }
    let reopened = State::after_hold(limit, generation, until, now);
    seat.state = seat.state.or_less(reopened);
    (seat.reopened, seat.converted) = (true, true);
}

/// Lets a seat on a shared bucket join an earlier seat on the same one.
fn join_neighbour(seats: &mut Seats<'_>, index: usize) {
    let (before, seat) = seats.as_slice().split_at(index);
    let same = |other: &Seat<'_>| {
        other.place == Place::Shared
            && other.target.limit == seat[0].target.limit
            && bucket(other.hash) == bucket(seat[0].hash)
    };
    if let Some(earlier) = before.iter().position(same) {
        seats.join(index, earlier);
    }
}
