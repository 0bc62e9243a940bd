//! One rate-limiting engine for both directions of a call.
//!
//! A [`Limiter`] is a policy and the store its buckets live in:
//!
//! ```
//! use tidegate::{KeyBuf, Limiter, Policy};
//!
//! let limiter = Limiter::new(Policy::per_second(100).capacity(200).build()?);
//! let key = KeyBuf::from_parts(["rl", "public", "anon", "PING"]);
//! let decision = limiter.take(&key).now()?;
//! assert!(decision.is_allowed());
//! assert_eq!(decision.remaining(), 199);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - `take`, `peek`, `reserve`, `settle`, `hold` and `reset` are described at [`Limiter`]; several
//!   limits are decided together, all-or-nothing, by an [`Engine`].
//! - A [`Request`] is carried out at once by [`now`](Request::now) on the in-process store, and by
//!   `.await` on any store. There is one set of verbs for both.
//! - Many requests are decided in one go, each by itself, as a [`Batch`].
//! - Denied is a value ([`Decision`]); only a store that cannot answer is an error.
//! - A store that can fail is put behind a `guard` (feature `tokio`), with a failure rule for each
//!   limit. Its circuit breaker is a state machine of its own ([`breaker`]).
//! - Tests drive a [`clock::ManualClock`].

pub mod admission;
pub mod breaker;
#[cfg(feature = "tokio")]
mod direct;
mod engine;
#[cfg(feature = "tokio")]
pub mod guard;
mod jitter;
mod limiter;
pub mod pacer;
mod request;
#[cfg(feature = "calendar")]
mod schedule;
mod store_handle;
mod sync;
mod terms;
#[cfg(feature = "tokio")]
mod tokio_clock;

pub mod clock {
    //! Clocks for the in-process store: the processor's, the system's, one that is kept in memory,
    //! and one for tests.
    pub use tidegate_memory::clock::{
        CachedClock, Clock, CounterClock, ManualClock, NoCounter, SystemClock, wall_now,
    };

    #[cfg(feature = "tokio")]
    pub use crate::tokio_clock::TokioClock;
}

#[cfg(feature = "tokio")]
pub use direct::DirectWait;
#[cfg(feature = "calendar")]
pub use engine::CalendarError;
pub use engine::Engine;
pub use jitter::Jitter;
pub use limiter::Limiter;
pub use request::batch::Batch;
pub use request::store_future::{Ask, StoreFuture};
pub use request::{FromAnswer, Request};
#[cfg(feature = "calendar")]
pub use schedule::{Every, Schedule, ScheduleError};
pub use store_handle::{StoreHandle, now_or_never};
pub use terms::Snapshot;
pub use tidegate_core::hash;
pub use tidegate_core::{
    Allowance, Answer, Answers, Bucket, Change, Charge, ChargeError, Concurrency, Correction,
    Decimal, DecimalError, Decision, Denial, FailureRule, Grant, Key, KeyBuf, KeyError, Limit,
    LimitError, MAX_CHARGES, MAX_KEY_BYTES, MAX_SPAN, Operation, Outcome, Outcomes, Place, Policy,
    PolicyBuilder, PolicyError, Probe, Quota, Rate, RateError, Receipt, ReceiptError, Retry,
    Settlement, Store, StoreError, Submission, Target, Time, WallTime, Windows, ceil_millis,
};
pub use tidegate_memory::{
    BareDecision, DirectLimiter, MemoryError, MemoryStore, MemoryStoreBuilder, Overflow, Restored,
    Saved, SnapshotError, Stats,
};
