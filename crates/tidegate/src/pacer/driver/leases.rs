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
use crate::pacer::driver::driver_slot::Post;
use crate::pacer::driver::renewal::{Reply, Round};
use crate::pacer::pending_acquire::{Moment, PendingAcquire, is_slot};
use crate::sync::{Mutex, MutexGuard};

/// Longest delay before a renewal that the store did not answer is retried.
const PAUSE: Duration = Duration::from_secs(1);

/// Resolution of timers. Leases shorter than a few of these are not useful.
const GRAIN: Duration = Duration::from_millis(1);

/// Below this number of leases, ended ones are not searched for.
const FEW: usize = 32;

/// What a grant consists of.
#[derive(Debug)]
pub(in crate::pacer) struct Holding {
    pub(in crate::pacer) receipt: Receipt,
    /// Set if some of it expires unless renewed.
    pub(in crate::pacer) lease: Option<Box<Lease>>,
}

/// The holder's side of a lease. Renewal stops when it is dropped.
#[derive(Debug)]
pub(in crate::pacer) struct Lease {
    held: Arc<Held>,
    /// The driver that renews it.
    pub(in crate::pacer) post: Post,
}

impl Lease {
    /// Whether some of the slots are known to be lost, or must have expired by now.
    pub(in crate::pacer) fn is_lost(&self, now: Time) -> bool {
        let standing = self.held.standing();
        standing.lost || standing.term.is_some_and(|term| term.ends <= now)
    }

    /// Lowers the number of slots held for each claim.
    pub(in crate::pacer) fn lower_to(&self, slots: &[u64]) {
        let mut standing = self.held.standing();
        for (held, slots) in standing.slots.iter_mut().zip(slots) {
            *held = (*held).min(*slots);
        }
        standing.forget_if_empty();
    }

    /// Stops renewal: a round in flight must not report slots as lost that are being given back.
    pub(in crate::pacer) fn end(&self) {
        self.held.standing().term = None;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.end();
    }
}

/// The slots of one grant.
#[derive(Debug)]
pub(in crate::pacer) struct Held {
    pub(in crate::pacer) claims: SmallVec<[Claim; 1]>,
    pub(in crate::pacer) receipt: Receipt,
    standing: Mutex<Standing>,
}

/// State of the slots of a grant.
#[derive(Debug)]
struct Standing {
    /// Slots of each claim that are certainly held.
    slots: SmallVec<[u64; 2]>,
    /// `None` once there is nothing to renew.
    term: Option<Term>,
    lost: bool,
}

impl Standing {
    fn forget_if_empty(&mut self) {
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
        Self { lease, due: now.after((lease / 3).max(GRAIN)), ends: now.after(lease) }
    }

    /// Whether it is renewed together with a lease of length `lease` that is due. So leases of the
    /// same length are renewed in one submission per third of it. Longer ones join if they are
    /// nearly due.
    fn goes_along(&self, lease: Duration, now: Time) -> bool {
        self.lease <= lease || self.due <= now.after(self.lease / 12)
    }

    /// How long to wait for an answer, so that there is time for a retry.
    fn patience(&self) -> Duration {
        (self.lease / 6).max(GRAIN)
    }

    /// The term after a failed renewal: retried soon, but not in a tight loop.
    fn again(self, now: Time) -> Self {
        Self { due: now.after((self.lease / 10).clamp(GRAIN, PAUSE)), ..self }
    }
}

impl Held {
    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn term(&self) -> Option<Term> {
        self.standing().term
    }

    /// Whether there is anything to renew under these policies. A limit that is no longer a
    /// concurrency limit has no slots.
    pub(in crate::pacer) fn is_worth_renewing(&self, moment: &Moment<'_>) -> bool {
        let mut standing = self.standing();
        for (slots, policy) in standing.slots.iter_mut().zip(moment.policies()) {
            if !matches!(policy, Policy::Concurrency(_)) {
                *slots = 0;
            }
        }
        standing.forget_if_empty();
        standing.term.is_some()
    }
}

