//! Leases: slots of the store that grants hold, renewed while the grants live.
//!
//! A slot of a concurrency limit with a lease expires by itself, so that a crashed holder frees it.
//! While a grant lives, whether or not its waiter has been polled since, its slots are renewed at a
//! third of the lease. All slots that are due go to the store in one submission, made by the driver
//! of the pacer. A grant has no timer or task of its own, and a grant without a lease does not
//! appear here.
//!
//! A slot that has expired is not taken again: another holder may have it by now, and there is a
//! queue for it. Instead the permit reports it as lost.

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{Policy, Receipt, Time};

use crate::pacer::claim::Claim;
use crate::pacer::driver::driver_slot::DriverSlot;
use crate::pacer::driver::renewal::{RenewalResult, RenewalRound};
use crate::pacer::pending_acquire::{ClaimSnapshots, PendingAcquire, is_slot};
use crate::sync::{Mutex, MutexGuard};

/// Longest delay before a renewal that the store did not answer is retried.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Resolution of timers. Leases shorter than a few of these are not useful.
const TIMER_RESOLUTION: Duration = Duration::from_millis(1);

/// Below this number of leases, ended ones are not searched for.
const MIN_SWEEP: usize = 32;

/// What a grant consists of.
#[derive(Debug)]
pub(in crate::pacer) struct StoreGrant {
    pub(in crate::pacer) receipt: Receipt,
    /// Set if some of it expires unless renewed.
    pub(in crate::pacer) lease: Option<Box<LeaseGuard>>,
}

/// The holder's side of a lease. Renewal stops when it is dropped.
#[derive(Debug)]
pub(in crate::pacer) struct LeaseGuard {
    leased: Arc<LeasedSlots>,
    /// The driver that renews it.
    pub(in crate::pacer) driver_slot: DriverSlot,
}

impl LeaseGuard {
    /// Whether some of the slots are known to be lost, or must have expired by now.
    pub(in crate::pacer) fn is_lost(&self, now: Time) -> bool {
        let state = self.leased.state();
        state.lost || state.term.is_some_and(|term| term.ends <= now)
    }

    /// Lowers the number of slots held for each claim.
    pub(in crate::pacer) fn lower_to(&self, slots: &[u64]) {
        let mut state = self.leased.state();
        for (current, slots) in state.slots.iter_mut().zip(slots) {
            *current = (*current).min(*slots);
        }
        state.end_if_empty();
    }

    /// Stops renewal: a round in flight must not report slots as lost that are being given back.
    pub(in crate::pacer) fn end(&self) {
        self.leased.state().term = None;
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        self.end();
    }
}

/// The slots of one grant.
#[derive(Debug)]
pub(in crate::pacer) struct LeasedSlots {
    pub(in crate::pacer) claims: SmallVec<[Claim; 1]>,
    pub(in crate::pacer) receipt: Receipt,
    state: Mutex<LeaseState>,
}

/// State of the slots of a grant.
#[derive(Debug)]
struct LeaseState {
    /// Slots of each claim that are certainly held.
    slots: SmallVec<[u64; 2]>,
    /// `None` once there is nothing to renew.
    term: Option<Term>,
    lost: bool,
}

impl LeaseState {
    fn end_if_empty(&mut self) {
        if self.slots.iter().all(|slots| *slots == 0) {
            self.term = None;
        }
    }
}

/// The time from one renewal to the next.
#[derive(Clone, Copy, Debug)]
struct Term {
    lease: Duration,
    due: Time,
    /// When the lease has certainly expired. The store counts from the instant of its answer, which
    /// was before we received it.
    ends: Time,
}

impl Term {
    fn new(lease: Duration, now: Time) -> Self {
        Self { lease, due: now.after((lease / 3).max(TIMER_RESOLUTION)), ends: now.after(lease) }
    }

    /// Whether it is renewed together with a lease of length `lease` that is due. So leases of the
    /// same length are renewed in one submission per third of it. Longer ones join if they are
    /// nearly due.
    fn joins_round(&self, lease: Duration, now: Time) -> bool {
        self.lease <= lease || self.due <= now.after(self.lease / 12)
    }

    /// How long to wait for an answer, so that there is time for a retry.
    fn timeout(&self) -> Duration {
        (self.lease / 6).max(TIMER_RESOLUTION)
    }

    /// The term after a failed renewal: retried soon, but not in a tight loop.
    fn retry(self, now: Time) -> Self {
        Self { due: now.after((self.lease / 10).clamp(TIMER_RESOLUTION, MAX_RETRY_DELAY)), ..self }
    }
}

