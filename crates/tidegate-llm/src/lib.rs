//! Rate-limited calls to LLM providers, with retries and fallbacks.
//!
//! The parts are tower services. Each can be used alone; together they form the stack
//! `Retry(Fallback(RateLimit(adapter)))`:
//!
//! - An [`adapter`] sends a [`Call`] to a provider over HTTP and decodes the response. The wire
//!   formats are those of the crate `tidegate-providers`; the HTTP client is behind the feature
//!   `client`.
//! - [`rate_limit`] acquires a permit for every attempt, over requests, tokens and concurrency,
//!   settles it with the real usage, and learns from the limits that providers report.
//! - [`fallback`] tries the next provider if a call fails before the response has begun.
//! - [`retry`] retries with jitter, after the delay that the provider asks for, within a budget and
//!   a deadline.
//!
//! [`models`] loads a model with the whole stack; most programs start there. [`pipeline`] is for
//! programs whose limits come from plans ([`plan`]).
//!
//! Prompts and keys never appear in logs, metrics or the `Display` text of errors.

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
pub(crate) use call::LimitScope;
pub use call::{
    Call, CallError, CallOptions, CallResponse, ConnectionError, ConnectionFailure, OutgoingCall,
};
/// Types of `tidegate-providers` that programs need to load models and call them.
pub use tidegate_providers::{
    Chat, Class, Credential, Dialect, Dimension, Endpoint, Event, Failure, Message, Provider,
    Reply, ReportedLimits, StopReason, Tool, ToolCall, Usage, classify::ClassificationRules,
};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
