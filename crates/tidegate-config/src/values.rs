//! Parsing of single values, independent of the key.

pub(crate) mod durable_url;
pub(crate) mod duration;
pub(crate) mod fields;
mod json;
pub(crate) mod key_path;
pub(crate) mod postgres_url;
pub(crate) mod redis_url;
pub(crate) mod secret;
pub(crate) mod setting;
pub(crate) mod size;
pub(crate) mod url_parts;
pub(crate) mod value;
pub(crate) mod value_kind;
pub(crate) mod zone;
