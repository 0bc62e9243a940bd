//! The Redis and Valkey store of Tidegate: rate limits shared by several processes or machines.
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
//! An engine of `tidegate` uses it for its decisions; the README has a complete program.
//!
//! It fulfils the contract of the in-process store, tested by the same conformance suite and
//! vectors: exact arithmetic, all-or-nothing lists, and the server's clock. A decision is one
//! script call, whatever the length of its list; concurrent decisions are batched.
//!
//! # How far a limit can be exceeded
//!
//! - Never by concurrency: the script is atomic, for any number of processes and lists.
//! - By lost keys (a crash without persistence, a lagging replica, `FLUSHALL`, eviction): a lost
//!   bucket is full again, so at most one more capacity per loss; a lost quota or allowance starts
//!   anew. Lost slots are free again while their holders still run.
//! - A clock that steps back grants nothing and closes a key for no longer than its capacity, debt
//!   and horizon take to refill. One that jumps ahead refills by the jump.
//! - By a policy change: for up to 2 s some nodes may still decide by the previous policy.
//! - Slots without a lease stay taken when their holder dies, or when its call is lost. Give
//!   concurrency limits a lease, and renew it, as the pacer does.
//! - A call that timed out may have been executed. A call is resent only once, and only if the
//!   server answered `NOSCRIPT`; so a fault can lose a token, but never grants one twice.
//!
//! # What is stored
//!
//! | key | type | what |
//! | --- | --- | --- |
//! | `<prefix>1:{<tag>}:<limit>[:<name>]` | string | state and hold of a bucket, 26 to 58 bytes |
//! | `<prefix>1s:{<tag>}:<limit>[:<name>]` | sorted set | slots of a concurrency limit: leases by expiry time |
//! | `<prefix>1p:{<limit>}` | hash | the policy history of a named limit |
//! | `<prefix>1n` | sorted set | the nodes that share the store, by the time of their last heartbeat |
//! | `<prefix>format` | string | the format in use; any other is refused |
//!
//! The tag is the group of a key, or the key itself if it has none: keys that are decided together
//! live on one cluster node. Entries carry the format number as well, and an unknown one is
//! refused, not misread. Entries expire after twice their time to full, at least a minute, and
//! never before they are equal to no entry; allowances do not expire.
//!
//! # One policy for all nodes
//!
//! Every revision of a named limit gets a number from the server, higher than all others. A node
//! that starts or reconfigures with a policy other than the newest one makes its own the newest.
//! The others adopt it when they first meet a bucket under it, at the latest with their next
//! heartbeat (2 s), and log a warning. Buckets are converted when they are next spent from, in the
//! mode of the change. If the server loses the policy history, heartbeats write it again; until
//! then a node treats a bucket under a policy it does not know as empty.
//!
//! This crate only reports that the store is unavailable. What is decided then (deny, allow, or a
//! local share) is up to `tidegate::guard::GuardedStore`.

mod address;
mod batcher;
mod builder;
mod connection;
mod error;
mod format;
mod heartbeat;
mod job;
mod operation;
mod policy_history;
mod policy_sync;
mod script;
mod store;

pub use builder::RedisBuilder;
pub use error::{OpenError, RedisStoreError};
pub use store::RedisStore;
