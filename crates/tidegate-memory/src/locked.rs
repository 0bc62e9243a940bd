//! What one operation has locked, and how it finds and writes its buckets there.
//!
//! Locks are taken in one order, so lists cannot deadlock: shards by their number, then the
//! shared buckets, then the newest limits. The clock is read when the shards are locked: a
//! reading from before could be older than what another thread has written meanwhile.

use std::sync::PoisonError;

use smallvec::SmallVec;
use tidegate_core::decide::Settled;
use tidegate_core::{
    Account, Now, Outcome, Outcomes, Place, Policy, Receipt, Retry, Stamp, State, StoreError, Time,
};

use crate::builder::Overflow;
use crate::overflow::{Sets, bucket};
use crate::seats::{Seat, Seats};
use crate::shard::Shard;
use crate::store::MemoryStore;
use crate::sync::{MutexGuard, lock};

/// The locks of one operation.
pub(crate) struct Locked<'s> {
    store: &'s MemoryStore,
    shards: SmallVec<[LockedShard<'s>; 2]>,
    shared: Option<MutexGuard<'s, Sets>>,
}

struct LockedShard<'s> {
    number: usize,
    /// Keys of this list that live here. Each may have to be put in: a sweep for the sake of one
    /// may take another out.
    seats: usize,
    guard: MutexGuard<'s, Shard>,
}

