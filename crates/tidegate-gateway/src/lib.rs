//! A reverse proxy to LLM providers that delays calls until they fit the provider's limits.
//!
//! A [`Gateway`] accepts requests in each provider's own API below the provider's name
//! (`/openai/v1/chat/completions`) and forwards the provider's response byte for byte. In between
//! runs the stack of `tidegate-llm`, `Retry(Fallback(RateLimit(...)))`: a call waits for its
//! reservation, is retried, and can move to another provider until its first byte is sent.
//!
//! - An [`Upstream`] is the configuration of one provider. [`Gateway::reconfigure`] replaces all of
//!   them at run time, atomically.
//! - A [`CallObserver`] is notified of every call once, when the call ends. [`ProviderStatus`] has
//!   the queue and the calls in flight of a provider; [`ProviderView`] adds its limits and tenants.
//! - Errors of the gateway itself (a wait that would be too long, a body that is too large) use the
//!   error format of the provider, so that its SDKs raise their usual exceptions.
//!
//! The gateway opens no listening sockets, reads no configuration files and does no limit
//! arithmetic. It never logs, counts or exposes a prompt, a response or a key, and never sends a
//! caller's key to another provider.

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
pub use state::provider_status::ProviderStatus;
pub use state::provider_view::{AccountOwner, AccountView, ProviderView};
pub use state::queued_calls::{TenantQueue, TenantQueues};
pub use upstream::breaker::BreakerStatus;
pub use upstream::settings::Upstream;

/// Compiles the README example as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
