//! Models of the library stack, as a configuration says (feature `models`).
//!
//! A provider with limits of its own uses those and learns the others; `[modules.rate_limit]` is for
//! all other providers. Without that section, models that are rate limited learn all limits. A
//! setting that the library cannot apply is an error, so that nothing in a file is silently without
//! effect.

use std::path::PathBuf;

use http::Extensions;
use tidegate_llm::client::{Client, Roots, set_connect_timeout};
use tidegate_llm::models::{LoadError, Models, ModelsBuilder, Profile};
use tidegate_llm::plan::RawConstraint;
use tidegate_llm::rate_limit::AccountLimits;
use tidegate_llm::settings::{RateLimitSettings, RetrySettings};
use tidegate_llm::{ClassificationRules, ConnectionError, Credential, Endpoint};

use crate::config::Config;
use crate::error::ConfigError;
use crate::layers::Layers;
use crate::layers::environment::process_environment;
use crate::layers::loader::Loader;
use crate::layers::tree::leaves;
use crate::layers::variables::variable_form;
use crate::sections::providers::ProviderConfig;
use crate::sections::read_context::ReadContext;
use crate::values::setting::{Setting, Source};
use crate::values::value::Value;
use crate::violation::{Rule, Violation};
use crate::warning::Warning;

/// Settings of providers that the library cannot apply, by the start of their path below the
/// provider, and why.
const NOT_IN_LIBRARY: &[(&str, &str)] = &[
    ("all_keys", "a program has one key for a provider; set its limits"),
    ("ask_for_usage", "usage is always requested"),
    ("auto_tune", "set max_concurrent_requests, or leave both out for auto-tuning by default"),
    ("fallback_models", "name the model in modules.fallback.chain, such as \"groq/llama-4\""),
    ("first_byte_timeout", "set modules.retry.attempt_timeout"),
    ("idle_timeout", "set modules.retry.attempt_timeout"),
    ("endpoints.*.paths", "calls name their endpoint"),
    ("models", "a list of models is for metrics of the gateway; a table sets their limits"),
];

/// Why a slow start has no effect.
const NO_LIMITS: &str = "calls are not rate limited; set modules.rate_limit.enabled, or a limit";

/// Why a circuit breaker has no effect.
const NO_RETRIES: &str =
    "a breaker needs retries or fallbacks; set modules.retry.enabled, max_retries or fallback";

/// Error when loading models from a configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelsError {
    /// The configuration cannot be read or is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The HTTP client cannot be created.
    #[error("cannot create an HTTP client: {0}")]
    Client(#[from] ConnectionError),
    /// The process already has a registry of models.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// Reads a configuration file and the environment of the process, and makes
/// [`load_model`](tidegate_llm::models::load_model) follow them. Call it once, at the start of the
/// program.
///
/// # Errors
/// If the file cannot be read, a setting is invalid or cannot be applied by the library, or the
/// process has loaded a model before.
pub fn load_models(file: impl Into<PathBuf>) -> Result<&'static Models, ModelsError> {
    let layers = Loader::default().file(file).environment(process_environment()).layers()?;
    Ok(layers.models()?.build().set_global()?)
}

impl Layers {
    /// Returns the registry of models that these layers describe, with an HTTP client. Warnings are
    /// logged.
    ///
    /// The key of a provider is in the variable of `api_key_env`, else in `NAME_API_KEY`, such as
    /// `OPENAI_API_KEY`, or `MY_HOUSE_API_KEY` for `my-house`, if that is set.
    ///
    /// ```
    /// use tidegate_config::Loader;
    /// let text = "[modules.rate_limit]\nenabled = true\nrequests_per_minute = 120\n";
    /// let models = Loader::default().text_layers("in-line", text).models()?.build();
    /// let model = models.load_model("openai", "gpt-4o").build()?;
    /// assert_eq!(model.to_string(), "RateLimit(openai/gpt-4o)");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If a setting is invalid or cannot be applied by the library. Lists all of them.
    pub fn models(&self) -> Result<ModelsBuilder, ModelsError> {
        let context = ReadContext::new(&self.environment);
        let cap = context.cap;
        let config = self.read(context, not_in_library)?;
        let is_for_program = |warning: &Warning| matches!(warning, Warning::LibraryOnly { .. });
        for warning in config.warnings.iter().filter(|warning| !is_for_program(warning)) {
            tracing::warn!("{warning}");
        }
        for unknown in &config.unknown_variables {
            tracing::warn!("{unknown}");
        }
        let modules = &config.modules;
        let mut builder = Models::builder()
            .http(Client::new()?)
            .max_concurrent_threads(cap)
            .retry(modules.retry.settings())
            .fallback(modules.fallback.enabled.value);
        if let Some(settings) = modules.rate_limit.settings() {
            builder = builder.rate_limit(settings);
        }
        if !modules.fallback.chain.value.is_empty() {
            builder = builder.fallback_to(&modules.fallback.chain.value);
        }
        for (name, provider) in &config.providers {
            builder = builder.provider(name.as_str(), self.profile(&config, name, provider)?);
        }
        Ok(builder)
    }

