//! Doors: one protocol each, all on one engine.
//!
//! What doors that speak HTTP have in common stands here: who may ask, how slowly, how a body is
//! read, and how a problem is told.

pub(crate) mod admin;
pub(crate) mod body;
pub(crate) mod bounds;
pub(crate) mod connection;
pub(crate) mod grpc;
pub(crate) mod guard;
pub(crate) mod http;
mod patience;
pub(crate) mod problem;
mod stream;
