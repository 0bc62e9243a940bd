//! A guard around any store: calls to the store have a timeout, and when the store does not answer,
//! the failure rules of the limits decide.
//!
//! [`GuardedStore`] is itself a store. It adds three things to the store inside:
//!
//! - **Timeout.** No call takes longer than 50 ms by default, or three quarters of the caller's
//!   deadline if that is less ([`with_deadline`]), to the millisecond. A call that timed out may
//!   have been charged. Nothing but holds is ever sent twice.
//! - **Circuit breaker.** After three consecutive failures the store counts as down: callers no
//!   longer touch it and are answered at once. One background task probes it, first after 100 ms,
//!   then at growing intervals of at most 5 s, each shortened at random by up to a quarter. The
//!   first successful probe brings the store back. A call that was cut short by its caller's own
//!   deadline is not a failure, but triggers a probe with the full timeout; if that probe fails,
//!   the store is down as well.
//! - **Failure rules.** A [`FailureRule`] belongs to a limit
//!   ([`Limiter::set_failure_rule`](crate::Limiter::set_failure_rule)). Without one, calendar
//!   quotas are closed, and other limits follow the guard's default, which is local. In a list, a
//!   closed limit with a nonzero cost denies the whole list, open limits are allowed and reported
//!   as full, and local limits are decided together, all or nothing. A cost of zero is never
//!   denied. Every decision made this way reports the strictest rule in the list
//!   ([`Decision::degraded`]).
//!
//! The rule open applies only to outages. Limits with that rule are decided as local when the store
//! works but cannot run the operation ([`StoreError::Rejected`]), when the caller's own deadline
//! has passed or cut the call short, and outside a tokio runtime.
//!
//! # How much is admitted without the store
//!
//! Under rule local, each node enforces its share of the limit: the limit divided by the number of
//! nodes that the store reports, or by the number of expected nodes before it has reported any.
//! Until the store has answered this process for 10 s, the expected number is also a minimum: right
//! after a start the store may not know the other nodes yet. The rate is divided exactly. Capacity,
//! debt, quota, allowance and slots are rounded down, but every node has at least one token.
//!
//! So n nodes that last saw n nodes, and a limit with capacity C and rate r, together admit at most
//! **C + r t + max(0, n - C)** in a time t without the store. The last term is there because each
//! node has at least one token.
//!
//! If the store goes away and comes back in between, the contents of the shared bucket and of the
//! shares add up: with s such transitions at most **(1 + s) max(C, n) + r (t + d)**, where d is the
//! time during which some nodes decide by themselves while others reach the store. After a failure
//! that all nodes see, d is at most the interval between two probes plus a timeout. A single node
//! that is cut off adds its share to what the store admits, for as long as that lasts.
//!
//! Shares are buckets like any other, so whatever happens, the shares and the store together never
//! admit more than **C + max(C, n) + 2 r t**. A node that has joined since the others last saw the
//! store is not counted, and admits its share on top.
//!
//! Rules open and closed need no such bound: open admits everything and closed nothing.
//!
//! # Other operations while the store is down
//!
//! | operation | effect |
//! | --- | --- |
//! | settle, release, renew of a degraded grant | run on the node that charged it, also after the store is back; other nodes reject the receipt; a charge under rule open has nothing to correct |
//! | settle, release, renew with a receipt of the store; settle without a receipt | the error: only the store knows what was charged; leases expire by themselves |
//! | hold | under rule local: applied on this node, and the rest of it is sent to the store when that answers again, up to 1,024 holds; else the error. A hold that the store has accepted is also applied here when the store goes away |
//! | reset | forgets what was spent on this node, and returns the error, because the store still has its bucket |
//!
//! # Requirements
//!
//! A guard needs a tokio runtime with timers. In a runtime without timers it panics, as tokio's
//! timers do. Outside a runtime, the store is not called and the failure rules decide. A store that
//! can fail must implement [`Store::probe`]: the default always succeeds, and the store would count
//! as up again right after it went down. The probing task runs in the runtime of the caller that
//! found the store down. If that runtime ends or stops being driven, a later caller starts another
//! task in its own.

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
pub use deadline::with_deadline;
pub use guarded::GuardedStore;
pub use stats::GuardStats;

/// Why a guard did not call its store. Nothing was executed.
///
/// A guarded store returns it inside [`StoreError::Unavailable`] when no failure rule applies to
/// the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotCalled {
    /// The store is down. It is not called until a probe succeeds.
    #[error("the store is down; it is probed in the background")]
    Down {
        /// Time until the next probe: retrying earlier is pointless.
        retry_after: Duration,
    },
    /// The caller's deadline has passed.
    #[error("the caller's deadline passed before the store was called")]
    DeadlinePassed,
    /// There is no tokio runtime.
    #[error("a guarded store can be called only in a tokio runtime")]
    NoRuntime,
}

impl NotCalled {
    /// The most lenient rule that may decide instead. An outage may allow everything; a caller that
    /// leaves a working store no time may not.
    const fn most_lenient(self) -> FailureRule {
        match self {
            Self::Down { .. } => FailureRule::Open,
            Self::DeadlinePassed | Self::NoRuntime => FailureRule::Local,
        }
    }
}
