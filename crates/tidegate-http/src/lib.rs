//! Rate limits at the doors of HTTP services.
//!
//! - [`field`]: what callers are told of limits in header fields, in every style that is in use,
//!   and a reader for those who are told.
//! - [`problem`]: documents that say why a request was refused (RFC 9457), and the table of their
//!   types.
//! - [`host`]: hosts with a port, and the check of `Host` and `Origin`.
//! - [`identity`]: the address of a client behind proxies that are trusted, and behind no others.
//! - [`key`]: what a request is charged to.
#![cfg_attr(feature = "tower", doc = "- [`layer`]: all of it as a tower layer.")]
#![cfg_attr(feature = "axum", doc = "- [`route`]: a policy for each route of an axum router.")]
#![cfg_attr(
    feature = "tonic",
    doc = "- [`grpc`]: the same for gRPC services, and for their clients."
)]
//!
//! Nothing here decides: that is done by the limiters of [`tidegate`]. No key, address or
//! credential is logged, shown by `Debug` or sent to anybody.

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
mod text;
mod throttled_log;

pub use head::Head;
pub use refusal::{Refusal, RefusalCause};
// For the programs of this workspace, not for users of the library.
#[doc(hidden)]
pub use throttled_log::ThrottledLog;

/// The examples of the README are compiled with the others.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../README.md")]
struct Readme;