impl<'s> Locked<'s> {
    /// Locks the shards of every seat, in their order.
    #[inline]
    pub(crate) fn new(store: &'s MemoryStore, seats: &mut Seats<'_>) -> Self {
        let mut numbers: SmallVec<[usize; 2]> =
            seats.as_slice().iter().map(|seat| store.shard_of(seat.hash)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let shards = numbers.iter().map(|&number| {
            let guard = lock(&store.shards[number].0);
            LockedShard { number, seats: 0, guard }
        });
        let mut locked = Self { store, shards: shards.collect(), shared: None };
        for seat in seats.as_mut_slice() {
            let number = store.shard_of(seat.hash);
            let place = locked.shards.iter().position(|shard| shard.number == number);
            seat.guard = place.unwrap_or(0);
            locked.shards[seat.guard].seats += 1;
        }
        locked
    }

    /// The shard of a seat.
    #[inline]
    pub(crate) fn shard(&mut self, seat: &Seat<'_>) -> &mut Shard {
        &mut self.shards[seat.guard].guard
    }

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
            let hold = self.shard(seat).held(seat.hash);
            if let Policy::Concurrency(_) = seat.limit().policy() {
                self.open_slots(seat, now.time)?;
                count_hold(seat, hold, now.time);
                continue;
            }
            let own = self.shard(seat).table.get(seat.hash);
            let own = own.map(|slot| (slot.state(), slot.generation()));
            let charged = match stamp.map(|stamp| stamp.place) {
                Some(Place::Shared) => self.open_charged(seat),
                _ => None,
            };
            let found = match charged.or(own) {
                Some(found) => Some(found),
                None => self.open_newcomer(seat, now),
            };
            match found {
                Some((state, generation)) => self.adopt(seat, state, generation, now.time),
                None => seat.shut_out = true,
            }
            count_hold(seat, hold, now.time);
            if seat.place == Place::Shared {
                join_neighbour(seats, index);
            }
        }
        Ok(())
    }

    /// Says when slots will have run out by themselves, if there are too few.
    #[inline]
    pub(crate) fn hint_at_leases(&mut self, account: &mut Account<'_>, seat: &Seat<'_>, now: Time) {
        if let Some(policy) = account.concurrency() {
            let leases = &self.shard(seat).leases;
            *account = account.slots_free_in(leases.free_in(seat.hash, seat.cost(), policy, now));
        }
    }

    /// Replaces the outcomes of keys for which there is no room at all.
    pub(crate) fn mark_shut_out(&mut self, outcomes: &mut Outcomes, seats: &Seats<'_>, now: Time) {
        for (outcome, index) in outcomes.iter_mut().zip(seats.order()) {
            let seat = &seats.as_slice()[index];
            if seat.shut_out && seat.amount > 0 {
                let retry = Retry::After(self.shard(seat).room_in(now));
                *outcome = Outcome::new(outcome.capacity, 0, outcome.reset, Some(retry));
            }
        }
    }

    /// Writes the state of a seat to where it lives.
    #[inline]
    pub(crate) fn write(&mut self, seat: &mut Seat<'_>, now: Now) {
        let (hash, state) = (seat.hash, seat.state);
        let generation = seat.limit().generation();
        match (seat.place, *seat.limit().policy()) {
            (Place::Shared, _) => {
                self.shared().write(seat.limit(), hash, state);
                self.shard(seat).note_shared(state, now);
                self.remember(seat);
            }
            (_, Policy::Concurrency(policy)) if seat.amount > 0 => {
                let leases = &mut self.shard(seat).leases;
                let lease = leases.acquire(hash, seat.cost(), policy.lease(), now.time);
                seat.place = Place::Slot(lease);
            }
            (_, Policy::Concurrency(_)) => {}
            _ => {
                self.shard(seat).write(hash, state, generation, now);
                self.remember(seat);
            }
        }
        if seat.reopened {
            self.shard(seat).drop_hold(hash);
        }
    }

    /// Forgets holds that have passed under an older policy, now that they were looked at.
    pub(crate) fn drop_reopened(&mut self, seats: &Seats<'_>) {
        for seat in seats.as_slice() {
            if seat.reopened && seat.amount != 0 && seat.place != Place::Shared {
                self.shard(seat).drop_hold(seat.hash);
            }
        }
    }

    /// Gives slots back to the lease of a stamp. Slots cannot be charged after the fact.
    pub(crate) fn give_slots_back(
        &mut self,
        seat: &Seat<'_>,
        stamp: Option<&Stamp>,
        now: Time,
    ) -> Settled {
        let slots = seat.delta().unsigned_abs();
        match stamp.map(|stamp| stamp.place) {
            Some(Place::Slot(id)) if seat.amount < 0 => {
                Settled::slots_back(self.shard(seat).leases.release(seat.hash, id, slots, now))
            }
            _ => Settled::nothing_of(seat.delta()),
        }
    }

    /// Slots of a seat that are taken.
    pub(crate) fn taken(&mut self, seat: &Seat<'_>, now: Time) -> u64 {
        self.shard(seat).leases.taken(seat.hash, now)
    }

    pub(crate) fn count_saturated(&mut self, times: usize) {
        self.shards[0].guard.counts.saturated += times as u64;
    }

    fn open_slots(&mut self, seat: &mut Seat<'_>, now: Time) -> Result<(), StoreError> {
        let leases = &mut self.shard(seat).leases;
        if seat.amount > 0 && !leases.have_room(now) {
            return Err(StoreError::Full);
        }
        seat.state = State::Concurrency { taken: leases.taken(seat.hash, now) };
        Ok(())
    }

    /// A key that is not in the table: new, or back after its bucket was full.
    fn open_newcomer(&mut self, seat: &mut Seat<'_>, now: Now) -> Option<(State, u32)> {
        let store = self.store;
        let shard = &mut self.shards[seat.guard];
        let max_slots = store.sizes.max_slots;
        if shard.guard.make_room(shard.seats, max_slots, now.time, &store.clock) {
            // What it owes to a shared bucket comes with it, so that nobody gets rid of a debt
            // by the end of a flood.
            let owed = if shard.guard.may_owe(now.time) {
                self.shared().look(seat.limit(), seat.hash)
            } else {
                None
            };
            let owed = owed.filter(|(state, _)| !state.is_fresh(now));
            return Some(owed.unwrap_or((State::Fresh, seat.limit().generation())));
        }
        shard.guard.counts.overflowed += 1;
        match store.overflow {
            Overflow::Shared => self.open_shared(seat, now),
            Overflow::Deny => None,
        }
    }

    /// The shared bucket of a key that has no room of its own.
    fn open_shared(&mut self, seat: &mut Seat<'_>, now: Now) -> Option<(State, u32)> {
        seat.place = Place::Shared;
        let found = self.shared().open(seat.limit(), seat.hash, now);
        if found.is_none() {
            seat.place = Place::Own;
        }
        found
    }

    /// The shared bucket that a receipt names. A set that is gone was full again: then there is
    /// nothing left to give back, and a further charge goes to the key's own bucket.
    fn open_charged(&mut self, seat: &mut Seat<'_>) -> Option<(State, u32)> {
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
    fn adopt(&mut self, seat: &mut Seat<'_>, state: State, generation: u32, now: Time) {
        if generation > seat.limit().generation() {
            let newest = self.store.newest.read().unwrap_or_else(PoisonError::into_inner);
            seat.newer = newest.get(seat.limit().identity()).cloned();
        }
        seat.converted = generation != seat.limit().generation();
        seat.state = state.carried(seat.limit(), generation, now);
    }

    /// Keeps a revised limit for callers that still hold an older one.
    fn remember(&self, seat: &Seat<'_>) {
        let (limit, generation) = (seat.limit(), seat.limit().generation());
        if generation == 0 {
            return;
        }
        let known = |limit: &tidegate_core::Limit| limit.generation() >= generation;
        let newest = self.store.newest.read().unwrap_or_else(PoisonError::into_inner);
        let up_to_date = newest.get(limit.identity()).is_some_and(known);
        drop(newest);
        if !up_to_date {
            let mut newest = self.store.newest.write().unwrap_or_else(PoisonError::into_inner);
            if !newest.get(limit.identity()).is_some_and(known) {
                newest.insert(limit.shared_identity(), limit.clone());
            }
        }
    }

    fn shared(&mut self) -> &mut Sets {
        let store = self.store;
        self.shared.get_or_insert_with(|| store.shared.lock())
    }
}

