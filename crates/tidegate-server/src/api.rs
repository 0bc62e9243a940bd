//! The APIs: one protocol each, all on one engine.
//!
//! What the HTTP and the admin API have in common stands here: how a body is read, how a problem is rendered, and whether the server is ready.

pub(crate) mod admin;
pub(crate) mod body;
mod change_error;
pub(crate) mod grpc;
pub(crate) mod health;
pub(crate) mod http;
pub(crate) mod problem;
