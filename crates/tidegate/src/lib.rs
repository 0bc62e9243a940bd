//! Rate limiting for both directions of a call: requests you serve and requests you send.
//!
//! A [`Limiter`] is a policy and the store that holds its buckets:
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
//! - [`Limiter`] describes the operations on one key. An [`Engine`] decides several limits
//!   together, all or nothing. [`Limiter::wait`] waits for one limit; a [`pacer`] waits for
//!   several, in fair order.
//! - A [`Request`] runs at once with [`now`](Request::now) on the in-process store, or with
//!   `.await` on any store. Both take the same methods.
//! - A [`Batch`] decides many independent requests in one call.
//! - A denial is a value ([`Decision`]). Only a store that cannot answer is an error.
//! - `Engine::shared` (feature `tokio`) puts a store that several processes share behind a guard,
//!   with a failure rule for each limit.
//! - `Engine::calendar` (feature `calendar`) limits by day, week, month or year of a time zone.
//! - Tests can drive time with a [`clock::ManualClock`].
//! - To implement a store, use `tidegate-core`: it has the whole [`Store`] contract, and
//!   `TakeStore`, which has one method, for token buckets in a database of your own.

pub mod admission;
mod charge;
mod engine;
#[cfg(feature = "tokio")]
pub mod guard;
mod jitter;
mod limiter;
mod live_limit;
pub mod pacer;
mod request;
#[cfg(feature = "calendar")]
mod schedule;
mod store_handle;
mod sync;
#[cfg(feature = "tokio")]
mod tokio_clock;

pub mod clock {
    //! Clocks for the in-process store: the system clock, tokio's clock, and a manual one for
    //! tests. `tidegate-memory` has two more: the processor's counter, and a cached clock.
    pub use tidegate_memory::clock::{Clock, ManualClock, SystemClock, wall_now};

    #[cfg(feature = "tokio")]
    pub use crate::tokio_clock::TokioClock;
}

#[cfg(feature = "redis")]
pub mod redis {
    //! The store that several machines share, in Redis or Valkey. `tidegate-redis` documents its
    //! builder and its errors.
    pub use tidegate_redis::RedisStore;
}

pub use charge::Charge;
pub use engine::Engine;
pub use jitter::Jitter;
pub use limiter::Limiter;
pub use live_limit::LimitSnapshot;
pub use request::Request;
pub use request::batch::Batch;
#[cfg(feature = "calendar")]
pub use schedule::{Schedule, ScheduleError};
pub use store_handle::{StoreHandle, now_or_never};
pub use tidegate_core::{
    AnyKey, Decision, Denial, FailureRule, Grant, Key, KeyBuf, LimitError, MAX_KEY_BYTES, Outcome,
    Policy, PolicyBuilder, PolicyChange, PolicyError, Rate, Receipt, Retry, Settlement, Store,
    StoreError,
};
pub use tidegate_memory::{DirectLimiter, MemoryStore, MemoryStoreBuilder, Overflow};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[cfg(all(feature = "calendar", feature = "redis"))]
#[doc = include_str!("../README.md")]
struct Readme;
