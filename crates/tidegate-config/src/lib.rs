//! Configuration of the Tidegate program: raw text in, one validated [`Plan`] out.
//!
//! A [`Loader`] collects [`Layers`]: flags over database over environment over file over defaults.
//! They are merged value by value and read once, and every value knows which of them gave it.
//! Nothing is repaired in silence: whatever is wrong is told at once, with its place, its key, its
//! value and the rule. While a program runs, a [`Patch`] changes the layer of the database, and the
//! whole is resolved again. The same rules read the inline policies of the HTTP API, through
//! [`Value`] and [`Fields`].
//!
//! This crate opens no socket, no store and no database, and reads the process environment in one
//! function.

mod admin;
mod admission;
mod authority;
mod bounds;
mod circumstances;
mod database;
mod displace;
mod dotted;
mod duration;
mod effective;
mod environment;
mod error;
mod fault;
mod fields;
mod file;
mod flags;
mod json;
mod key;
mod keys;
mod layers;
mod limits;
mod listen;
mod loader;
mod merge;
mod modules;
mod overrides;
mod patch;
mod place;
mod plan;
mod policy;
mod postgres_url;
mod providers;
mod redis_url;
mod schema;
mod secret;
mod setting;
mod shape;
mod shown;
mod size;
mod store;
mod toml_value;
mod tree;
mod value;
mod variables;
mod warning;
mod zone;

pub use admin::{AdminPlan, TokenHash};
pub use admission::AdmissionPlan;
pub use bounds::{LONGEST_KEY, LONGEST_VALUE, MOST_CHANGES, MOST_SETTINGS};
pub use database::{DatabasePlan, DatabaseUrl};
pub use duration::DurationError;
pub use effective::{Changed, Effective, diff, is_in};
pub use environment::{Environment, process_environment};
pub use error::{ConfigError, Located, Origin};
pub use fault::{Fault, Rule};
pub use fields::{Fields, Path};
pub use file::DEFAULT_FILE;
pub use key::Key;
pub use keys::{KnownKey, known_keys};
pub use layers::Layers;
pub use limits::{LimitPlan, Limits};
pub use listen::{AllowedHost, Listen};
pub use loader::Loader;
pub use modules::{Modules, RateLimitPlan};
pub use overrides::Overrides;
pub use patch::Patch;
pub use place::Place;
pub use plan::Plan;
pub use policy::{Calendar, POLICY_KEYS, PolicyPlan, read_policy};
pub use postgres_url::{PostgresTls, PostgresUrl, PostgresUrlError};
pub use providers::{EndpointPlan, ProviderLimits, ProviderPlan};
pub use redis_url::{RedisUrl, RedisUrlError};
pub use schema::schema;
pub use setting::{Setting, Source};
pub use size::{ByteSize, SizeError};
pub use store::{StorePlan, StoreUrl};
pub use value::{Entry, Node, Number, Value};
pub use variables::UnknownVariable;
pub use warning::Warning;
