//! Leases: slots of the store that grants hold, renewed for as long as the grants live.
//!
//! A slot under a concurrency limit with a lease runs out by itself, so that a holder that crashed
//! frees it. While a grant lives, whether its waiter has heard of it or not, its slots are renewed
//! at a third of the lease: all that are due go to the store in one submission, sent by whoever
//! watches the time for the pacer. No grant has a timer or a task of its own, and one without a
//! lease never comes here.
//!
//! A slot that has run out is not taken anew: another may have it by now, and others wait in line.
//! Its holder is told.

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{Policy, Receipt, Time};

use crate::pacer::claim::Claim;
use crate::pacer::driver::driver_slot::Post;
use crate::pacer::driver::renewal::{Reply, Round};
use crate::pacer::pending_acquire::{Moment, PendingAcquire, is_slot};
use crate::sync::{Mutex, MutexGuard};

/// The longest pause before a renewal is tried again that the store did not answer.
const PAUSE: Duration = Duration::from_secs(1);

/// What timers can tell apart. Leases shorter than a few of these are not worth having.
const GRAIN: Duration = Duration::from_millis(1);

/// So many leases are not worth looking for ended ones among them.
const FEW: usize = 32;

/// What a grant consists of.
#[derive(Debug)]
pub(in crate::pacer) struct Holding {
    pub(in crate::pacer) receipt: Receipt,
    /// If some of it runs out unless renewed.
    pub(in crate::pacer) lease: Option<Box<Lease>>,
}

/// The end of a lease that its holder has: once it is dropped nothing is renewed any more.
#[derive(Debug)]
pub(in crate::pacer) struct Lease {
    held: Arc<Held>,
    /// The driver that looks after it.
    pub(in crate::pacer) post: Post,
}

impl Lease {
    /// Whether some of the slots are known to be lost, or must have run out by now.
    pub(in crate::pacer) fn is_lost(&self, now: Time) -> bool {
        let standing = self.held.standing();
        standing.lost || standing.term.is_some_and(|term| term.ends <= now)
    }

    /// No more than so many slots of each claim are held from now on.
    pub(in crate::pacer) fn lower_to(&self, slots: &[u64]) {
        let mut standing = self.held.standing();
        for (held, slots) in standing.slots.iter_mut().zip(slots) {
            *held = (*held).min(*slots);
        }
        standing.forget_if_empty();
    }

    /// Nothing is renewed any more: a round that is under way must not take what is given back for
    /// lost.
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

/// How it stands with the slots of a grant.
#[derive(Debug)]
struct Standing {
    /// At least so many of each claim.
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

/// From one renewal to the next.
#[derive(Clone, Copy, Debug)]
struct Term {
    lease: Duration,
    due: Time,
    /// The store counts from the instant at which it answered, which was before we heard of it:
    /// by now it has run out in any case.
    ends: Time,
}

impl Term {
    fn new(lease: Duration, now: Time) -> Self {
        Self { lease, due: now.after((lease / 3).max(GRAIN)), ends: now.after(lease) }
    }

    /// Whether it is renewed together with one of that lease that is due: so those of one lease go
    /// in step and make one submission for each third of it. Longer ones go along if they are
    /// nearly due.
    fn goes_along(&self, lease: Duration, now: Time) -> bool {
        self.lease <= lease || self.due <= now.after(self.lease / 12)
    }

    /// How long an answer is waited for, so that there is time to try again.
    fn patience(&self) -> Duration {
        (self.lease / 6).max(GRAIN)
    }

    /// The store did not answer: once more soon, but never in a storm.
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

    /// Whether there is anything to renew under these policies. A limit that has no slots any more
    /// counts none.
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

/// What the grants of one pacer hold that runs out.
#[derive(Debug, Default)]
pub(in crate::pacer) struct Leases {
    /// Those that have ended are found and dropped when there are many, and with every round.
    held: Vec<Weak<Held>>,
    sweep_at: usize,
    /// When the next is due; rather too early than too late.
    tick: Option<Time>,
    lost: u64,
}

impl Leases {
    /// Keeps the slots of a receipt from running out.
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

    /// When the next is due.
    pub(in crate::pacer) const fn tick(&self) -> Option<Time> {
        self.tick
    }

    pub(in crate::pacer) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// How many grants have lost slots before they gave them back.
    pub(in crate::pacer) const fn lost(&self) -> u64 {
        self.lost
    }

    /// Forgets those that have ended, and finds out when the next is due.
    pub(in crate::pacer) fn sweep(&mut self) {
        let mut tick: Option<Time> = None;
        self.held.retain(|held| {
            let Some(term) = held.upgrade().and_then(|held| held.term()) else { return false };
            tick = Some(tick.map_or(term.due, |tick| tick.min(term.due)));
            true
        });
        self.tick = tick;
    }

    /// Those that are to be renewed now.
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
            // If the round comes to nothing, because its runtime stands still, another is due.
            term.due = now.after(2 * term.patience());
            patience = patience.min(term.patience());
            drop(standing);
            held.push(one);
        }
        self.sweep();
        Some(Round { held, patience })
    }

    /// Does what the store said of one of them.
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
