//! Slow start: how the rate of calls to a provider grows to its limit.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::sections::modules::rate;
use crate::values::duration::duration;
use crate::values::fields::Fields;
use crate::values::setting::Setting;
use crate::violation::Rule;

/// Settings of the slow start, for providers that reject sudden bursts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RampConfig {
    /// Time to reach the limit. Default: zero, no slow start.
    pub over: Setting<Duration>,
    /// Initial requests per minute. Default: 60.
    pub floor: Setting<NonZeroU32>,
}

impl Default for RampConfig {
    fn default() -> Self {
        Self {
            over: Setting::default(Duration::ZERO),
            floor: Setting::default(const { NonZeroU32::new(60).unwrap() }),
        }
    }
}

impl RampConfig {
    /// Returns whether slow start is on.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        !self.over.value.is_zero()
    }

    pub(super) fn read(fields: &mut Fields<'_, '_>) -> Self {
        let mut config = Self::default();
        config.over.replace(fields.setting("ramp_up", duration));
        config.floor.replace(fields.setting("ramp_floor", rate));
        if fields.get("ramp_up").is_none() && fields.get("ramp_floor").is_some() {
            fields.report("ramp_floor", Rule::RampFloorWithoutRamp);
        }
        config
    }
}
