//! What a caller gets: an answer of a provider as it comes, or an error in the format of the provider.

pub(crate) mod body;
pub(crate) mod error_response;
pub(crate) mod first_event;
pub(crate) mod pending_call;
pub(crate) mod provider_body;
pub(crate) mod proxy_error;
pub(crate) mod upstream_response;
pub(crate) mod usage_reader;
pub(crate) mod usage_stripper;
