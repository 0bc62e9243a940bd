//! The current concurrency limit of a provider, and the reason for it.

use serde::Serialize;
use tidegate::pacer::PoolGauges;
use tidegate_config::{EffectiveSetting, Source};
use tidegate_gateway::Gateway;

/// Last part of the key of settings that are shown with their current value.
const KEY: &str = "max_concurrent_requests";

/// The current concurrency limit, shown beside the configured one.
#[derive(Debug, Serialize)]
pub(super) struct CurrentConcurrency {
    pub(super) in_force: u64,
    pub(super) reason: String,
}

impl CurrentConcurrency {
    /// Returns the current value of a setting, if it is the concurrency of a provider.
    pub(super) fn of(setting: &EffectiveSetting, gateway: &Gateway) -> Option<Self> {
        let provider = setting.key.strip_prefix("providers.")?.strip_suffix(KEY)?;
        let gauges = gateway.concurrency(provider.strip_suffix('.')?)?;
        Some(Self { in_force: gauges.limit?, reason: reason(&gauges, setting.source) })
    }
}

fn reason(gauges: &PoolGauges, source: Source) -> String {
    let Some(tuning) = gauges.adaptive else {
        return match source {
            Source::Default => "default of the provider, within MAX_CONCURRENT_THREADS".to_owned(),
            source => format!("set by the {source}"),
        };
    };
    let (start, cap, limit) = (tuning.start, tuning.cap, gauges.limit.unwrap_or(tuning.cap));
    let how = match tuning.pushed_back_at {
        Some(at) => format!("auto-tuned from {start}: calls were pushed back at {at}"),
        None if limit > start => {
            format!("auto-tuned from {start}: grew while all slots were in use")
        }
        None if limit < start => format!("auto-tuned from {start}: calls were pushed back earlier"),
        None => "starting value of auto-tuning".to_owned(),
    };
    let slow = if tuning.is_slow { "; not growing because calls are too slow" } else { "" };
    format!("{how}; maximum {cap}{slow}")
}
