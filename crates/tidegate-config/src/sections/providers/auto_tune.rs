//! `[providers.NAME.auto_tune]`: adapts the number of concurrent calls to what the provider
//! accepts.

use std::num::NonZeroU32;

use tidegate::pacer::{PoolSize, Tuning};
use tidegate_llm::rate_limit::CONCURRENCY_CEILING;
use tidegate_llm::settings::ConcurrencyWarning;
use tidegate_providers::Dialect;

use super::read::factor;
use crate::sections::keys as table;
use crate::sections::keys::KnownKey;
use crate::sections::read_context::ReadContext;
use crate::values::duration::positive;
use crate::values::fields::{Fields, Path};
use crate::values::setting::{Setting, Source};
use crate::values::value::Value;
use crate::values::value_kind::{COUNT, DURATION, ValueKind};
use crate::violation::Rule;
use crate::warning::Warning;

pub(crate) const KEYS: &[KnownKey] = &[
    KnownKey::new(
        "providers.*.auto_tune.enabled",
        ValueKind::Switch,
        |value| value.to_switch().map(drop),
        "Whether the number of concurrent calls is auto-tuned. If unset: on unless \
         max_concurrent_requests is set; off for Ollama.",
    ),
    KnownKey::new(
        "providers.*.auto_tune.ceiling",
        COUNT,
        |value| value.to_count().map(drop),
        "Maximum number of concurrent calls. Never above MAX_CONCURRENT_THREADS, if that is set.",
    )
    .or("1024"),
    KnownKey::new(
        "providers.*.auto_tune.decrease_above_percent",
        ValueKind::Whole(1, 100),
        |value| percent(value, 1).map(drop),
        "Decrease concurrency when more than this percentage of calls is pushed back: rejected for \
         no known limit, or overloaded.",
    )
    .or("5"),
    KnownKey::new(
        "providers.*.auto_tune.decrease_factor",
        ValueKind::Number,
        |value| decrease(value).map(drop),
        "Factor by which concurrency is decreased, by at least one call.",
    )
    .or("0.8"),
    KnownKey::new(
        "providers.*.auto_tune.increase_below_percent",
        ValueKind::Whole(0, 100),
        |value| percent(value, 0).map(drop),
        "Increase concurrency when at most this percentage of calls is pushed back and all slots \
         are in use.",
    )
    .or("1"),
    KnownKey::new(
        "providers.*.auto_tune.increase_factor",
        ValueKind::Number,
        |value| increase(value).map(drop),
        "Factor by which concurrency is increased, by at least one call, near the level at which \
         calls were pushed back before. Until the first push-back it doubles.",
    )
    .or("1.2"),
    KnownKey::new(
        "providers.*.auto_tune.max_latency",
        DURATION,
        |value| positive(value).map(drop),
        "Do not increase concurrency while calls take longer than this on average. If unset: no \
         latency limit.",
    ),
];

/// Settings of `[providers.NAME.auto_tune]`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AutoTuneConfig {
    /// Whether auto-tuning is on. Default: on unless `max_concurrent_requests` is set; off for
    /// Ollama.
    pub enabled: Setting<bool>,
    /// Maximum number of concurrent calls. Default: 1,024. Limited by `MAX_CONCURRENT_THREADS` if
    /// that is set.
    pub ceiling: Setting<NonZeroU32>,
    /// Thresholds and factors. `start` and `cap` are set by [`pool_size`](Self::pool_size).
    pub tuning: Tuning,
}

impl AutoTuneConfig {
    /// Returns the defaults of a dialect.
    pub(super) fn of(dialect: Dialect) -> Self {
        let ceiling = u32::try_from(CONCURRENCY_CEILING).ok().and_then(NonZeroU32::new);
        Self {
            enabled: Setting::default(!matches!(dialect, Dialect::Ollama | Dialect::Mock)),
            ceiling: Setting::default(ceiling.unwrap_or(NonZeroU32::MAX)),
            tuning: Tuning::new(1, CONCURRENCY_CEILING),
        }
    }

