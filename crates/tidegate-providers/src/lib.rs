//! What LLM providers say, read and written without I/O.
//!
//! - A [`Chat`] is put into the words of a [`Dialect`] by a [`Target`](request::Target), and a
//!   [`RequestSummary`] is read from a request that somebody else wrote.
//! - [`response`] reads answers, whole or piece by piece, into [`Event`]s and [`Reply`]s; [`Usage`] is
//!   what a call used.
//! - A [`Failure`] is an error of a provider with its [`Class`], by the tables and rules of
//!   [`classify`].
//! - [`ReportedLimits`] are what header fields and bodies report of a provider's limits.
//! - [`tokens`] counts tokens before a provider does; the vocabulary is behind the feature
//!   `tokenizer`.
//!
//! Nothing here waits, connects or reads a clock: the time is an argument. `Debug` and `Display` show
//! no text of a prompt, no text of an answer and no key.

mod chat;
pub mod classify;
mod dialect;
mod failure;
pub mod name;
mod provider;
mod redacted;
mod reply;
mod reported_limits;
pub mod request;
mod request_summary;
pub mod response;
pub mod tokens;
mod usage;

pub use chat::{Chat, Message, Tool, ToolCall};
pub use dialect::Dialect;
pub use failure::{Class, Failure};
pub use provider::{Credential, Endpoint, Provider};
pub use reply::{Event, Reply, StopReason};
pub use reported_limits::{Dimension, Reading, ReportedLimits};
pub use request_summary::RequestSummary;
pub use usage::Usage;

/// The examples of the README are compiled with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
