//! `[providers.NAME]`: LLM providers that the gateway forwards to.
//!
//! Values from the file, `TIDEGATE_` variables and flags must be valid. Values from unprefixed
//! variables and from the database are adjusted with a warning instead: a number stored long ago
//! must not prevent the program from starting.

mod all_keys;
mod auto_tune;
mod bounded;
mod breaker;
mod endpoint_routes;
mod fallback;
mod fallback_models;
mod keys;
mod limits;
mod models;
mod ramp;
mod read;
mod retry_statuses;
mod roots;
mod tier;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use tidegate::pacer::PoolSize;
use tidegate_llm::plan::Constraint;
use tidegate_llm::settings::{default_concurrency, default_retries};
use tidegate_providers::classify::retryable_statuses;
use tidegate_providers::{Credential, Dialect, Provider};

pub use all_keys::AllKeysConfig;
pub use auto_tune::AutoTuneConfig;
pub(crate) use auto_tune::KEYS as AUTO_TUNE_KEYS;
pub use breaker::BreakerConfig;
use fallback::KnownProviders;
pub use fallback_models::FallbackModels;
use fallback_models::model_name;
pub(crate) use keys::KEYS;
pub use limits::{EndpointConfig, ProviderLimits};
pub(crate) use models::KEYS as MODEL_KEYS;
pub use models::ModelConfig;
use models::Models;
pub use ramp::RampConfig;
pub(crate) use read::variable_name;
use read::{base_url, check_provider_name, dialect};
use retry_statuses::statuses;
use tier::TierLimits;

use crate::layers::tree::leaves;
use crate::sections::keys as table;
use crate::sections::read_context::ReadContext;
use crate::values::duration::{duration, positive};
use crate::values::fields::{Fields, Path};
use crate::values::setting::{Setting, Source};
use crate::values::value::Value;
use crate::violation::Rule;
use crate::warning::Warning;

/// Providers that are available without a file.
pub(crate) const SHIPPED: [&str; 4] = ["openai", "anthropic", "gemini", "ollama"];

/// Settings of one provider.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProviderConfig {
    /// Base URL without a trailing slash. Default: that of the dialect.
    pub base_url: Setting<String>,
    /// Environment variable that contains the API key. Default: none, the caller's key is passed
    /// through.
    pub api_key_env: Setting<Option<String>>,
    /// PEM file of root certificates to trust instead of the system's. Default: none.
    pub ca_file: Setting<Option<PathBuf>>,
    /// API dialect. Default: derived from the name.
    pub dialect: Setting<Dialect>,
    /// Account tier, in lower case. Default: none.
    pub tier: Setting<Option<String>>,
    /// Model that the library loads if the program names none. Default: none.
    pub model: Setting<Option<String>>,
    /// Configured rate limits.
    pub limits: ProviderLimits,
    /// Limits over all keys that callers bring.
    pub all_keys: AllKeysConfig,
    /// Maximum number of concurrent calls, over all models, keys and endpoints. With auto-tuning,
    /// the initial number.
    pub max_concurrent_requests: Setting<NonZeroU32>,
    /// Auto-tuning of the number of concurrent calls.
    pub auto_tune: AutoTuneConfig,
    /// Retries after the first attempt. Default: 8; 3 for Ollama.
    pub max_retries: Setting<u32>,
    /// First delay between attempts. Default: 1 s; 500 ms for Ollama.
    pub retry_base: Setting<Duration>,
    /// HTTP statuses after which a call is retried. Default: those of the dialect.
    pub retry_statuses: Setting<Vec<u16>>,
    /// Circuit breaker.
    pub breaker: BreakerConfig,
    /// Slow start. Default: off.
    pub ramp: RampConfig,
    /// How long a call may wait for permits and between attempts before it is rejected. Default:
    /// 120 s.
    pub max_wait: Setting<Duration>,
    /// Timeout for establishing a connection. Default: 10 s.
    pub connect_timeout: Setting<Duration>,
    /// Timeout for the start of the response. Default: 120 s.
    pub first_byte_timeout: Setting<Duration>,
    /// Timeout between two reads of a response. Default: 60 s.
    pub idle_timeout: Setting<Duration>,
    /// Whether to request token usage in streams of the OpenAI API. Default: `false`.
    pub ask_for_usage: Setting<bool>,
    /// Providers to fall back to, in order. Default: none.
    pub fallback: Setting<Vec<String>>,
    /// Model names at the fallback providers.
    pub fallback_models: FallbackModels,
    /// Models that metrics report by name. Default: none.
    pub models: Setting<Vec<String>>,
    /// Limits of models, by name or pattern.
    pub model_limits: BTreeMap<String, ModelConfig>,
    /// Limits of endpoints, such as `embeddings`.
    pub endpoints: BTreeMap<String, EndpointConfig>,
    tier_limits: TierLimits,
    name: Provider,
    credential: Option<Credential>,
    roots: Option<Vec<Vec<u8>>>,
    /// The highest layer that configures the provider.
    source: Source,
}

