//! Calls to LLM providers that never storm and never waste quota.
//!
//! The parts are tower services, each usable alone, and meant to be put together as
//! `Retry(Fallback(RateLimit(adapter)))`:
//!
//! - An adapter puts a [`Call`] into the words of a provider and reads its answer ([`codec`],
//!   sans I/O; the HTTP client is behind the feature `client`).
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
mod answer;
pub mod breaker;
mod call;
mod chat;
mod class;
#[cfg(feature = "client")]
pub mod client;
pub mod codec;
mod counter;
mod dialect;
mod error;
pub mod fallback;
mod hidden;
pub mod mock;
pub mod models;
mod name;
pub mod pipeline;
pub mod plan;
mod provider;
pub mod rate_limit;
mod ready;
mod recent;
pub mod retry;
mod scope;
pub mod settings;
pub mod telemetry;
mod tokens;
mod told;
mod usage;

pub use answer::{Answer, Answered, Event, Events, Reply, StopReason};
pub use call::{Call, Mode, Outgoing, Terms};
pub use chat::{Chat, Message, Tool, ToolCall};
pub use class::Class;
pub use dialect::Dialect;
pub use error::{BoxError, Broken, CallError, Failure};
pub use provider::{Credential, Provider};
pub use scope::{Endpoint, Scope};
pub use told::{Dimension, Reading, Told};
pub use usage::Usage;

/// The examples of the README are compiled with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
