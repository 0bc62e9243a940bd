//! Rate limiting for HTTP and gRPC services.
//!
//! - [`field`]: rate-limit header fields in every style in use, and a reader for clients.
//! - [`problem`]: problem documents (RFC 9457) for refused requests, and the table of their types.
//! - [`host`]: `host:port` parsing, and the check of `Host` and `Origin`.
//! - [`identity`]: the address of a client, optionally behind trusted proxies.
//! - [`key`]: the keys that a request is charged to.
#![cfg_attr(feature = "tower", doc = "- [`layer`]: rate limits as tower layers.")]
#![cfg_attr(feature = "axum", doc = "- [`route`]: a policy for each route of an axum router.")]
#![cfg_attr(
    feature = "tonic",
    doc = "- [`grpc`]: refusals as gRPC statuses, and a reader for clients."
)]
//!
//! This crate makes no decisions: the limiters of [`tidegate`] do. It never logs a key, an address
//! or a credential, shows one in `Debug`, or sends one to a third party.

pub mod field;
#[cfg(feature = "tonic")]
pub mod grpc;
mod head;
pub mod host;
pub mod identity;
pub mod key;
#[cfg(feature = "tower")]
pub mod layer;
pub mod problem;
mod refusal;
#[cfg(feature = "axum")]
pub mod route;
mod small_string;
mod throttled_log;

pub use head::Head;
pub use refusal::{Refusal, RefusalCause};
// Used by other crates of this workspace; not public API.
#[doc(hidden)]
pub use throttled_log::ThrottledLog;

/// Compiles the examples of the README as doc tests.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../README.md")]
struct Readme;
