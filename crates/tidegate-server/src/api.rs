//! The HTTP, admin and gRPC APIs, all on one engine.
//!
//! Code that the HTTP and admin APIs share is here: reading bodies, rendering problem documents,
//! and readiness.

pub(crate) mod admin;
pub(crate) mod body;
mod change_error;
pub(crate) mod grpc;
pub(crate) mod health;
pub(crate) mod http;
pub(crate) mod problem;
