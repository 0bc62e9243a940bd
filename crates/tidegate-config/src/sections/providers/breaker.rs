//! The circuit breaker of a provider.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::values::duration::positive;
use crate::values::fields::Fields;
use crate::values::setting::Setting;
use crate::values::value::Value;
use crate::violation::Rule;

/// Maximum of `breaker_failures`.
pub(crate) const MAX_FAILURES: u32 = 1_000;

/// Settings of the circuit breaker.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BreakerConfig {
    /// Whether the breaker is on. Default: `true`.
    pub enabled: Setting<bool>,
    /// Consecutive provider failures that open the breaker. Default: 10.
    pub failures: Setting<NonZeroU32>,
    /// How long the breaker stays open at first. Default: 5 s.
    pub open_for: Setting<Duration>,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            enabled: Setting::default(true),
            failures: Setting::default(const { NonZeroU32::new(10).unwrap() }),
            open_for: Setting::default(Duration::from_secs(5)),
        }
    }
}

impl BreakerConfig {
    pub(super) fn read(fields: &mut Fields<'_, '_>) -> Self {
        let mut config = Self::default();
        config.enabled.replace(fields.setting("breaker", Value::to_switch));
        config.failures.replace(fields.setting("breaker_failures", failures));
        config.open_for.replace(fields.setting("breaker_open_for", positive));
        config
    }
}

pub(super) fn failures(value: &Value<'_>) -> Result<NonZeroU32, Rule> {
    let max = MAX_FAILURES.into();
    let failures = u32::try_from(value.to_whole_between(1, max)?).ok().and_then(NonZeroU32::new);
    failures.ok_or(Rule::NotBetween { min: 1, max })
}
