//! A reverse proxy to LLM providers that holds calls until they fit: one changed URL, and no 429.
//!
//! A [`Gateway`] takes requests as providers take them, below the name of a provider
//! (`/openai/v1/chat/completions`), and answers as they answer, byte for byte. In between stands the
//! stack of `tidegate-llm`, `Retry(Fallback(RateLimit(...)))`: a call waits until its reservation is
//! due, is tried again, and turns to another provider before its first byte.
//!
//! - An [`Upstream`] is one provider as it is configured. [`Gateway::reconfigure`] changes all of
//!   them at run time, whole or not at all.
//! - A [`CallObserver`] is told of every call once, when it is over. [`Status`] is the state of a
//!   provider: queue, calls in flight; [`ProviderView`] has its limits and tenants too.
//! - What the gateway itself has to say (a wait that would be too long, a body that is too large) it
//!   says in the words of the provider, so that its SDKs raise the error that they would raise.
//!
//! It knows no listening sockets, no configuration files and no arithmetic of limits. It never logs,
//! counts or shows a prompt, an answer or a key, and never shows a caller's key to another provider.

mod builder;
mod call_observer;
mod content_coding;
mod error;
mod gateway;
mod headers;
mod proxy;
mod request;
mod response;
mod state;
mod upstream;

pub use builder::GatewayBuilder;
pub use call_observer::{CallDetails, CallObserver, FinishedCall, Outcome};
pub use error::GatewayError;
pub use gateway::Gateway;
pub use request::body::RequestBody;
pub use response::body::{ResponseBody, ResponseBodyError};
pub use state::provider_view::{AccountOwner, AccountView, ProviderView};
pub use state::queued_calls::{TenantQueue, TenantQueues};
pub use state::status::Status;
pub use upstream::breaker::BreakerStatus;
pub use upstream::settings::Upstream;

/// The example of the README is compiled with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