    fn profile(
        &self,
        config: &Config,
        name: &str,
        provider: &ProviderConfig,
    ) -> Result<Profile, ModelsError> {
        let key = || self.usual_key(config, name);
        let mut profile = Profile::new()
            .dialect(provider.dialect())
            .credential(provider.credential().cloned().or_else(key).unwrap_or(Credential::none()))
            .retry(retry(config, provider))
            .limits(limits(provider))
            .request_extensions(extensions(config, provider)?);
        if !provider.base_url.value.is_empty() {
            profile = profile.base_url(&provider.base_url.value);
        }
        if let Some(model) = &provider.model.value {
            profile = profile.model(model);
        }
        if let Some(settings) = rate_limit(provider) {
            profile =
                profile.rate_limit(settings.enabled(!is_off(&config.modules.rate_limit.enabled)));
        }
        if is_set(&provider.max_concurrent_requests) {
            let limit = provider.max_concurrent_requests.value.get();
            profile = profile.max_concurrent_requests(limit.into());
        }
        if is_set(&provider.retry_statuses) {
            let statuses = provider.retry_statuses.value.iter().copied();
            profile = profile.rules(ClassificationRules::default().retry_statuses(statuses));
        }
        if !provider.fallback.value.is_empty() {
            profile = profile.fallback_to(&provider.fallback.value);
            profile = profile.fallback(!is_off(&config.modules.fallback.enabled));
        }
        let breaker = &provider.breaker;
        profile = if breaker.enabled.value {
            profile.breaker(breaker.failures.value.get(), breaker.open_for.value)
        } else {
            profile.without_breaker()
        };
        if provider.ramp.is_on() {
            let floor = provider.ramp.floor.value.get().into();
            profile = profile.ramp_up(floor, provider.ramp.over.value);
        }
        if is_set(&provider.max_wait) {
            profile = profile.max_wait(provider.max_wait.value);
        }
        Ok(profile)
    }

    /// Returns the key in the variable that is named like the provider. A variable that is named
    /// like several providers is used for none of them: it would be sent to the wrong one.
    fn usual_key(&self, config: &Config, name: &str) -> Option<Credential> {
        let variable = format!("{}_API_KEY", variable_form(name));
        let key = self.environment.get(&variable).map(str::trim).filter(|key| !key.is_empty())?;
        let same = |other: &&String| variable_form(other) == variable_form(name);
        let named: Vec<_> = config.providers.keys().filter(same).map(String::as_str).collect();
        if named.len() > 1 {
            let providers = named.join(", ");
            tracing::warn!(
                variable,
                providers,
                "variable matches several providers and is not used; set api_key_env"
            );
            return None;
        }
        Some(Credential::new(key))
    }
}

fn is_set<T>(setting: &Setting<T>) -> bool {
    setting.source != Source::Default
}

/// Returns whether a module is turned off explicitly.
fn is_off(enabled: &Setting<bool>) -> bool {
    is_set(enabled) && !enabled.value
}

/// Returns the limits of a provider for all of its models together, if it has limits of its own. One
/// with a number of concurrent calls only has the limits of the module, or else learns them.
fn rate_limit(provider: &ProviderConfig) -> Option<RateLimitSettings> {
    let limits = &provider.limits;
    let has_parts = provider.tier_limits().next().is_some()
        || !provider.model_limits.is_empty()
        || !provider.endpoints.is_empty();
    if provider.constraint().is_none() && !has_parts {
        return is_set(&provider.max_concurrent_requests).then(|| true.into());
    }
    let mut settings = RateLimitSettings::learned();
    let Some(constraint) = provider.constraint() else { return Some(settings) };
    if let Some(requests) = limits.requests_per_minute.value {
        settings = settings.requests_per_minute(requests.get());
    }
    let raw = RawConstraint::from(constraint.clone());
    if raw.requests_per_minute.is_some() || limits.burst_capacity.value.is_some() {
        // The burst of a factor, or one second's worth, as in the gateway.
        settings = settings.burst(u32::try_from(constraint.burst()).unwrap_or(u32::MAX));
    }
    if let Some(tokens) = limits.tokens_per_minute.value {
        settings = settings.tokens_per_minute(tokens.get());
    }
    if let Some(tokens) = limits.input_tokens_per_minute.value {
        settings = settings.input_tokens_per_minute(tokens.get());
    }
    if let Some(tokens) = limits.output_tokens_per_minute.value {
        settings = settings.output_tokens_per_minute(tokens.get());
    }
    if let Some(requests) = limits.requests_per_day.value {
        let zone = constraint.requests_per_day_zone().unwrap_or("UTC");
        settings = settings.requests_per_day(requests.get(), zone);
    }
    if let Some(interval) = limits.min_interval.value {
        settings = settings.min_interval(interval);
    }
    Some(settings)
}