    /// Reads the section of a provider. Lowers `concurrency` to the ceiling, with a warning if it
    /// was set explicitly.
    pub(super) fn read(
        (provider_label, dialect): (&str, Dialect),
        concurrency: &mut Setting<NonZeroU32>,
        fields: &mut Fields<'_, '_>,
        context: &mut ReadContext<'_>,
    ) -> Self {
        let mut config = Self::of(dialect);
        config.enabled.value &= concurrency.source == Source::Default;
        let path = fields.path();
        let path = Path::Key(&path, "auto_tune");
        let known = table::below("providers.*.auto_tune");
        let section = fields.get("auto_tune");
        let opened =
            section.and_then(|section| Fields::open(section, path, &known, fields.violations()));
        if let Some(mut fields) = opened {
            config.enabled.replace(fields.setting("enabled", Value::to_switch));
            config.ceiling.replace(fields.setting("ceiling", Value::to_count));
            config.read_tuning(&mut fields);
            // A stored value must not prevent the program from starting.
            let is_strict = matches!(concurrency.source, Source::File | Source::Flag);
            if config.enabled.value && is_strict && concurrency.value > config.ceiling.value {
                fields.report("ceiling", Rule::CeilingBelowConcurrency(concurrency.value.get()));
            }
        }
        if let Some(cap) = context.explicit_cap.filter(|cap| *cap < config.ceiling.value) {
            config.ceiling = Setting { value: cap, source: Source::Environment };
        }
        let (limit, cap) = (concurrency.value, config.ceiling.value);
        if config.enabled.value && limit > cap {
            concurrency.value = cap;
            if concurrency.source != Source::Default {
                let provider = provider_label.to_owned();
                let warning = ConcurrencyWarning::AboveCap { limit, cap };
                context.warnings.push(Warning::Concurrency { provider, warning });
            }
        }
        config
    }

    fn read_tuning(&mut self, fields: &mut Fields<'_, '_>) {
        let tuning = &mut self.tuning;
        if let Some(percent) = fields.read("decrease_above_percent", |value| percent(value, 1)) {
            tuning.decrease_above = percent * 10;
        }
        if let Some(percent) = fields.read("increase_below_percent", |value| percent(value, 0)) {
            tuning.increase_below = percent * 10;
        }
        if let Some(factor) = fields.read("decrease_factor", decrease) {
            tuning.decrease_to = factor;
        }
        if let Some(factor) = fields.read("increase_factor", increase) {
            tuning.increase_to = factor;
        }
        if let Some(latency) = fields.read("max_latency", positive) {
            tuning.max_latency = Some(latency);
        }
        if fields.get("increase_below_percent").is_none() {
            tuning.increase_below = tuning.increase_below.min(tuning.decrease_above - 10);
        }
        if tuning.increase_below >= tuning.decrease_above {
            fields.report("increase_below_percent", Rule::NotBelow("decrease_above_percent"));
        }
    }

    /// Returns the number of concurrent calls, which starts at `start`.
    #[must_use]
    pub fn pool_size(&self, start: NonZeroU32) -> PoolSize {
        let (start, cap) = (start.get().into(), self.ceiling.value.get().into());
        match self.enabled.value {
            true => {
                let mut tuning = self.tuning;
                (tuning.start, tuning.cap) = (start, cap);
                PoolSize::Adaptive(tuning)
            }
            false => PoolSize::Fixed(start),
        }
    }
}

fn percent(value: &Value<'_>, min: u64) -> Result<u32, Rule> {
    let percent = value.to_whole_between(min, 100)?;
    u32::try_from(percent).map_err(|_| Rule::NotBetween { min, max: 100 })
}

/// Parses a factor below one, in thousandths.
fn decrease(value: &Value<'_>) -> Result<u32, Rule> {
    per_mille(value, 0.1, 0.99)
}

/// Parses a factor above one, in thousandths.
fn increase(value: &Value<'_>) -> Result<u32, Rule> {
    per_mille(value, 1.01, 10.0)
}

fn per_mille(value: &Value<'_>, min: f64, max: f64) -> Result<u32, Rule> {
    let factor = factor(value)?;
    if !(min..=max).contains(&factor) {
        return Err(Rule::NotFactor { min, max });
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the result is between 100 and 10,000"
    )]
    Ok((factor * 1_000.0).round() as u32)
}
