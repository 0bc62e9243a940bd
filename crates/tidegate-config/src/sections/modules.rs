//! `[modules.*]`: modules of the library stack for LLM calls, with the rules of `tidegate-llm`. The
//! server does not use them.

use std::num::NonZeroU32;
use std::time::Duration;

use tidegate_llm::fallback::MAX_TARGETS;
use tidegate_llm::settings::{RateLimitSettings, RetrySettings};

use crate::sections::keys::{self, KnownKey};
use crate::values::duration::positive;
use crate::values::fields::{Fields, Path};
use crate::values::setting::{Setting, Source};
use crate::values::value::Value;
use crate::values::value_kind::{COUNT, DURATION, ValueKind};
use crate::violation::Rule;

const LIMITS: &str =
    "the gateway limits calls by provider: set requests_per_minute under [providers.NAME]";
const RETRIES: &str = "the gateway always retries: set max_retries under [providers.NAME]";
const FALLBACKS: &str = "the gateway falls back by provider: set fallback under [providers.NAME]";

pub(crate) const KEYS: &[KnownKey] = &[
    KnownKey::new(
        "modules.rate_limit.enabled",
        ValueKind::Switch,
        |value| value.to_switch().map(drop),
        "Whether the library stack paces calls to providers without limits of their own. A \
         provider with limits of its own is paced unless this is set to false.",
    )
    .library(LIMITS),
    KnownKey::new(
        "modules.rate_limit.requests_per_minute",
        COUNT,
        |value| rate(value).map(drop),
        "Calls of the library stack per minute, to each provider without limits of its own.",
    )
    .library(LIMITS),
    KnownKey::new(
        "modules.rate_limit.burst_capacity",
        ValueKind::Whole(1, 10_000_000),
        |value| capacity(value).map(drop),
        "Calls of the library stack that can be sent at once. If unset: one minute's worth.",
    )
    .library(LIMITS),
    KnownKey::new(
        "modules.retry.enabled",
        ValueKind::Switch,
        |value| value.to_switch().map(drop),
        "Whether the library stack retries failed calls. A provider with max_retries, retry_base \
         or retry_statuses of its own is retried unless this is set to false.",
    )
    .library(RETRIES),
    KnownKey::new(
        "modules.retry.max_delay",
        DURATION,
        |value| positive(value).map(drop),
        "Maximum delay between attempts of the library stack, unless the provider asks for more.",
    )
    .library(RETRIES),
    KnownKey::new(
        "modules.retry.attempt_timeout",
        DURATION,
        |value| positive(value).map(drop),
        "How long a provider may send nothing in an attempt of the library stack.",
    )
    .library("set first_byte_timeout and idle_timeout under [providers.NAME]"),
    KnownKey::new(
        "modules.fallback.enabled",
        ValueKind::Switch,
        |value| value.to_switch().map(drop),
        "Whether the library stack falls back to other providers. A provider with a fallback of \
         its own falls back unless this is set to false.",
    )
    .library(FALLBACKS),
    KnownKey::new(
        "modules.fallback.chain",
        ValueKind::Texts,
        |value| chain(value).map(drop),
        "Providers that the library stack falls back to, in order, each optionally with a model, \
         such as anthropic/claude-sonnet-5.",
    )
    .library(FALLBACKS),
];

/// Settings of `[modules.*]`.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Modules {
    /// The rate limit module, which waits for a permit before each call.
    pub rate_limit: RateLimitConfig,
    /// The retry module.
    pub retry: RetryConfig,
    /// The fallback module.
    pub fallback: FallbackConfig,
}

impl Modules {
    pub(crate) fn read(fields: &mut Fields<'_, '_>) -> Self {
        let mut modules = Self::default();
        let path = fields.path();
        for module in ["rate_limit", "retry", "fallback"] {
            let Some(section) = fields.get(module) else { continue };
            let path = Path::Key(&path, module);
            let known = keys::below(&format!("modules.{module}"));
            let opened = Fields::open(section, path, &known, fields.violations());
            let Some(mut fields) = opened else { continue };
            match module {
                "rate_limit" => modules.rate_limit = RateLimitConfig::read(&mut fields),
                "retry" => modules.retry = RetryConfig::read(&mut fields),
                _ => modules.fallback = FallbackConfig::read(&mut fields),
            }
        }
        modules
    }
}

/// Settings of `[modules.rate_limit]`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RateLimitConfig {
    /// Whether the module is enabled. Default: `false`.
    pub enabled: Setting<bool>,
    /// Requests per minute. Default: 60.
    pub requests_per_minute: Setting<NonZeroU32>,
    /// Requests that can be sent at once. Default: 60, as in the [default
    /// file](crate::DEFAULT_FILE). `None` if a file has the section without this key; the burst is
    /// then one minute's worth.
    pub burst_capacity: Setting<Option<NonZeroU32>>,
}

impl Default for RateLimitConfig {
    fn default() -> Self {
        Self::with_burst(Some(DEFAULT_REQUESTS))
    }
}

