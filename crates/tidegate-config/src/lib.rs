//! Configuration of the Tidegate program: turns raw text into one validated [`Config`].
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
//! With the feature `models`, [`load_models`] and [`Layers::models`] create the models of the library
//! stack that a configuration describes.
//!
//! This crate opens no socket, store or database. It reads the process environment in one function,
//! [`process_environment`].

mod config;
mod error;
mod layers;
#[cfg(feature = "models")]
mod models;
mod schema;
mod sections;
mod values;
mod violation;
mod warning;

pub use config::Config;
pub use error::{ConfigError, LocatedViolation, Origin};
pub use layers::Layers;
pub use layers::effective::{EffectiveSetting, SettingChange, diff};
pub use layers::environment::{Environment, process_environment};
pub use layers::file::DEFAULT_FILE;
pub use layers::flags::Key;
pub use layers::loader::Loader;
pub use layers::overrides::{
    MAX_CHANGES, MAX_KEY_CHARS, MAX_SETTINGS, MAX_VALUE_CHARS, Overrides, redacted_value,
};
pub use layers::patch::Patch;
pub use layers::variables::UnknownVariable;
#[cfg(feature = "models")]
pub use models::{ModelsError, load_models};
pub use schema::schema;
pub use sections::admin::{AdminConfig, TokenHash};
pub use sections::admission::{AdmissionConfig, AllowedClient};
pub use sections::api::ApiConfig;
pub use sections::database::{DatabaseConfig, DatabaseUrl};
pub use sections::describe::KeyDescription;
pub use sections::gateway::GatewayConfig;
pub use sections::keys::{KnownKey, known_keys};
pub use sections::limits::{LimitConfig, Limits};
pub use sections::listen::Listen;
pub use sections::modules::{FallbackConfig, Modules, RateLimitConfig, RetryConfig};
pub use sections::no_proxy::{NoProxy, NoProxyError};
pub use sections::policy::{Calendar, PolicyConfig, read_policy};
pub use sections::providers::{
    AllKeysConfig, AutoTuneConfig, BreakerConfig, EndpointConfig, FallbackModels, ModelConfig,
    ProviderConfig, ProviderLimits, RampConfig,
};
pub use sections::proxy::ProxyConfig;
pub use sections::store::{StoreConfig, StoreUrl};
pub use values::durable_url::DurableUrl;
pub use values::duration::DurationError;
pub use values::fields::{Fields, Path};
pub use values::postgres_url::{PostgresTls, PostgresUrl, PostgresUrlError};
pub use values::redis_url::{RedisUrl, RedisUrlError};
pub use values::setting::{Position, Setting, Source};
pub use values::size::{ByteSize, SizeError};
pub use values::value::{Entry, Node, Number, Value};
pub use violation::{Rule, Violation, nearest};
pub use warning::Warning;
