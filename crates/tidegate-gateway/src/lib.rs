//! A reverse proxy to LLM providers that holds calls until they fit: one changed URL, and no 429.
//!
//! A [`Gateway`] takes requests as providers take them, below the name of a provider
//! (`/openai/v1/chat/completions`), and answers as they answer, byte for byte. In between stands the
//! stack of `tidegate-llm`, `Retry(Fallback(RateLimit(...)))`: a call waits until its reservation is
//! due, is tried again, and turns to another provider before its first byte.
//!
//! - An [`Upstream`] is one provider as it is configured. [`Gateway::reconfigure`] changes all of
//!   them at run time, whole or not at all.
//! - A [`Witness`] hears of every call once, when it is over. [`Status`] is how a provider stands.
//! - What the gateway itself has to say (a wait that would be too long, a body that is too large) it
//!   says in the words of the provider, so that its SDKs raise the error that they would raise.
//!
//! It knows no listening sockets, no configuration files and no arithmetic of limits. It never logs,
//! counts or shows a prompt, an answer or a key, and never shows a caller's key to another provider.

mod accounts;
mod address;
mod body;
mod builder;
mod call;
mod desk;
mod drain;
mod error;
mod excuse;
mod fields;
mod gateway;
mod identity;
mod intake;
mod leaf;
mod live;
mod opening;
mod outbound;
mod refusal;
mod reply;
mod room;
mod stack;
mod status;
mod tab;
mod tap;
mod upstream;
mod visit;
mod wishes;
mod witness;

pub use body::{Body, BodyError};
pub use builder::GatewayBuilder;
pub use error::GatewayError;
pub use gateway::Gateway;
pub use outbound::Outbound;
pub use status::{QuotaUse, Status};
pub use upstream::Upstream;
pub use witness::{Finished, Outcome, Witness};

/// The example of the README is compiled with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
