//! Listening sockets, connections with their bounds and timeouts, and draining.
//!
//! Requests are handled in [`api`](crate::api); nothing here looks into them.

pub(crate) mod accept;
pub(crate) mod accept_loop;
pub(crate) mod bounds;
pub(crate) mod calls;
pub(crate) mod connection;
pub(crate) mod connections;
pub(crate) mod drain;
pub(crate) mod eviction;
pub(crate) mod files;
pub(crate) mod in_memory;
mod linger;
mod request_body;
mod stream;
mod timeouts;
pub(crate) mod workers;
