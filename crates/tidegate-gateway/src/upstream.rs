//! Providers: their configuration, and how one attempt is made.

pub(crate) mod attempt;
pub(crate) mod breaker;
pub(crate) mod http_service;
pub(crate) mod redaction;
mod sanitize;
pub(crate) mod settings;
pub(crate) mod stack;