/// The leases of one pacer.
#[derive(Debug, Default)]
pub(in crate::pacer) struct Leases {
    /// Ended leases are dropped when there are many, and in every round.
    held: Vec<Weak<Held>>,
    sweep_at: usize,
    /// When the next lease is due, possibly too early.
    tick: Option<Time>,
    lost: u64,
}

impl Leases {
    /// Registers the slots of a receipt for renewal.
    #[cold]
    pub(in crate::pacer) fn keep(
        &mut self,
        ticket: &PendingAcquire,
        receipt: &Receipt,
        lease: Duration,
        now: Time,
    ) -> Box<Lease> {
        let slots = ticket
            .claims
            .iter()
            .zip(receipt.stamps())
            .map(|(claim, stamp)| if is_slot(stamp) { claim.cost } else { 0 });
        let term = Term::new(lease, now);
        let standing = Standing { slots: slots.collect(), term: Some(term), lost: false };
        let (claims, receipt) = (ticket.claims.clone(), receipt.clone());
        let held = Arc::new(Held { claims, receipt, standing: Mutex::new(standing) });
        if self.held.len() >= self.sweep_at.max(FEW) {
            self.sweep();
            self.sweep_at = 2 * self.held.len();
        }
        self.held.push(Arc::downgrade(&held));
        self.tick = Some(self.tick.map_or(term.due, |tick| tick.min(term.due)));
        Box::new(Lease { held, post: Post::default() })
    }

    /// When the next lease is due.
    pub(in crate::pacer) const fn tick(&self) -> Option<Time> {
        self.tick
    }

    pub(in crate::pacer) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Number of grants that lost slots before they released them.
    pub(in crate::pacer) const fn lost(&self) -> u64 {
        self.lost
    }

    /// Drops ended leases, and recomputes when the next one is due.
    pub(in crate::pacer) fn sweep(&mut self) {
        let mut tick: Option<Time> = None;
        self.held.retain(|held| {
            let Some(term) = held.upgrade().and_then(|held| held.term()) else { return false };
            tick = Some(tick.map_or(term.due, |tick| tick.min(term.due)));
            true
        });
        self.tick = tick;
    }

    /// The leases to renew now.
    pub(in crate::pacer) fn due(&mut self, now: Time) -> Option<Round> {
        self.sweep();
        let all: Vec<_> = self.held.iter().filter_map(Weak::upgrade).collect();
        let terms = all.iter().filter_map(|held| held.term());
        let longest = terms.filter(|term| term.due <= now).map(|term| term.lease).max()?;
        let (mut held, mut patience) = (Vec::new(), Duration::MAX);
        for one in all {
            let mut standing = one.standing();
            let term = standing.term.as_mut().filter(|term| term.goes_along(longest, now));
            let Some(term) = term else { continue };
            // If the round never completes, because its runtime stalls, another round is due then.
            term.due = now.after(2 * term.patience());
            patience = patience.min(term.patience());
            drop(standing);
            held.push(one);
        }
        self.sweep();
        Some(Round { held, patience })
    }

    /// Applies the store's answer for one lease.
    pub(in crate::pacer) fn answered(&mut self, reply: Reply<'_>, now: Time) {
        let Reply { held, lease, slots } = reply;
        let mut standing = held.standing();
        // Without a term it was given back meanwhile.
        let Some(term) = standing.term else { return };
        let least = standing.slots.iter().fold(0, |sum: u64, slots| sum.saturating_add(*slots));
        let (term, lost) = match slots {
            Ok(0) => (None, true),
            Ok(slots) => (lease.map(|lease| Term::new(lease, now)), slots < least),
            Err(error) if error.is_callers_fault() || term.ends <= now => (None, true),
            Err(_) => (Some(term.again(now)), false),
        };
        standing.term = term;
        if lost && !std::mem::replace(&mut standing.lost, true) {
            self.lost += 1;
        }
    }
}
