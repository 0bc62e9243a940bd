//! The Durable Objects store: buckets live in a Cloudflare Worker, shared with everything that uses
//! its limits there.
//!
//! [`DurableStore`] is a [`Store`](tidegate_core::Store) for programs outside of Workers. It sends
//! operations to the Worker in `worker/`, whose objects decide with the same core as every other
//! store. A key belongs to one of 128 objects; operations on keys of one object are atomic, and the
//! Worker coordinates the others (`tidegate_shard::coordinate` says what is promised then).
//!
//! Put the store behind `tidegate::guard::GuardedStore`, or `Engine::shared`, so that callers do not
//! wait for a Worker that is away.
//!
//! ```no_run
//! use tidegate_durable::DurableStore;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = DurableStore::builder("durable://limits.example.workers.dev")
//!     .secret("the secret of the Worker")
//!     .build()?;
//! # Ok(())
//! # }
//! ```

mod address;
mod builder;
mod client;
mod error;
mod known_policies;
mod request_plan;
mod store;

pub use builder::DurableBuilder;
pub use error::{DurableBuildError, DurableStoreError};
pub use store::DurableStore;
