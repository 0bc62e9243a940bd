//! Configuration of the Tidegate program: turns raw text into one validated [`Plan`].
//!
//! A [`Loader`] collects the [`Layers`]: flags override the database, which overrides the
//! environment, the file and the defaults. Layers are merged value by value, and every value
//! records the layer it came from.
//!
//! Invalid input is never fixed silently. All errors are reported together, each with its position,
//! key, value and the rule it breaks. At run time a [`Patch`] changes the database layer, and the
//! whole configuration is validated again. The same rules read the inline policies of the HTTP API,
//! through [`Value`] and [`Fields`].
//!
//! This crate opens no socket, store or database. It reads the process environment in one function,
//! [`process_environment`].

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
