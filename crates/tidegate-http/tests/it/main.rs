//! Integration tests: fields, keys and addresses by value, and the layer over real sockets with a
//! manual clock, so that every response is exact.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod field_reader;
mod fields;
#[cfg(feature = "tonic")]
mod grpc;
mod identity;
mod keys;
#[cfg(feature = "axum")]
mod layer;
mod problems;
