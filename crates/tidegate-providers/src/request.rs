//! Requests to providers: addresses, encoding, and the meaning of paths.
//!
//! A [`Target`] is where requests go, and [`encode`](Target::encode)s chats for it. It supports
//! neither images, nor several choices (`n`), nor the reasoning blocks that Anthropic expects back
//! between tool calls.

mod base_url;
mod error;
mod free;
mod model;
mod path;
mod path_shape;
mod route;
mod size;
mod target;

pub use base_url::{join_url, parse_base_url};
pub use error::RequestError;
pub use free::{is_free, is_override_header, is_read_only};
pub use model::{model_spans, with_model};
pub use path::{ENDPOINT_NAMES, PathPurpose, plain_path};
pub use route::{parse_route, route_matches, route_specificity};
pub use size::size_limit;
pub(crate) use target::escaped;
pub use target::{AZURE_API_VERSION, Target, credential_header, credential_header_name};
