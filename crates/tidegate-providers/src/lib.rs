//! Wire formats of LLM providers, without I/O.
//!
//! - A [`Target`](request::Target) encodes a [`Chat`] in the [`Dialect`] of a provider. A
//!   [`RequestSummary`] is what limits need to know of a request that another program wrote.
//! - [`response`] decodes responses, in one piece or streamed, into [`Event`]s and [`Reply`]s.
//!   [`Usage`] is the number of tokens that a call used.
//! - A [`Failure`] is an error response of a provider. Its [`Class`] comes from the tables and
//!   rules of [`classify`].
//! - [`ReportedLimits`] are the limits that a provider reports in headers and bodies.
//! - [`tokens`] estimates token counts locally; the tokenizer is behind the feature `tokenizer`.
//!
//! This crate does not wait (except in [`tokens::prepare`]), connect or read a clock: the time is
//! an argument. `Debug` and `Display` show no text of prompts or responses, and no keys.

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
pub use reported_limits::{Dimension, LimitReading, ReportedLimits};
pub use request_summary::RequestSummary;
pub use usage::Usage;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
