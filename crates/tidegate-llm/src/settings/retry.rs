//! The settings of the retry module.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_providers::{Dialect, Provider};

use crate::plan::{Checks, Invalid, Rule};

/// Whether calls are tried again, how often, and how long apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetrySettings {
    /// Whether the module is there. Default: no.
    pub enabled: bool,
    /// Retries after the first attempt. Default 8; 3 at Ollama, which is near.
    pub max_retries: u32,
    /// The first delay; each one after it is twice as long. Default 1 s; half of it at Ollama.
    pub base: Duration,
    /// The longest delay of our own choice. Default 60 s.
    pub cap: Duration,
    /// How long the provider may be silent in one attempt: until its answer begins, and then between
    /// any two pieces of it. An answer in one piece takes at most five times as long from its head
    /// to its end. Default 120 s.
    pub attempt_timeout: Duration,
}

/// Keys that replace those of [`RetrySettings`], where they are given. Times are in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryOverrides {
    /// Whether the module is there.
    pub enabled: Option<bool>,
    /// Retries after the first attempt, 0 to 20.
    pub max_retries: Option<i64>,
    /// The first delay.
    pub base_ms: Option<i64>,
    /// The longest delay.
    pub cap_ms: Option<i64>,
    /// How long the provider may be silent in one attempt.
    pub attempt_timeout_ms: Option<i64>,
}

/// The most retries: with the default cap that is more than a quarter of an hour.
const MOST_RETRIES: u32 = 20;
/// The longest of any of the times: a day.
const MOST_MILLIS: u32 = 86_400_000;

impl RetrySettings {
    /// The defaults for a provider.
    #[must_use]
    pub fn of(provider: &Provider) -> Self {
        let (max_retries, base) = match Dialect::of(provider) {
            Dialect::Ollama => (3, Duration::from_millis(500)),
            _ => (8, Duration::from_secs(1)),
        };
        Self {
            enabled: false,
            max_retries,
            base,
            cap: Duration::from_secs(60),
            attempt_timeout: Duration::from_secs(120),
        }
    }

    /// The same with what is given in place of what is there.
    ///
    /// # Errors
    /// With everything that is wrong with what is given.
    pub fn merged(self, overrides: &RetryOverrides) -> Result<Self, Invalid> {
        let mut checks = Checks::default();
        let retries = checks.optional("max_retries", overrides.max_retries, |given| {
            bounded(*given, 0, MOST_RETRIES)
        });
        let mut time = |field, given, there: Duration| {
            let time = checks.optional(field, given, |given| bounded(*given, 1, MOST_MILLIS));
            time.map_or(there, |millis| Duration::from_millis(millis.into()))
        };
        let settings = Self {
            enabled: overrides.enabled.unwrap_or(self.enabled),
            max_retries: retries.unwrap_or(self.max_retries),
            base: time("base_ms", overrides.base_ms, self.base),
            cap: time("cap_ms", overrides.cap_ms, self.cap),
            attempt_timeout: time(
                "attempt_timeout_ms",
                overrides.attempt_timeout_ms,
                self.attempt_timeout,
            ),
        };
        if settings.cap < settings.base {
            // Both are at most a day, so the first delay fits.
            let base = u32::try_from(settings.base.as_millis()).unwrap_or(MOST_MILLIS);
            checks.refuse("cap_ms", &settings.cap.as_millis(), Rule::AtLeast(base));
        }
        checks.finish(settings)
    }
}

fn bounded(given: i64, least: u32, most: u32) -> Result<u32, Rule> {
    if given < least.into() {
        return Err(Rule::AtLeast(least));
    }
    u32::try_from(given).ok().filter(|given| *given <= most).ok_or(Rule::AtMost(most))
}