/// Returns the limits of models and endpoints.
fn limits(provider: &ProviderConfig) -> AccountLimits {
    let mut limits = AccountLimits::default();
    for (pattern, constraint) in provider.tier_limits() {
        limits = limits.tier_model(pattern, constraint.clone());
    }
    for (pattern, config) in &provider.model_limits {
        if let Some(constraint) = config.constraint() {
            limits = limits.model(pattern, constraint.clone());
        }
    }
    for (endpoint, config) in &provider.endpoints {
        if let Some(constraint) = config.constraint() {
            limits = limits.endpoint(Endpoint::new(endpoint), constraint.clone());
        }
    }
    limits
}

/// Returns the retry settings of a provider. Settings of its own turn retries on, unless the module
/// is turned off.
fn retry(config: &Config, provider: &ProviderConfig) -> RetrySettings {
    let mut settings = RetrySettings::new();
    if is_set(&provider.max_retries) {
        settings = settings.max_retries(provider.max_retries.value);
    }
    if is_set(&provider.retry_base) {
        settings = settings.base_delay(provider.retry_base.value);
    }
    let is_on = !is_off(&config.modules.retry.enabled);
    if has_own_retries(provider) { settings.enabled(is_on) } else { settings }
}

fn has_own_retries(provider: &ProviderConfig) -> bool {
    is_set(&provider.max_retries)
        || is_set(&provider.retry_base)
        || is_set(&provider.retry_statuses)
}

/// Returns how the client connects to a provider.
fn extensions(config: &Config, provider: &ProviderConfig) -> Result<Extensions, ModelsError> {
    let mut extensions = Extensions::new();
    if is_set(&provider.connect_timeout) {
        set_connect_timeout(&mut extensions, provider.connect_timeout.value);
    }
    if let Some(roots) = provider.roots() {
        extensions.insert(Roots::from_der(roots.iter().cloned())?);
    }
    if let Some(proxy) = config.proxy.proxy_for(&provider.base_url.value) {
        extensions.insert(proxy.clone());
    }
    Ok(extensions)
}

/// Returns a violation for each setting that the library cannot apply. Sections of the program may
/// be set by the environment, which other programs share, but not by the file.
fn not_in_library(tree: &Value<'_>, config: &Config) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (names, value) in leaves(tree) {
        let source = value.position.source;
        let why = match names.as_slice() {
            ["providers", name, below @ ..] if source != Source::Default => {
                why_not(below).or_else(|| why_inert(config, config.providers.get(*name)?, below))
            }
            ["providers" | "modules" | "proxy", ..] => None,
            _ => (source == Source::File).then_some("it is a setting of the program `tidegate`"),
        };
        if let Some(why) = why {
            violations.push(Violation::at_names(&names, value, Rule::NotInLibrary(why)));
        }
        if let ["providers", name, "api_key_env"] = names.as_slice() {
            let provider = config.providers.get(*name);
            let missing = provider.filter(|provider| provider.credential().is_none());
            if let Some(variable) = missing.and_then(|one| one.api_key_env.value.clone()) {
                let rule = Rule::KeyNotSet(variable);
                violations.push(Violation::at_names(&names, value, rule));
            }
        }
    }
    violations
}

/// Returns why the library cannot apply a setting of a provider.
fn why_not(names: &[&str]) -> Option<&'static str> {
    let is_below = |path: &str| {
        let mut parts = path.split('.');
        let mut names = names.iter();
        parts.all(|part| names.next().is_some_and(|name| part == "*" || part == *name))
    };
    let is_list = |path: &str| path != "models" || names.len() == 1;
    NOT_IN_LIBRARY.iter().find(|(path, _)| is_below(path) && is_list(path)).map(|(_, why)| *why)
}

/// Returns why a setting of a provider has no effect with these modules. One whose module is turned
/// off explicitly is not reported.
fn why_inert(config: &Config, provider: &ProviderConfig, names: &[&str]) -> Option<&'static str> {
    let modules = &config.modules;
    match names {
        ["ramp_up" | "ramp_floor"] => {
            let module = &modules.rate_limit.enabled;
            let is_limited = module.value || rate_limit(provider).is_some();
            (provider.ramp.is_on() && !is_limited && !is_off(module)).then_some(NO_LIMITS)
        }
        ["breaker" | "breaker_failures" | "breaker_open_for"] => {
            let (retry, fallback) = (&modules.retry.enabled, &modules.fallback.enabled);
            let is_used = retry.value
                || fallback.value
                || has_own_retries(provider)
                || !provider.fallback.value.is_empty();
            let is_reported = !is_used && !is_off(retry) && !is_off(fallback);
            (provider.breaker.enabled.value && is_reported).then_some(NO_RETRIES)
        }
        _ => None,
    }
}
