//! The settings of the rate-limit module: the section `[modules.rate_limit]`.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::plan::{Checks, Constraint, Invalid, Rule, burst, rate};

/// Whether calls are paced, and how fast they go.
///
/// The default is what the default file says: off, 60 requests a minute, and 60 at once. A section
/// that leaves `burst_capacity` out gives as many at once as come in a minute.
///
/// ```
/// use tidegate_llm::settings::RateLimitSettings;
/// let settings: RateLimitSettings = serde_json::from_str(r#"{ "requests_per_minute": 120 }"#)?;
/// assert_eq!(settings.burst().get(), 120);
/// assert!(serde_json::from_str::<RateLimitSettings>(r#"{ "requests_per_minute": 0 }"#).is_err());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RateLimitOverrides")]
#[non_exhaustive]
pub struct RateLimitSettings {
    /// Whether the module is there.
    pub enabled: bool,
    /// Requests of a minute.
    pub requests_per_minute: NonZeroU32,
    /// Requests that may leave at once; those of a minute if unset.
    pub burst_capacity: Option<NonZeroU32>,
}

/// Keys that replace those of [`RateLimitSettings`], where they are given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RateLimitOverrides {
    /// Whether the module is there.
    pub enabled: Option<bool>,
    /// Requests of a minute, > 0.
    pub requests_per_minute: Option<i64>,
    /// Requests that may leave at once, >= 1.
    pub burst_capacity: Option<i64>,
}

const DEFAULT: NonZeroU32 = NonZeroU32::MIN.saturating_add(59);

impl Default for RateLimitSettings {
    fn default() -> Self {
        Self { burst_capacity: Some(DEFAULT), ..Self::UNSAID }
    }
}

impl RateLimitSettings {
    /// A section in which nothing is said.
    pub const UNSAID: Self =
        Self { enabled: false, requests_per_minute: DEFAULT, burst_capacity: None };

    /// The same with what is given in place of what is there.
    ///
    /// # Errors
    /// With everything that is wrong with what is given.
    pub fn merged(self, overrides: &RateLimitOverrides) -> Result<Self, Invalid> {
        let mut checks = Checks::default();
        let given = overrides.requests_per_minute;
        let rate = checks.optional("requests_per_minute", given, |given| Self::rate(*given));
        let given = overrides.burst_capacity;
        let burst = checks.optional("burst_capacity", given, |given| Self::capacity(*given));
        checks.finish(Self {
            enabled: overrides.enabled.unwrap_or(self.enabled),
            requests_per_minute: rate.unwrap_or(self.requests_per_minute),
            burst_capacity: burst.or(self.burst_capacity),
        })
    }

    /// Checks requests of a minute.
    ///
    /// # Errors
    /// With the rule that the number breaks: it must be > 0.
    pub fn rate(requests_per_minute: i64) -> Result<NonZeroU32, Rule> {
        rate(requests_per_minute)
    }

    /// Checks a capacity of bursts.
    ///
    /// # Errors
    /// With the rule that the number breaks: it must be >= 1.
    pub fn capacity(burst_capacity: i64) -> Result<NonZeroU32, Rule> {
        burst(burst_capacity)
    }

    /// Requests that may leave at once.
    #[must_use]
    pub fn burst(&self) -> NonZeroU32 {
        self.burst_capacity.unwrap_or(self.requests_per_minute)
    }

    /// What the module keeps to.
    #[must_use]
    pub fn constraint(&self) -> Constraint {
        Constraint::per_minute(self.requests_per_minute).with_burst(self.burst())
    }
}

impl TryFrom<RateLimitOverrides> for RateLimitSettings {
    type Error = Invalid;

    fn try_from(given: RateLimitOverrides) -> Result<Self, Invalid> {
        Self::UNSAID.merged(&given)
    }
}