/// Counts the hold of a key. One that has passed under an older policy is, like the tokens of
/// the bucket, carried over to the present one; it must not close the key a second time.
fn count_hold(seat: &mut Seat<'_>, hold: Option<(Time, u32)>, now: Time) {
    let Some((until, generation)) = hold else { return };
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

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use std::time::Duration;

    use tidegate_core::{Charge, Key, Limit, Operation};

    use super::*;
    use crate::clock::ManualClock;
    use crate::table::Table;

    /// Room was made for the new keys of a list, and the sweep for it took out old ones of the
    /// same list, which then came back: a table without a vacant place, and a probe without end.
    #[test]
    fn room_is_made_for_every_key_of_a_list() {
        let clock = ManualClock::new();
        let builder = MemoryStore::builder().max_memory(1 << 20).clock(clock.clone()).seed(7);
        let store = builder.build().unwrap();
        let limit = Limit::named("a", Policy::per_second(1).build().unwrap()).unwrap();
        let names = (0..).map(|number: u32| number.to_string());
        let hash = |name: &str| store.hasher.bucket(&limit, Key::new(name));
        let names: Vec<String> =
            names.filter(|name| store.shard_of(hash(name)) == 0).take(16).collect();
        for name in &names[..7] {
            assert!(store.take_one(&limit, Key::new(name), 1).is_allowed());
        }
        clock.advance(Duration::from_secs(2));
        let charges: Vec<_> =
            names.iter().map(|name| Charge::new(&limit, name.as_str(), 1)).collect();
        assert!(store.execute(&Operation::Take(&charges)).is_ok());
        let shard = lock(&store.shards[0].0);
        assert_eq!(shard.table.len(), 16);
        assert!(shard.table.len() <= Table::load(shard.table.slots()));
    }
}
