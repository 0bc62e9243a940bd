//! `[modules.*]`: what calls to LLM providers go through.
//!
//! So far that is `[modules.rate_limit]`. Its rules are those of `tidegate-llm`, which enforces it.

use std::num::NonZeroU32;

use tidegate_llm::settings::RateLimitSettings;

use crate::admission::switch;
use crate::fault::Rule;
use crate::fields::{Fields, Path};
use crate::setting::{Setting, Source};
use crate::value::{Number, Value};

pub(crate) const MODULE_KEYS: &[&str] = &["rate_limit"];

const RATE_LIMIT_KEYS: &[&str] = &["enabled", "requests_per_minute", "burst_capacity"];

/// The modules.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Modules {
    /// Waiting for a permit before each call.
    pub rate_limit: RateLimitPlan,
}

impl Modules {
    pub(crate) fn layer(&mut self, fields: &mut Fields<'_, '_>, source: Source) {
        let path = fields.path();
        let Some(section) = fields.get("rate_limit") else { return };
        let path = Path::Key(&path, "rate_limit");
        if let Some(mut fields) = Fields::open(section, path, RATE_LIMIT_KEYS, fields.faults()) {
            self.rate_limit.layer(&mut fields, source);
        }
    }
}

/// Pacing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RateLimitPlan {
    /// Whether the module is there. Default `false`.
    pub enabled: Setting<bool>,
    /// Requests of a minute. Default 60.
    pub requests_per_minute: Setting<NonZeroU32>,
    /// Requests that may leave at once. Default 60, as in the [default file](crate::DEFAULT_FILE);
    /// `None` where a file has the section and not this key, which gives those of a minute.
    pub burst_capacity: Setting<Option<NonZeroU32>>,
}

impl Default for RateLimitPlan {
    fn default() -> Self {
        RateLimitSettings::default().into()
    }
}

impl From<RateLimitSettings> for RateLimitPlan {
    /// The same, by default.
    fn from(settings: RateLimitSettings) -> Self {
        Self {
            enabled: Setting::default(settings.enabled),
            requests_per_minute: Setting::default(settings.requests_per_minute),
            burst_capacity: Setting::default(settings.burst_capacity),
        }
    }
}

impl RateLimitPlan {
    fn layer(&mut self, fields: &mut Fields<'_, '_>, source: Source) {
        if source == Source::File {
            // The section of a file stands in the place of the default one, as a whole. Variables
            // replace what they name and nothing else.
            *self = RateLimitSettings::UNSAID.into();
        }
        self.enabled.replace(fields.read("enabled", switch), source);
        let rate =
            fields.read("requests_per_minute", |value| whole(value, RateLimitSettings::rate));
        self.requests_per_minute.replace(rate, source);
        let burst =
            fields.read("burst_capacity", |value| whole(value, RateLimitSettings::capacity));
        self.burst_capacity.replace(burst.map(Some), source);
    }

    /// The settings, without their sources.
    #[must_use]
    pub fn settings(&self) -> RateLimitSettings {
        let mut settings = RateLimitSettings::UNSAID;
        settings.enabled = self.enabled.value;
        settings.requests_per_minute = self.requests_per_minute.value;
        settings.burst_capacity = self.burst_capacity.value;
        settings
    }
}

/// A whole number that keeps a rule of the module.
fn whole(
    value: &Value<'_>,
    check: fn(i64) -> Result<NonZeroU32, tidegate_llm::plan::Rule>,
) -> Result<NonZeroU32, Rule> {
    let signed = value.as_number().and_then(Number::signed);
    let whole = match (signed, value.to_whole(1)) {
        (Some(whole), _) => whole,
        // Above 63 bits, and so above what any rule allows.
        (None, Ok(_) | Err(Rule::TooBig)) => i64::MAX,
        (None, Err(rule)) => return Err(rule),
    };
    Ok(check(whole)?)
}
