//! The circuit breaker of a provider.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::fault::Rule;
use crate::values::duration::positive;
use crate::values::fields::Fields;
use crate::values::setting::Setting;
use crate::values::value::Value;

/// Maximum of `breaker_failures`.
pub(crate) const MAX_FAILURES: u32 = 1_000;

/// Settings of the circuit breaker.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BreakerPlan {
    /// Whether the breaker is on. Default: `true`.
    pub enabled: Setting<bool>,
    /// Consecutive provider failures that open the breaker. Default: 10.
    pub failures: Setting<NonZeroU32>,
    /// How long the breaker stays open at first. Default: 5 s.
    pub open_for: Setting<Duration>,
}

impl Default for BreakerPlan {
    fn default() -> Self {
        Self {
            enabled: Setting::default(true),
            failures: Setting::default(const { NonZeroU32::new(10).unwrap() }),
            open_for: Setting::default(Duration::from_secs(5)),
        }
    }
}

impl BreakerPlan {
    pub(super) fn read(fields: &mut Fields<'_, '_>) -> Self {
        let mut plan = Self::default();
        plan.enabled.replace(fields.setting("breaker", Value::to_switch));
        plan.failures.replace(fields.setting("breaker_failures", failures));
        plan.open_for.replace(fields.setting("breaker_open_for", positive));
        plan
    }
}

pub(super) fn failures(value: &Value<'_>) -> Result<NonZeroU32, Rule> {
    let most = MAX_FAILURES.into();
    let failures = u32::try_from(value.to_whole_between(1, most)?).ok().and_then(NonZeroU32::new);
    failures.ok_or(Rule::NotBetween { least: 1, most })
}
