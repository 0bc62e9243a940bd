//! Requests to providers: where they go, how they are written, and what the path of one says.
//!
//! A [`Target`] is where requests go, and [`encode`](Target::encode)s chats for it. Not everything is
//! put into words: no images, one choice of an answer (`n`), and no blocks of reasoning that
//! Anthropic wants to see again between calls of tools.

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
pub use free::{is_free, is_override, is_reading};
pub use model::{model_spans, with_model};
pub use path::{ENDPOINT_NAMES, Purpose, plain_path};
pub use route::{parse_route, route_matches, route_specificity};
pub use size::size_limit;
pub(crate) use target::escaped;
pub use target::{AZURE_API_VERSION, Target, key_field, key_name};