impl ProviderConfig {
    /// Creates an unconfigured provider with the defaults of `dialect_provider`.
    fn with_defaults(name: &str, dialect_provider: &Provider) -> Self {
        let dialect = Dialect::of(dialect_provider);
        let (max_retries, retry_base) = default_retries(dialect_provider);
        let concurrency = default_concurrency(dialect_provider).unwrap_or(NonZeroU32::MIN);
        Self {
            base_url: Setting::default(dialect.base_url().unwrap_or_default().to_owned()),
            api_key_env: Setting::default(None),
            ca_file: Setting::default(None),
            dialect: Setting::default(dialect),
            tier: Setting::default(None),
            model: Setting::default(None),
            tier_limits: TierLimits::default(),
            limits: ProviderLimits::default(),
            all_keys: AllKeysConfig::default(),
            max_concurrent_requests: Setting::default(concurrency),
            auto_tune: AutoTuneConfig::of(dialect),
            max_retries: Setting::default(max_retries),
            retry_base: Setting::default(retry_base),
            retry_statuses: Setting::default(retryable_statuses(dialect).to_vec()),
            breaker: BreakerConfig::default(),
            ramp: RampConfig::default(),
            max_wait: Setting::default(Duration::from_secs(120)),
            connect_timeout: Setting::default(Duration::from_secs(10)),
            first_byte_timeout: Setting::default(Duration::from_secs(120)),
            idle_timeout: Setting::default(Duration::from_secs(60)),
            ask_for_usage: Setting::default(false),
            fallback: Setting::default(Vec::new()),
            fallback_models: FallbackModels::new(),
            models: Setting::default(Vec::new()),
            model_limits: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            name: Provider::new(name),
            credential: None,
            roots: None,
            source: Source::Default,
        }
    }

    /// Returns the name.
    #[must_use]
    pub const fn name(&self) -> &Provider {
        &self.name
    }

    /// Returns the API dialect.
    #[must_use]
    pub const fn dialect(&self) -> Dialect {
        self.dialect.value
    }

    /// Returns the API key to send; `None` if the caller's key is passed through.
    #[must_use]
    pub const fn credential(&self) -> Option<&Credential> {
        self.credential.as_ref()
    }

    /// Returns the root certificates of [`ca_file`](Self::ca_file), in DER.
    #[must_use]
    pub fn roots(&self) -> Option<&[Vec<u8>]> {
        self.roots.as_deref()
    }

