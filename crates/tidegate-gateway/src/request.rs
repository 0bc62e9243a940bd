//! What a caller sends: where it goes, what it asks for, and its body.

pub(crate) mod address;
pub(crate) mod body;
pub(crate) mod body_reader;
pub(crate) mod buffer_budget;
pub(crate) mod call;
pub(crate) mod caller_key;
pub(crate) mod endpoint_routes;
pub(crate) mod model_map;
pub(crate) mod options;
pub(crate) mod stream_options;
