//! Doors: one protocol each, all on one engine.

pub(crate) mod http;
