//! A guard around any store: when the store does not answer, the failure rules of the limits
//! decide, and nobody waits for it longer than a time-out.
//!
//! [`Guarded`] is itself a store. It does three things for the one inside:
//!
//! - **Time-out.** No call outlives it: 50 ms unless set otherwise, or three quarters of the
//!   caller's deadline if that is less ([`within`]), to the millisecond. A call that timed out may
//!   have been charged; nothing but holds is ever sent again.
//! - **Breaker.** After three failures in a row the store is down: callers do not touch it any
//!   more and are answered at once. One task probes it in the background, after 100 ms at first
//!   and every 5 s at the most, each time up to a quarter earlier; the first answer brings it back.
//!   A call that its caller's own deadline cut short counts for nothing, but has the store probed
//!   with the whole time-out; if that is not answered, the store is down too.
//! - **Failure rules.** A [`FailureRule`] belongs to a limit
//!   ([`Limiter::set_failure_rule`](crate::Limiter::set_failure_rule)); without one
//!   calendar quotas are closed and other limits follow the guard's default, which is local. In a
//!   list, a closed limit that is to be charged denies all of it, open ones are allowed and
//!   reported as full, and local ones are decided together, all-or-nothing. A cost of zero is
//!   never denied. Every decision made so says it ([`Decision::degraded`]), by the strictest rule
//!   in the list.
//!
//! Where the store is not to blame, nothing is open: limits with that rule are local for an
//! operation that a working store cannot carry out ([`StoreError::Rejected`]), for a caller whose
//! own deadline has passed or cut the call short, and outside of any runtime.
//!
//! # How much is admitted without the store
//!
//! Under rule local each node enforces its share by itself: the limit divided by the number of
//! nodes that the store tells of, or by the number of expected nodes before it ever did. Those
//! expected are also the least until the store has answered this process for 10 s: right after a
//! start it may not have heard of the others. The rate is divided exactly; capacity, debt, quota, allowance and slots are rounded down, but every
//! node has at least one token.
//!
//! So n nodes that have last seen n together admit, of a limit with capacity C and rate r, in a
//! time t without the store at most **C + r t + max(0, n - C)**. The last term is there because
//! each has at least one token.
//!
//! With the store lost and found in between, what the shared bucket holds and what the shares hold
//! add up: with s such switches at most **(1 + s) max(C, n) + r (t + d)**, where d is the time in
//! which some nodes decide by themselves while others reach the store. After a failure that all
//! nodes see, d is at most the pause between two probes and a time-out. A node that is cut off
//! alone adds its share to what the store admits, for as long as that lasts.
//!
//! Whatever happens, and however often, shares are buckets like any other: together with what the
//! store admits, never more than **C + max(C, n) + 2 r t**. A node that joined since the others
//! saw the store last is not counted, and admits its share on top.
//!
//! Rules open and closed need no such bound: one admits everything and the other nothing.
//!
//! # The other verbs while the store is down
//!
//! | verb | what happens |
//! | --- | --- |
//! | settle, release, renew of a degraded grant | carried out by the node that charged it, also after the store is back; any other refuses the receipt; of a charge under rule open there is nothing to correct |
//! | the same with a receipt of the store, or settle without one | the error: nobody else knows what was charged; leases run out by themselves |
//! | hold | under rule local obeyed by this node, and what is left of it is told to the store when that answers again, up to 1,024 of them; else the error. One that the store has taken is obeyed here too when it goes away |
//! | reset | what was spent here is forgotten, and the error says that the store still knows more |
//!
//! # Where it works
//!
//! A guard needs a tokio runtime with timers, and panics in one without, as tokio's timers do.
//! Outside of any, the store is not asked and failure rules decide. The store must implement
//! [`Store::probe`] if it can fail: by default that always succeeds, and the store would be found
//! again as soon as it is lost. The probing task lives in the runtime of the caller that found the store down;
//! if that ends, or is not run any more, a later caller starts another one in its own.

mod breaker;
mod builder;
mod call;
mod deadline;
mod fallback;
mod guarded;
mod holds;
mod nodes;
mod prober;
mod receipts;
mod share;
mod stats;

use std::time::Duration;

use tidegate_core::FailureRule;
#[cfg(doc)]
use tidegate_core::{Decision, Limit, Store, StoreError};

pub use builder::{GuardBuilder, GuardError};
pub use deadline::within;
pub use guarded::Guarded;
pub use stats::GuardStats;

/// Why a guard did not ask its store. Nothing was carried out.
///
/// This is what a [`StoreError::Unavailable`] of a guarded store holds when no failure rule can
/// answer the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotAsked {
    /// It does not answer, and is not asked until it answers a probe.
    #[error("the store does not answer and is probed in the background")]
    Down {
        /// When it is worth trying again: after the next probe.
        retry_after: Duration,
    },
    /// The caller's deadline has passed.
    #[error("the caller's deadline had passed before the store was asked")]
    TooLate,
    /// There is no tokio runtime to wait in.
    #[error("a guarded store is asked in a tokio runtime only")]
    NoRuntime,
}

impl NotAsked {
    /// The most lenient rule by which is decided what was not asked. That everything is allowed
    /// while a store is down is no reason to allow it to a caller who leaves a working one no time.
    const fn most_lenient(self) -> FailureRule {
        match self {
            Self::Down { .. } => FailureRule::Open,
            Self::TooLate | Self::NoRuntime => FailureRule::Local,
        }
    }
}
