//! One rate-limiting engine for both directions of a call.
//!
//! A [`Limiter`] is a policy and the store its buckets live in:
//!
//! ```
//! use std::net::IpAddr;
//! use tidegate::{Limiter, Policy};
//!
//! let limiter = Limiter::new(Policy::per_second(100).burst(200).build()?);
//! let client: IpAddr = "203.0.113.7".parse()?;
//! let decision = limiter.take(client).now()?;
//! assert!(decision.is_allowed());
//! assert_eq!(decision.remaining(), 199);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - The verbs are described at [`Limiter`]; several limits are decided together, all-or-nothing, by
//!   an [`Engine`]. [`Limiter::wait`] waits for one limit, a [`pacer`] for several, fairly.
//! - A [`Request`] is carried out at once by [`now`](Request::now) on the in-process store, and by
//!   `.await` on any store. There is one set of verbs for both.
//! - Many requests are decided in one go, each by itself, as a [`Batch`].
//! - Denied is a value ([`Decision`]); only a store that cannot answer is an error.
//! - A store that several processes share is put behind a guard by `Engine::shared` (feature
//!   `tokio`), with a failure rule for each limit.
//! - Tests drive a [`clock::ManualClock`].
//! - Those who write a store use `tidegate-core`: the [`Store`] contract and its types.

pub mod admission;
mod charge;
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
    //! Clocks for the in-process store: the system's, tokio's, and one for tests. `tidegate-memory`
    //! has more: the processor's own, and one that is kept in memory.
    pub use tidegate_memory::clock::{Clock, ManualClock, SystemClock, wall_now};

    #[cfg(feature = "tokio")]
    pub use crate::tokio_clock::TokioClock;
}

#[cfg(feature = "redis")]
pub mod redis {
    //! The store for several machines, in Redis or Valkey. Its builder and errors are described in
    //! `tidegate-redis`.
    pub use tidegate_redis::RedisStore;
}

pub use charge::Charge;
pub use engine::Engine;
pub use jitter::Jitter;
pub use limiter::Limiter;
pub use request::Request;
pub use request::batch::Batch;
#[cfg(feature = "calendar")]
pub use schedule::{Schedule, ScheduleError};
pub use store_handle::{StoreHandle, now_or_never};
pub use terms::Snapshot;
pub use tidegate_core::{
    AnyKey, Change, Decision, Denial, FailureRule, Grant, Key, KeyBuf, LimitError, MAX_KEY_BYTES,
    Outcome, Policy, PolicyBuilder, PolicyError, Rate, Receipt, Retry, Settlement, Store,
    StoreError,
};
pub use tidegate_memory::{DirectLimiter, MemoryStore, MemoryStoreBuilder, Overflow};

/// The examples of the README are compiled with the others.
#[cfg(doctest)]
#[cfg(all(feature = "calendar", feature = "redis"))]
#[doc = include_str!("../README.md")]
struct Readme;
