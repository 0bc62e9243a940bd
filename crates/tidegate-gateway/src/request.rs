//! The caller's request: its path, options, credentials and body.

pub(crate) mod body;
pub(crate) mod body_reader;
pub(crate) mod body_summary;
pub(crate) mod body_timeout;
pub(crate) mod buffer_budget;
pub(crate) mod call;
pub(crate) mod caller;
pub(crate) mod caller_key;
pub(crate) mod content_decoding;
pub(crate) mod edits;
pub(crate) mod endpoint_routes;
pub(crate) mod fair_semaphore;
pub(crate) mod form;
pub(crate) mod method;
pub(crate) mod model_map;
pub(crate) mod options;
pub(crate) mod stream_options;
pub(crate) mod token_estimate;
pub(crate) mod uri_path;
pub(crate) mod work_pool;
