//! `[modules.*]`: modules of the library stack for LLM calls.
//!
//! The only one is `[modules.rate_limit]`, with the rules of `tidegate-llm`. The server does not
//! use it.

use std::num::NonZeroU32;

use tidegate_llm::settings::RateLimitSettings;

use crate::sections::keys::{self, KnownKey};
use crate::values::fields::{Fields, Path};
use crate::values::setting::Setting;
use crate::values::value::Value;
use crate::values::value_kind::{COUNT, ValueKind};
use crate::violation::Rule;

const WHY_UNUSED: &str =
    "the gateway limits calls by provider: set requests_per_minute under [providers.NAME]";

pub(crate) const KEYS: &[KnownKey] = &[
    KnownKey::new(
        "modules.rate_limit.enabled",
        ValueKind::Switch,
        |value| value.to_switch().map(drop),
        "Whether the library stack paces its calls.",
    )
    .unused(WHY_UNUSED),
    KnownKey::new(
        "modules.rate_limit.requests_per_minute",
        COUNT,
        |value| rate(value).map(drop),
        "Calls of the library stack per minute.",
    )
    .unused(WHY_UNUSED),
    KnownKey::new(
        "modules.rate_limit.burst_capacity",
        ValueKind::Whole(1, 10_000_000),
        |value| capacity(value).map(drop),
        "Calls of the library stack that can be sent at once. If unset: one minute's worth.",
    )
    .unused(WHY_UNUSED),
];

/// Settings of `[modules.*]`.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Modules {
    /// The rate limit module, which waits for a permit before each call.
    pub rate_limit: RateLimitConfig,
}

impl Modules {
    pub(crate) fn read(fields: &mut Fields<'_, '_>) -> Self {
        let path = fields.path();
        let Some(section) = fields.get("rate_limit") else { return Self::default() };
        let path = Path::Key(&path, "rate_limit");
        let known = keys::below("modules.rate_limit");
        let fields = Fields::open(section, path, &known, fields.violations());
        Self {
            rate_limit: fields
                .map(|mut fields| RateLimitConfig::read(&mut fields))
                .unwrap_or_default(),
        }
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

    /// Returns the settings without their sources.
    pub fn settings(&self) -> RateLimitSettings {
        let settings = RateLimitSettings::new()
            .enabled(self.enabled.value)
            .requests_per_minute(self.requests_per_minute.value.get());
        match self.burst_capacity.value {
            Some(burst) => settings.burst(burst.get()),
            None => settings,
        }
    }
}

/// Parses a positive number per minute.
pub(crate) fn rate(value: &Value<'_>) -> Result<NonZeroU32, Rule> {
    Ok(RateLimitSettings::check_rate(value.to_signed(1)?)?)
}

/// Parses a burst capacity.
pub(crate) fn capacity(value: &Value<'_>) -> Result<NonZeroU32, Rule> {
    Ok(RateLimitSettings::check_burst_capacity(value.to_signed(1)?)?)
}
