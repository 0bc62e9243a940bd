//! The crate from the outside: fields, keys and addresses by value, and the layer over real
//! sockets with a clock that the tests move, so that every answer is exact.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod fields;
#[cfg(feature = "tonic")]
mod grpc;
mod identity;
mod keys;
#[cfg(feature = "axum")]
mod layer;
mod problems;
mod reading;