    /// Returns whether any layer configures the provider; `false` for one that exists by default
    /// only.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        self.source != Source::Default
    }

    /// Returns whether the gateway has a path for the provider. A mock has none: it only exists in
    /// library use.
    #[must_use]
    pub fn has_gateway_path(&self) -> bool {
        self.dialect() != Dialect::Mock
    }

    /// Returns the path of the HTTP listener for the base URL of this provider's SDKs, such as
    /// `/openai/v1`.
    ///
    /// ```
    /// let config = tidegate_config::Loader::default().text("none", "")?;
    /// assert_eq!(config.providers["openai"].sdk_path(), "/openai/v1");
    /// assert_eq!(config.providers["anthropic"].sdk_path(), "/anthropic");
    /// # Ok::<(), tidegate_config::ConfigError>(())
    /// ```
    #[must_use]
    pub fn sdk_path(&self) -> String {
        let (name, dialect) = (self.name.as_str(), self.dialect());
        if dialect.family() != Dialect::OpenAi || dialect == Dialect::Azure {
            return format!("/{name}");
        }
        let address = self.base_url.value.split_once("://").map_or("", |(_, rest)| rest);
        let last = address.split_once('/').and_then(|(_, path)| path.rsplit('/').next());
        let is_version = |last: &&str| {
            let digits = last.strip_prefix('v').unwrap_or_default();
            digits.starts_with(|first: char| first.is_ascii_digit())
        };
        match last.filter(is_version) {
            // If the base URL already ends with a version, use that one.
            Some(version) => format!("/{name}/{version}"),
            None => format!("/{name}{}", dialect.root()),
        }
    }

    /// Returns the configured rate limits, without concurrency; `None` if there are none and all
    /// limits are learned.
    #[must_use]
    pub const fn constraint(&self) -> Option<&Constraint> {
        self.limits.constraint.as_ref()
    }

    /// Returns the limits of models that come from the tier, by name or pattern, without what is
    /// configured. The table is that of
    /// [`TierTable::shipped`](tidegate_llm::plan::TierTable::shipped).
    ///
    /// ```
    /// let text = "[providers.openai]\ntier = \"tier_1\"\n";
    /// let config = tidegate_config::Loader::default().text("in-line", text)?;
    /// let limits = config.providers["openai"].tier_limits();
    /// let limits = std::collections::BTreeMap::from_iter(limits);
    /// assert_eq!(limits["gpt-4o"].requests_per_minute().unwrap().get(), 500);
    /// # Ok::<(), tidegate_config::ConfigError>(())
    /// ```
    pub fn tier_limits(&self) -> impl Iterator<Item = (&str, &Constraint)> {
        self.tier_limits.models.iter().map(|(model, constraint)| (model.as_str(), constraint))
    }

    fn read(
        name: &str,
        fields: &mut Fields<'_, '_>,
        all: &KnownProviders<'_>,
        context: &mut ReadContext<'_>,
    ) -> Self {
        let named = fields.setting("dialect", dialect);
        let dialect_provider =
            named.as_ref().map_or(Provider::new(name), |named| named.value.1.clone());
        let mut config = Self::with_defaults(name, &dialect_provider);
        config.dialect.replace(named.map(|named| named.map(|(dialect, _)| dialect)));
        config.base_url.replace(fields.setting("base_url", base_url));
        if config.base_url.value.is_empty() && fields.get("base_url").is_none() {
            fields.report("base_url", Rule::NoBaseUrl);
        }
        config.tier.replace(fields.setting("tier", |value| tier::known(value, &dialect_provider)));
        config.model.replace(fields.setting("model", |value| model_name(value).map(Some)));
        config
            .api_key_env
            .replace(fields.setting("api_key_env", |value| variable_name(value).map(Some)));
        config.credential = api_key(name, config.api_key_env.value.as_deref(), fields, context);
        config.ca_file.replace(fields.setting("ca_file", |value| roots::file(value).map(Some)));
        if config.ca_file.value.is_some() {
            config.roots = fields.read("ca_file", roots::certificates);
        }
        config.limits = ProviderLimits::read(fields, None);
        config.all_keys = AllKeysConfig::read(fields);
        let concurrency = bounded::concurrency(name, &dialect_provider, fields, context);
        config.max_concurrent_requests.replace(concurrency);
        config.auto_tune = AutoTuneConfig::read(
            (name, config.dialect.value),
            &mut config.max_concurrent_requests,
            fields,
            context,
        );
        config.max_retries.replace(bounded::retries(
            name,
            config.max_retries.value,
            fields,
            context,
        ));
        config.retry_base.replace(fields.setting("retry_base", positive));
        config.retry_statuses.replace(fields.setting("retry_statuses", statuses));
        config.breaker = BreakerConfig::read(fields);
        config.ramp = RampConfig::read(fields);
        config.max_wait.replace(fields.setting("max_wait", duration));
        config.connect_timeout.replace(fields.setting("connect_timeout", positive));
        config.first_byte_timeout.replace(fields.setting("first_byte_timeout", positive));
        config.idle_timeout.replace(fields.setting("idle_timeout", positive));
        config.ask_for_usage.replace(fields.setting("ask_for_usage", Value::to_switch));
        config.fallback.replace(fields.setting("fallback", |value| all.others(value, name)));
        if context.is_check() {
            let unsuitable = all.unsuitable(config.dialect.value, &config.fallback.value);
            unsuitable.into_iter().for_each(|rule| fields.report("fallback", rule));
        }
        let own = (name, config.dialect.value);
        config.fallback_models =
            fallback_models::read(fields, all, own, &config.fallback.value, context);
        let models = Models::read(name, &dialect_provider, fields, context);
        config.models.replace(models.named);
        config.model_limits = models.limited;
        config.apply_tier(&dialect_provider);
        config.endpoints = limits::endpoints(name, &dialect_provider, fields, context);
        config.warn_about_inner_limits(context);
        config
    }
}

