//! The response to the caller: forwarded from the provider, or an error in the provider's format.

pub(crate) mod body;
pub(crate) mod error_response;
pub(crate) mod first_event;
pub(crate) mod pending_call;
pub(crate) mod provider_body;
pub(crate) mod proxy_error;
pub(crate) mod upstream_response;
pub(crate) mod usage_reader;
pub(crate) mod usage_stripper;