impl LeasedSlots {
    fn state(&self) -> MutexGuard<'_, LeaseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn term(&self) -> Option<Term> {
        self.state().term
    }

    /// Whether there is anything to renew under these policies. A limit that is no longer a
    /// concurrency limit has no slots.
    pub(in crate::pacer) fn is_worth_renewing(&self, snapshots: &ClaimSnapshots<'_>) -> bool {
        let mut state = self.state();
        for (slots, policy) in state.slots.iter_mut().zip(snapshots.policies()) {
            if !matches!(policy, Policy::Concurrency(_)) {
                *slots = 0;
            }
        }
        state.end_if_empty();
        state.term.is_some()
    }
}

/// The leases of one pacer.
#[derive(Debug, Default)]
pub(in crate::pacer) struct Leases {
    /// Ended leases are dropped when there are many, and in every round.
    leased: Vec<Weak<LeasedSlots>>,
    sweep_at: usize,
    /// When the next lease is due, possibly too early.
    next_due: Option<Time>,
    lost: u64,
}

impl Leases {
    /// Registers the slots of a receipt for renewal.
    #[cold]
    pub(in crate::pacer) fn register(
        &mut self,
        pending: &PendingAcquire,
        receipt: &Receipt,
        lease: Duration,
        now: Time,
    ) -> Box<LeaseGuard> {
        let slots = pending
            .claims
            .iter()
            .zip(receipt.charges())
            .map(|(claim, record)| if is_slot(record) { claim.cost } else { 0 });
        let term = Term::new(lease, now);
        let state = LeaseState { slots: slots.collect(), term: Some(term), lost: false };
        let (claims, receipt) = (pending.claims.clone(), receipt.clone());
        let leased = Arc::new(LeasedSlots { claims, receipt, state: Mutex::new(state) });
        if self.leased.len() >= self.sweep_at.max(MIN_SWEEP) {
            self.sweep();
            self.sweep_at = 2 * self.leased.len();
        }
        self.leased.push(Arc::downgrade(&leased));
        self.next_due = Some(self.next_due.map_or(term.due, |next_due| next_due.min(term.due)));
        Box::new(LeaseGuard { leased, driver_slot: DriverSlot::default() })
    }

    /// When the next lease is due.
    pub(in crate::pacer) const fn next_due(&self) -> Option<Time> {
        self.next_due
    }

    pub(in crate::pacer) fn is_empty(&self) -> bool {
        self.leased.is_empty()
    }

    /// Number of grants that lost slots before they released them.
    pub(in crate::pacer) const fn lost(&self) -> u64 {
        self.lost
    }

    /// Drops ended leases, and recomputes when the next one is due.
    pub(in crate::pacer) fn sweep(&mut self) {
        let mut next_due: Option<Time> = None;
        self.leased.retain(|leased| {
            let Some(term) = leased.upgrade().and_then(|leased| leased.term()) else {
                return false;
            };
            next_due = Some(next_due.map_or(term.due, |next_due| next_due.min(term.due)));
            true
        });
        self.next_due = next_due;
    }

    /// The leases to renew now.
    pub(in crate::pacer) fn take_due(&mut self, now: Time) -> Option<RenewalRound> {
        self.sweep();
        let all: Vec<_> = self.leased.iter().filter_map(Weak::upgrade).collect();
        let terms = all.iter().filter_map(|leased| leased.term());
        let longest = terms.filter(|term| term.due <= now).map(|term| term.lease).max()?;
        let (mut leased, mut timeout) = (Vec::new(), Duration::MAX);
        for one in all {
            let mut state = one.state();
            let term = state.term.as_mut().filter(|term| term.joins_round(longest, now));
            let Some(term) = term else { continue };
            // If the round never completes, because its runtime stalls, another round is due then.
            term.due = now.after(2 * term.timeout());
            timeout = timeout.min(term.timeout());
            drop(state);
            leased.push(one);
        }
        self.sweep();
        Some(RenewalRound { leased, timeout })
    }

    /// Applies the store's answer for one lease.
    pub(in crate::pacer) fn apply_renewal(&mut self, result: RenewalResult<'_>, now: Time) {
        let RenewalResult { leased, lease, slots } = result;
        let mut state = leased.state();
        // Without a term it was given back meanwhile.
        let Some(term) = state.term else { return };
        let least = state.slots.iter().fold(0, |sum: u64, slots| sum.saturating_add(*slots));
        let (term, lost) = match slots {
            Ok(0) => (None, true),
            Ok(slots) => (lease.map(|lease| Term::new(lease, now)), slots < least),
            Err(error) if error.is_caller_error() || term.ends <= now => (None, true),
            Err(_) => (Some(term.retry(now)), false),
        };
        state.term = term;
        if lost && !std::mem::replace(&mut state.lost, true) {
            self.lost += 1;
        }
    }
}
