//! Calls to LLM providers that never storm and never waste quota.
//!
//! The parts are tower services, each usable alone, and meant to be put together as
//! `Retry(Fallback(RateLimit(adapter)))`:
//!
//! - An [`adapter`] makes a [`Call`] to a provider over HTTP and reads its answer; the words are those
//!   of the crate `tidegate-providers`, and the HTTP client is behind the feature `client`.
//! - [`rate_limit`] gives every attempt its own permit over requests, tokens and concurrency,
//!   settles it with what was really used, and learns from what providers tell.
//! - [`fallback`] turns to the next provider before the first byte has reached the caller.
//! - [`retry`] tries again, spread out, as the provider asks, within a budget and a deadline.
//!
//! [`models`] loads a model with all of that around it; most programs begin there. [`pipeline`] is
//! for programs whose limits stand in plans ([`plan`]).
//!
//! No text of a prompt and no key is ever logged, counted or put into an error's `Display`.

pub mod adapter;
mod breaker;
mod call;
#[cfg(feature = "client")]
pub mod client;
pub mod fallback;
mod log_limit;
pub mod memory;
pub mod mock;
pub mod models;
pub mod pipeline;
pub mod plan;
pub mod proxy;
pub mod rate_limit;
mod recent;
pub mod retry;
pub mod settings;
pub mod telemetry;
#[cfg(test)]
mod tests;

#[cfg(test)]
extern crate self as tidegate_llm;

#[cfg(test)]
pub(crate) use call::Scope;
pub use call::{Answer, Broken, Call, CallError, ConnectionError, Outgoing, Terms};
/// What a program needs that loads models and calls them.
pub use tidegate_providers::{
    Chat, Class, Credential, Dialect, Dimension, Endpoint, Event, Failure, Message, Provider,
    Reply, ReportedLimits, StopReason, Tool, ToolCall, Usage, classify::Rules,
};

/// The examples of the README are compiled with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
