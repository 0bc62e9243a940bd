//! The Redis and Valkey store of Tidegate: limits that several machines share.
//!
//! ```no_run
//! use tidegate_redis::RedisStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = RedisStore::builder("redis://127.0.0.1:6379").open()?;
//! store.connected().await?;
//! # Ok(())
//! # }
//! ```
//!
//! An engine of `tidegate` decides by it; the README has the whole program.
//!
//! It keeps the contract of the in-process store, by the same conformance suite and vectors: exact
//! arithmetic, lists decided whole or not at all, and the server's clock. A decision is one call of
//! a script, whatever the length of its list; decisions that wait at the same time go together.
//!
//! # How far a limit can be exceeded
//!
//! - Never by concurrency: the script is atomic, for any number of processes and lists.
//! - Lost keys (a crash without persistence, a replica that lagged, `FLUSHALL`, eviction): a lost
//!   bucket is full again, so at most one more capacity for each loss; a lost quota or allowance
//!   starts anew. Lost slots are free again while their holders still run.
//! - A clock that steps back grants nothing and closes a key for no longer than its capacity, debt
//!   and horizon take to refill. One that jumps ahead refills by the jump.
//! - A limit that is changed: for up to 2 s some nodes may still decide by the policy before.
//! - Slots without a lease stay taken when their holder dies, or when its call is lost. Give
//!   concurrency limits a lease, and renew it; the pacer does.
//! - A call that timed out may have been carried out. Nothing is sent again but a call that the
//!   server answered with `NOSCRIPT`, once; so a token can be lost by a fault, never granted twice.
//!
//! # What is stored
//!
//! | key | type | what |
//! | --- | --- | --- |
//! | `<prefix>1:{<tag>}:<limit>[:<name>]` | string | state and hold of a bucket, 26 to 58 bytes |
//! | `<prefix>1s:{<tag>}:<limit>[:<name>]` | sorted set | slots of a concurrency limit: leases by the instant at which they run out |
//! | `<prefix>1p:{<limit>}` | hash | the policies that a named limit has had |
//! | `<prefix>1n` | sorted set | the nodes that share the store, by when they were last seen |
//! | `<prefix>format` | string | the format in use; another one is refused |
//!
//! The tag is the group of a key, or the key itself if it has none: what is decided together lives
//! together. Entries carry the format number as well, and one that is unknown is refused, not
//! misread. They live for twice their time to full, at least a minute, and never end before they
//! are the same as no entry; allowances do not end by themselves.
//!
//! # One policy for all nodes
//!
//! Every revision of a named limit gets a number from the server, later than every other. Whoever
//! starts or reconfigures with a policy that differs from the newest one makes it the newest; the
//! others adopt it when they first meet a bucket under it, at the latest with their next heartbeat
//! (2 s), and say so in a warning. Buckets are converted when they are next spent from, in the mode
//! of the change. A record of policies that the server has lost is written again with the
//! heartbeats; until then a bucket under a policy that a node does not know counts as empty there.
//!
//! This crate says when it cannot work. What is decided then (nothing, everything, or a share on
//! this node alone) is the business of `tidegate::Guarded`.

mod address;
mod batcher;
mod builder;
mod connection;
mod error;
mod format;
mod heartbeat;
mod job;
mod plan;
mod policy_history;
mod policy_sync;
mod script;
mod store;

pub use builder::RedisBuilder;
pub use error::{OpenError, RedisFault};
pub use store::RedisStore;
