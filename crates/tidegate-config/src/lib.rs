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

mod error;
mod fault;
mod layers;
mod plan;
mod schema;
mod sections;
mod values;
mod warning;

pub use error::{ConfigError, Located, Origin};
pub use fault::{Fault, Rule, nearest};
pub use layers::Layers;
pub use layers::effective::{Changed, Effective, diff};
pub use layers::environment::{Environment, process_environment};
pub use layers::file::DEFAULT_FILE;
pub use layers::flags::Key;
pub use layers::loader::Loader;
pub use layers::overrides::{
    LONGEST_KEY, LONGEST_VALUE, MOST_CHANGES, MOST_SETTINGS, Overrides, shown_value,
};
pub use layers::patch::Patch;
pub use layers::variables::UnknownVariable;
pub use plan::Plan;
pub use schema::schema;
pub use sections::admin::{AdminPlan, TokenHash};
pub use sections::admission::{AdmissionPlan, AllowedClient};
pub use sections::api::ApiPlan;
pub use sections::bypass::{Bypass, BypassError};
pub use sections::database::{DatabasePlan, DatabaseUrl};
pub use sections::describe::KeyDescription;
pub use sections::gateway::GatewayPlan;
pub use sections::keys::{KnownKey, known_keys};
pub use sections::limits::{LimitPlan, Limits};
pub use sections::listen::Listen;
pub use sections::modules::{Modules, RateLimitPlan};
pub use sections::policy::{Calendar, PolicyPlan, read_policy};
pub use sections::providers::{
    AllKeysPlan, AutoTunePlan, BreakerPlan, EndpointPlan, FallbackModels, ModelPlan,
    ProviderLimits, ProviderPlan, RampPlan,
};
pub use sections::proxy::ProxyPlan;
pub use sections::store::{StorePlan, StoreUrl};
pub use values::duration::DurationError;
pub use values::fields::{Fields, Path};
pub use values::postgres_url::{PostgresTls, PostgresUrl, PostgresUrlError};
pub use values::redis_url::{RedisUrl, RedisUrlError};
pub use values::setting::{Place, Setting, Source};
pub use values::size::{ByteSize, SizeError};
pub use values::value::{Entry, Node, Number, Value};
pub use warning::Warning;