/// Requests per minute, and burst, of the default file.
const DEFAULT_REQUESTS: NonZeroU32 = NonZeroU32::MIN.saturating_add(59);

impl RateLimitConfig {
    const fn with_burst(burst: Option<NonZeroU32>) -> Self {
        Self {
            enabled: Setting::default(false),
            requests_per_minute: Setting::default(DEFAULT_REQUESTS),
            burst_capacity: Setting::default(burst),
        }
    }

    fn read(fields: &mut Fields<'_, '_>) -> Self {
        // The burst of the default file is missing only if a file has the section.
        let mut config = Self::with_burst(None);
        config.enabled.replace(fields.setting("enabled", Value::to_switch));
        config.requests_per_minute.replace(fields.setting("requests_per_minute", rate));
        let burst = fields.setting("burst_capacity", capacity);
        config.burst_capacity.replace(burst.map(|burst| burst.map(Some)));
        config
    }

    /// Returns the settings without their sources; `None` if no layer has the section, so that a
    /// model that is rate limited learns its limits.
    #[must_use]
    pub fn settings(&self) -> Option<RateLimitSettings> {
        let sources =
            [self.enabled.source, self.requests_per_minute.source, self.burst_capacity.source];
        // A file that has the section, even an empty one, removes the burst of the default file.
        let has_section = self.burst_capacity.value.is_none();
        if !has_section && sources.iter().all(|source| *source == Source::Default) {
            return None;
        }
        let settings = RateLimitSettings::new()
            .enabled(self.enabled.value)
            .requests_per_minute(self.requests_per_minute.value.get());
        Some(match self.burst_capacity.value {
            Some(burst) => settings.burst(burst.get()),
            None => settings,
        })
    }
}

/// Settings of `[modules.retry]`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RetryConfig {
    /// Whether the module is enabled. Default: `false`.
    pub enabled: Setting<bool>,
    /// Maximum delay between attempts. Default: 60 s.
    pub max_delay: Setting<Duration>,
    /// How long a provider may be silent in an attempt. Default: 120 s.
    pub attempt_timeout: Setting<Duration>,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self {
            enabled: Setting::default(false),
            max_delay: Setting::default(Duration::from_secs(60)),
            attempt_timeout: Setting::default(Duration::from_secs(120)),
        }
    }
}

impl RetryConfig {
    fn read(fields: &mut Fields<'_, '_>) -> Self {
        let mut config = Self::default();
        config.enabled.replace(fields.setting("enabled", Value::to_switch));
        config.max_delay.replace(fields.setting("max_delay", positive));
        config.attempt_timeout.replace(fields.setting("attempt_timeout", positive));
        config
    }

    /// Returns the settings without their sources.
    pub fn settings(&self) -> RetrySettings {
        RetrySettings::new()
            .enabled(self.enabled.value)
            .max_delay(self.max_delay.value)
            .attempt_timeout(self.attempt_timeout.value)
    }
}

/// Settings of `[modules.fallback]`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FallbackConfig {
    /// Whether the module is enabled. Default: `false`.
    pub enabled: Setting<bool>,
    /// Providers to fall back to, each optionally with a model. Default: none.
    pub chain: Setting<Vec<String>>,
}

impl Default for FallbackConfig {
    fn default() -> Self {
        Self { enabled: Setting::default(false), chain: Setting::default(Vec::new()) }
    }
}

impl FallbackConfig {
    fn read(fields: &mut Fields<'_, '_>) -> Self {
        let mut config = Self::default();
        config.enabled.replace(fields.setting("enabled", Value::to_switch));
        config.chain.replace(fields.setting("chain", chain));
        if config.enabled.value && config.chain.value.is_empty() {
            fields.report("enabled", Rule::EmptyChain);
        }
        config
    }
}

/// Parses a list of at most [`MAX_TARGETS`] providers, each optionally with a model.
fn chain(value: &Value<'_>) -> Result<Vec<String>, Rule> {
    let chain = value.to_strings()?;
    if chain.len() > MAX_TARGETS {
        return Err(Rule::TooManyFallbacks(MAX_TARGETS));
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    let is_target = |target: &String| {
        let (provider, model) = target.split_once('/').unwrap_or((target, "any"));
        !provider.is_empty() && provider.bytes().all(is_name) && !model.trim().is_empty()
    };
    if chain.iter().all(is_target) { Ok(chain) } else { Err(Rule::FallbackTarget) }
}

/// Parses a positive number per minute.
pub(crate) fn rate(value: &Value<'_>) -> Result<NonZeroU32, Rule> {
    Ok(RateLimitSettings::check_rate(value.to_signed(1)?)?)
}

/// Parses a burst capacity.
pub(crate) fn capacity(value: &Value<'_>) -> Result<NonZeroU32, Rule> {
    Ok(RateLimitSettings::check_burst_capacity(value.to_signed(1)?)?)
}
