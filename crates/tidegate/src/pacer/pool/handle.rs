//! A pacer's handle to a pool: the slot it has taken, and whether it waits for one.

use std::time::Duration;

use super::{PoolMember, SlotPool};
use crate::pacer::adaptive::{CallStart, PermitOutcome};
use crate::pacer::scheduler::slab::Id;

/// Result of requesting a slot.
pub(in crate::pacer) enum SlotRequest {
    Taken,
    /// The pacer waits for its turn. The pool grows after this time, if set and if the pacer still
    /// waits then.
    Waits(Option<Duration>),
}

/// The pool of one pacer, and what the pacer holds of it. Protected by the lock of the pacer.
pub(in crate::pacer) struct PoolHandle {
    member: PoolMember,
    pacer: Id,
    /// A slot was taken, but not granted to a waiter yet.
    has_slot: bool,
    /// The pacer may be waiting for its turn.
    may_wait: bool,
    /// Slots are free that may belong to another pacer: hand them out after unlocking.
    has_freed_slots: bool,
}

impl PoolHandle {
    pub(super) const fn new(member: PoolMember, pacer: Id) -> Self {
        Self { member, pacer, has_slot: false, may_wait: false, has_freed_slots: false }
    }

    pub(in crate::pacer) fn pool(&self) -> &SlotPool {
        self.member.pool()
    }

    /// Takes a slot, unless it has one, if the next slot is for this pacer.
    pub(in crate::pacer) fn try_take(&mut self) -> bool {
        let mut pool = self.member.0.pool.lock();
        if !self.has_slot && !pool.is_full() && pool.is_in_turn(self.pacer) {
            pool.pop_turn();
            pool.take(self.pacer);
            self.has_slot = true;
        }
        self.has_slot
    }

    /// Takes a slot for the head, unless it has one. If none is free, the pacer waits in the turns
    /// of these peers.
    pub(in crate::pacer) fn take(&mut self, peers: impl Iterator<Item = u64>) -> SlotRequest {
        if self.try_take() {
            return SlotRequest::Taken;
        }
        let mut pool = self.member.0.pool.lock();
        pool.wait(self.pacer, peers);
        self.may_wait = true;
        let mut growth = None;
        if pool.is_full() {
            if let Some(adaptive) = &mut pool.adaptive {
                let now = self.member.0.pool.shared.clock.now();
                growth = adaptive.slots_wanted(now).map(|growth| growth.since(now));
                let limit = adaptive.limit();
                pool.limit = Some(limit);
            }
        }
        // What the pool has grown by goes to the pacer whose turn it is.
        self.has_freed_slots |= !pool.is_full();
        SlotRequest::Waits(growth)
    }

    /// Records the start of a call, for an adaptive size.
    pub(in crate::pacer) fn call_started(&self) -> CallStart {
        let mut pool = self.member.0.pool.lock();
        let (in_flight, clock) = (pool.in_flight, &self.member.0.pool.shared.clock);
        let adaptive = pool.adaptive.as_mut();
        adaptive.map_or_else(CallStart::default, |one| one.call_started(in_flight, clock.now()))
    }

    /// Records that the slot was granted to a waiter. If it was put back while a shared store was
    /// called, another one is taken, and the limit is exceeded by one.
    pub(in crate::pacer) fn granted(&mut self) {
        if !std::mem::take(&mut self.has_slot) {
            self.member.0.pool.lock().take(self.pacer);
        }
    }

    /// Puts back a slot that no waiter can use.
    pub(in crate::pacer) fn put_back(&mut self) {
        if std::mem::take(&mut self.has_slot) {
            let mut pool = self.member.0.pool.lock();
            pool.put_back(self.pacer);
            self.has_freed_slots |= pool.waiting > 0;
        }
    }

    /// Gives back the slot of a permit that ended, or of a grant that was abandoned.
    pub(in crate::pacer) fn give_back(&mut self, report: Option<(PermitOutcome, CallStart)>) {
        let mut pool = self.member.0.pool.lock();
        let counts = report.filter(|(outcome, _)| match outcome {
            PermitOutcome::Throttled { .. } => pool.is_pushed_back(self.pacer),
            _ => true,
        });
        pool.put_back(self.pacer);
        if let (Some((outcome, call_start)), Some(adaptive)) = (counts, &mut pool.adaptive) {
            adaptive.call_ended(outcome, call_start, self.member.0.pool.shared.clock.now());
            let limit = adaptive.limit();
            pool.limit = Some(limit);
        }
        self.has_freed_slots |= pool.waiting > 0;
    }

    /// Records that no waiter of the pacer could use a slot.
    pub(in crate::pacer) fn set_idle(&mut self) {
        self.put_back();
        if !std::mem::take(&mut self.may_wait) {
            return;
        }
        let mut pool = self.member.0.pool.lock();
        pool.leave_turns(self.pacer);
        if pool.waiting == 0 {
            if let Some(adaptive) = &mut pool.adaptive {
                adaptive.slots_free();
            }
        }
    }

    /// Accepts a slot from the pool. Returns `false` if it already has one.
    pub(in crate::pacer) fn accept(&mut self) -> bool {
        !std::mem::replace(&mut self.has_slot, true)
    }

    /// The pool, if it has slots to hand out now that the pacer is unlocked.
    pub(in crate::pacer) fn take_freed(&mut self) -> Option<SlotPool> {
        std::mem::take(&mut self.has_freed_slots).then(|| self.pool().clone())
    }
}

impl Drop for PoolHandle {
    fn drop(&mut self) {
        self.put_back();
        let mut pool = self.member.0.pool.lock();
        pool.leave_turns(self.pacer);
        pool.pacers.remove(self.pacer);
        drop(pool);
        // The pacer is gone, so no lock is held.
        self.pool().hand_out();
    }
}
