//! Configuration of the Tidegate program: raw text in, one validated [`Plan`] out.
//!
//! A [`Loader`] layers flags over environment over file over defaults. Nothing is repaired in
//! silence: whatever is wrong is told at once, with its place, its key, its value and the rule.
//! The same rules read the inline policies of the HTTP API, through [`Value`] and [`Fields`].
//!
//! This crate opens no socket and no store, and reads the process environment in one function.

mod admission;
mod environment;
mod fault;
mod fields;
mod file;
mod limits;
mod listen;
mod modules;
mod plan;
mod policy;
mod redis_url;
mod setting;
mod size;
mod store;
mod toml_value;
mod value;
mod zone;

pub use admission::AdmissionPlan;
pub use environment::{UnknownVariable, process_environment};
pub use fault::{ConfigError, Fault, Located, Origin, Rule};
pub use fields::{Fields, Path};
pub use file::DEFAULT_FILE;
pub use limits::{LimitPlan, Limits};
pub use listen::{AllowedHost, Listen};
pub use modules::{Modules, RateLimitPlan};
pub use plan::{Loader, Plan};
pub use policy::{Calendar, POLICY_KEYS, PolicyPlan, read_policy};
pub use redis_url::{RedisUrl, RedisUrlError};
pub use setting::{Key, Setting, Source};
pub use size::{ByteSize, SizeError};
pub use store::{StorePlan, StoreUrl};
pub use value::{Entry, Node, Number, Value};
