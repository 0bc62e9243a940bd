//! Settings of the retry module.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_providers::{Dialect, Provider};

use crate::plan::{Checks, InvalidSettings, Rule};

/// Settings of retries. Values that are not set are those of the registry, or else the provider's
/// defaults.
///
/// ```
/// use std::time::Duration;
/// use tidegate_llm::mock::Mock;
/// use tidegate_llm::models::Models;
/// use tidegate_llm::settings::RetrySettings;
///
/// let models = Models::builder().backend("mock", Mock::new("mock")).build();
/// let retry = RetrySettings::new().max_retries(3).base_delay(Duration::from_millis(200));
/// models.load_model("mock", "any").retry(retry).build()?;
/// # Ok::<(), tidegate_llm::models::LoadError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[must_use]
pub struct RetrySettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_retries: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cap_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt_timeout_ms: Option<i64>,
}

/// Checked retry settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryParams {
    pub(crate) max_retries: u32,
    pub(crate) base: Duration,
    pub(crate) cap: Duration,
    pub(crate) attempt_timeout: Duration,
}

/// Maximum number of retries: with the default cap, more than a quarter of an hour of delays.
const MAX_RETRIES: u32 = 20;
/// Maximum of any duration: a day.
const MAX_MILLIS: u32 = 86_400_000;

/// Returns the default number of retries and the default first delay of a provider: 8 and 1 s; 3
/// and 0.5 s for Ollama, which is usually local.
#[must_use]
pub fn default_retries(provider: &Provider) -> (u32, Duration) {
    match Dialect::of(provider) {
        Dialect::Ollama => (3, Duration::from_millis(500)),
        _ => (8, Duration::from_secs(1)),
    }
}

impl RetrySettings {
    /// Creates settings without values.
    pub fn new() -> Self {
        Self::default()
    }

    /// Turns the module on or off. Default: off in a registry, on for a model that is loaded with
    /// settings.
    pub const fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = Some(enabled);
        self
    }

    /// Sets the maximum number of retries after the first attempt, at most 20. Default: 8; 3 for
    /// Ollama.
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.max_retries = Some(retries.into());
        self
    }

    /// Sets the first delay, from 1 ms to a day; each further one is twice as long. Default: 1 s;
    /// 0.5 s for Ollama.
    pub fn base_delay(mut self, delay: Duration) -> Self {
        self.base_ms = Some(millis(delay));
        self
    }

    /// Sets the maximum delay, from the first delay to a day, unless the provider asks for a longer
    /// one. Default: 60 s.
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.cap_ms = Some(millis(delay));
        self
    }

    /// Sets how long the provider may be silent in one attempt, from 1 ms to a day: until its
    /// response begins, and then between any two chunks. A response that is not streamed may take
    /// five times as long from its head to its end. Default: 120 s.
    pub fn attempt_timeout(mut self, silence: Duration) -> Self {
        self.attempt_timeout_ms = Some(millis(silence));
        self
    }

    /// Returns these settings with the values that are set in `overrides` replaced.
    pub(crate) fn merged(self, overrides: &Self) -> Self {
        Self {
            enabled: overrides.enabled.or(self.enabled),
            max_retries: overrides.max_retries.or(self.max_retries),
            base_ms: overrides.base_ms.or(self.base_ms),
            cap_ms: overrides.cap_ms.or(self.cap_ms),
            attempt_timeout_ms: overrides.attempt_timeout_ms.or(self.attempt_timeout_ms),
        }
    }

    pub(crate) const fn is_enabled(&self) -> Option<bool> {
        self.enabled
    }

    /// Returns the checked parameters for calls to a provider.
    ///
    /// # Errors
    /// Lists every violation.
    pub(crate) fn params(&self, provider: &Provider) -> Result<RetryParams, InvalidSettings> {
        let mut checks = Checks::default();
        let (max_retries, base) = default_retries(provider);
        let retries = checks
            .optional("max_retries", self.max_retries, |given| bounded(*given, 0, MAX_RETRIES));
        let mut time = |field, given, default: Duration| {
            let time = checks.optional(field, given, |given| bounded(*given, 1, MAX_MILLIS));
            time.map_or(default, |millis| Duration::from_millis(millis.into()))
        };
        let params = RetryParams {
            max_retries: retries.unwrap_or(max_retries),
            base: time("base_ms", self.base_ms, base),
            cap: time("cap_ms", self.cap_ms, Duration::from_secs(60)),
            attempt_timeout: time(
                "attempt_timeout_ms",
                self.attempt_timeout_ms,
                Duration::from_secs(120),
            ),
        };
        if params.cap < params.base {
            // Both are at most a day, so the first delay fits.
            let base = u32::try_from(params.base.as_millis()).unwrap_or(MAX_MILLIS);
            checks.reject("cap_ms", &params.cap.as_millis(), Rule::AtLeast(base));
        }
        checks.finish(params)
    }
}

impl From<bool> for RetrySettings {
    fn from(enabled: bool) -> Self {
        Self::new().enabled(enabled)
    }
}

/// Returns whole milliseconds, saturated above every allowed maximum.
fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

fn bounded(given: i64, least: u32, most: u32) -> Result<u32, Rule> {
    if given < least.into() {
        return Err(Rule::AtLeast(least));
    }
    u32::try_from(given).ok().filter(|given| *given <= most).ok_or(Rule::AtMost(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_have_defaults() {
        for (provider, retries, base) in
            [("openai", 8, 1_000), ("anthropic", 8, 1_000), ("ollama", 3, 500), ("acme", 8, 1_000)]
        {
            let params = RetrySettings::new().params(&Provider::new(provider)).unwrap();
            assert_eq!(params.max_retries, retries, "{provider}");
            assert_eq!(params.base, Duration::from_millis(base), "{provider}");
            assert_eq!(params.cap, Duration::from_secs(60));
            assert_eq!(params.attempt_timeout, Duration::from_secs(120));
        }
    }

    #[test]
    fn overrides_replace_values_and_are_checked() {
        let openai = Provider::new("openai");
        let merged = RetrySettings::new()
            .max_delay(Duration::from_secs(5))
            .merged(&RetrySettings::new().enabled(true).max_retries(0));
        let params = merged.params(&openai).unwrap();
        assert_eq!(merged.is_enabled(), Some(true));
        assert_eq!((params.max_retries, params.cap), (0, Duration::from_secs(5)));
        for (section, expected) in [
            (r#"{ "max_retries": -1 }"#, "max_retries = -1: must be >= 0"),
            (r#"{ "max_retries": 21 }"#, "max_retries = 21: must be <= 20"),
            (r#"{ "base_ms": 0 }"#, "base_ms = 0: must be >= 1"),
            (r#"{ "base_ms": 90000 }"#, "cap_ms = 60000: must be >= 90000"),
            (
                r#"{ "attempt_timeout_ms": 86400001 }"#,
                "attempt_timeout_ms = 86400001: must be <= 86400000",
            ),
        ] {
            let settings: RetrySettings = serde_json::from_str(section).unwrap();
            assert_eq!(settings.params(&openai).unwrap_err().to_string(), expected);
        }
    }
}