impl ProviderConfig {
    /// Returns the number of concurrent calls: fixed or auto-tuned.
    #[must_use]
    pub fn pool_size(&self) -> PoolSize {
        self.auto_tune.pool_size(self.max_concurrent_requests.value)
    }

    /// Warns about endpoints and models that allow more concurrent calls than the provider.
    fn warn_about_inner_limits(&self, context: &mut ReadContext<'_>) {
        let most = match self.auto_tune.enabled.value {
            true => self.auto_tune.ceiling.value,
            false => self.max_concurrent_requests.value,
        };
        let endpoints =
            self.endpoints.iter().map(|(name, one)| (name, &one.max_concurrent_requests));
        let models =
            self.model_limits.iter().map(|(name, one)| (name, &one.max_concurrent_requests));
        for (part, inner) in endpoints.chain(models) {
            if let Some(limit) = inner.value.filter(|limit| *limit > most) {
                let (provider, part) = (self.name.as_str().to_owned(), part.clone());
                context.warnings.push(Warning::InnerConcurrency { provider, part, limit, most });
            }
        }
    }
}

/// Returns the providers that are available without a file.
pub(crate) fn shipped() -> BTreeMap<String, ProviderConfig> {
    let config =
        |name: &str| (name.to_owned(), ProviderConfig::with_defaults(name, &Provider::new(name)));
    SHIPPED.into_iter().map(config).collect()
}

/// Reads the `[providers]` table.
pub(crate) fn read(
    fields: &mut Fields<'_, '_>,
    context: &mut ReadContext<'_>,
) -> BTreeMap<String, ProviderConfig> {
    let path = fields.path();
    let all = KnownProviders::of(fields.entries());
    let known = table::below("providers.*");
    let mut plans = BTreeMap::new();
    for entry in fields.entries() {
        if let Err(rule) = check_provider_name(&entry.key) {
            fields.report(&entry.key, rule);
        }
        let path = Path::Key(&path, &entry.key);
        if let Some(mut fields) = Fields::open(&entry.value, path, &known, fields.violations()) {
            let mut config = ProviderConfig::read(&entry.key, &mut fields, &all, context);
            let sources = leaves(&entry.value).into_iter().map(|(_, it)| it.position.source);
            config.source = sources.max().unwrap_or_default().max(entry.position.source);
            plans.insert(entry.key.to_string(), config);
        }
    }
    plans
}

/// Reads the API key from the variable of `api_key_env`. If it is not set, warns, or rejects it in
/// a strict check.
fn api_key(
    name: &str,
    variable: Option<&str>,
    fields: &mut Fields<'_, '_>,
    context: &mut ReadContext<'_>,
) -> Option<Credential> {
    let variable = variable?;
    let found = context.environment.get(variable).map(str::trim).filter(|key| !key.is_empty());
    if found.is_none() && context.is_check() {
        fields.report("api_key_env", Rule::VariableNotSet(variable.to_owned()));
    } else if found.is_none() {
        let (provider, variable) = (name.to_owned(), variable.to_owned());
        context.warnings.push(Warning::ApiKeyNotSet { provider, variable });
    }
    found.map(Credential::new)
}
