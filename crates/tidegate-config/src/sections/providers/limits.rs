//! Rate limits of a provider and of its endpoints.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use tidegate_llm::plan::{Constraint, RawConstraint};
use tidegate_providers::Provider;

use super::bounded;
use super::endpoint_routes::{self, RouteOwners};
use super::read::{check_name_syntax, factor, interval};
use crate::sections::keys as table;
use crate::sections::modules::{capacity, rate};
use crate::sections::read_context::ReadContext;
use crate::values::fields::{Fields, Path};
use crate::values::setting::Setting;
use crate::values::zone::canonical_zone;
use crate::violation::Rule;

/// Rate limits of a provider. Unset limits are learned from its responses.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProviderLimits {
    /// Requests per minute.
    pub requests_per_minute: Setting<Option<NonZeroU32>>,
    /// Tokens per minute, input and output together.
    pub tokens_per_minute: Setting<Option<NonZeroU32>>,
    /// Input tokens per minute.
    pub input_tokens_per_minute: Setting<Option<NonZeroU32>>,
    /// Output tokens per minute.
    pub output_tokens_per_minute: Setting<Option<NonZeroU32>>,
    /// Requests per calendar day.
    pub requests_per_day: Setting<Option<NonZeroU32>>,
    /// Time zone of that day.
    pub requests_per_day_zone: Setting<Option<String>>,
    /// Minimum interval between two requests.
    pub min_interval: Setting<Option<Duration>>,
    /// Burst size, in seconds' worth of requests.
    pub burst_factor: Setting<Option<f64>>,
    /// Burst size, in requests.
    pub burst_capacity: Setting<Option<NonZeroU32>>,
    pub(super) constraint: Option<Constraint>,
    pub(super) raw: RawConstraint,
}

impl Default for ProviderLimits {
    fn default() -> Self {
        Self {
            requests_per_minute: Setting::default(None),
            tokens_per_minute: Setting::default(None),
            input_tokens_per_minute: Setting::default(None),
            output_tokens_per_minute: Setting::default(None),
            requests_per_day: Setting::default(None),
            requests_per_day_zone: Setting::default(None),
            min_interval: Setting::default(None),
            burst_factor: Setting::default(None),
            burst_capacity: Setting::default(None),
            constraint: None,
            raw: RawConstraint::default(),
        }
    }
}

impl ProviderLimits {
    pub(super) fn read(fields: &mut Fields<'_, '_>, concurrency: Option<NonZeroU32>) -> Self {
        let mut limits = Self::default();
        let amounts = [
            ("requests_per_minute", &mut limits.requests_per_minute),
            ("tokens_per_minute", &mut limits.tokens_per_minute),
            ("input_tokens_per_minute", &mut limits.input_tokens_per_minute),
            ("output_tokens_per_minute", &mut limits.output_tokens_per_minute),
            ("requests_per_day", &mut limits.requests_per_day),
        ];
        for (key, setting) in amounts {
            setting.replace(fields.setting(key, |value| rate(value).map(Some)));
        }
        let zone = fields
            .setting("requests_per_day_zone", |value| canonical_zone(value.to_text()?).map(Some));
        limits.requests_per_day_zone.replace(zone);
        let pause = fields.setting("min_interval_ms", |value| interval(value).map(Some));
        limits.min_interval.replace(pause);
        let seconds = fields.setting("burst_factor", |value| factor(value).map(Some));
        limits.burst_factor.replace(seconds);
        let burst = fields.setting("burst_capacity", |value| capacity(value).map(Some));
        limits.burst_capacity.replace(burst);
        limits.raw = limits.to_raw();
        limits.raw.max_concurrent_requests = concurrency.map(|limit| limit.get().into());
        limits.constraint = constraint(&limits.raw, fields);
        limits
    }

    fn to_raw(&self) -> RawConstraint {
        let number = |setting: &Setting<Option<NonZeroU32>>| setting.value.map(|n| n.get().into());
        let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        RawConstraint {
            requests_per_minute: number(&self.requests_per_minute),
            tokens_per_minute: number(&self.tokens_per_minute),
            input_tokens_per_minute: number(&self.input_tokens_per_minute),
            output_tokens_per_minute: number(&self.output_tokens_per_minute),
            requests_per_day: number(&self.requests_per_day),
            requests_per_day_zone: self.requests_per_day_zone.value.clone(),
            min_interval_ms: self.min_interval.value.map(millis),
            burst_factor: self.burst_factor.value,
            burst_capacity: number(&self.burst_capacity),
            max_concurrent_requests: None,
        }
    }
}

/// Settings of one endpoint of a provider.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EndpointConfig {
    /// Maximum number of concurrent calls.
    pub max_concurrent_requests: Setting<Option<NonZeroU32>>,
    /// Requests per minute.
    pub requests_per_minute: Setting<Option<NonZeroU32>>,
    /// Tokens per minute.
    pub tokens_per_minute: Setting<Option<NonZeroU32>>,
    /// Paths of the endpoint in normal form; `None` means those of the well-known name.
    pub paths: Setting<Option<Vec<String>>>,
    constraint: Option<Constraint>,
}

impl EndpointConfig {
    /// Returns the configured limits including concurrency; `None` if there are none.
    #[must_use]
    pub const fn constraint(&self) -> Option<&Constraint> {
        self.constraint.as_ref()
    }
}

pub(super) fn endpoints(
    provider: &str,
    dialect_provider: &Provider,
    fields: &mut Fields<'_, '_>,
    context: &mut ReadContext<'_>,
) -> BTreeMap<String, EndpointConfig> {
    let mut plans = BTreeMap::new();
    let path = fields.path();
    let path = Path::Key(&path, "endpoints");
    let Some(section) = fields.get("endpoints") else { return plans };
    let Some(mut fields) = Fields::open_any(section, path, fields.violations()) else {
        return plans;
    };
    let known = table::below("providers.*.endpoints.*");
    let mut owners = RouteOwners::default();
    for entry in fields.entries() {
        if let Err(rule) = check_name_syntax(&entry.key) {
            fields.report(&entry.key, rule);
        } else if let Err(rule) = endpoint_routes::check_name(entry) {
            fields.report(&entry.key, rule);
        }
        let path = Path::Key(&path, &entry.key);
        let Some(mut fields) = Fields::open(&entry.value, path, &known, fields.violations()) else {
            continue;
        };
        let label = format!("{provider} {}", entry.key);
        let config = endpoint(&label, dialect_provider, &mut fields, context);
        if let Err(rule) = owners.add(&entry.key, config.paths.value.as_deref().unwrap_or_default())
        {
            fields.report("paths", rule);
        }
        plans.insert(entry.key.to_string(), config);
    }
    plans
}

fn endpoint(
    label: &str,
    dialect_provider: &Provider,
    fields: &mut Fields<'_, '_>,
    context: &mut ReadContext<'_>,
) -> EndpointConfig {
    let amount = |read: Option<Setting<NonZeroU32>>| {
        read.map_or(Setting::default(None), |read| read.map(Some))
    };
    let requests_per_minute = amount(fields.setting("requests_per_minute", rate));
    let tokens_per_minute = amount(fields.setting("tokens_per_minute", rate));
    let concurrency = match fields.get("max_concurrent_requests") {
        Some(_) => bounded::concurrency(label, dialect_provider, fields, context),
        None => None,
    };
    let max_concurrent_requests = amount(concurrency);
    let number = |setting: &Setting<Option<NonZeroU32>>| setting.value.map(|n| n.get().into());
    let raw = RawConstraint {
        requests_per_minute: number(&requests_per_minute),
        tokens_per_minute: number(&tokens_per_minute),
        max_concurrent_requests: number(&max_concurrent_requests),
        ..RawConstraint::default()
    };
    let constraint = constraint(&raw, fields);
    let paths = endpoint_routes::read(fields);
    EndpointConfig {
        max_concurrent_requests,
        requests_per_minute,
        tokens_per_minute,
        paths,
        constraint,
    }
}

/// Builds a constraint, if any limit is set. Contradictory limits are reported.
fn constraint(raw: &RawConstraint, fields: &mut Fields<'_, '_>) -> Option<Constraint> {
    if *raw == RawConstraint::default() {
        return None;
    }
    match Constraint::try_new(&with_default_burst(raw.clone())) {
        Ok(constraint) => Some(constraint),
        Err(invalid) => {
            for (field, _, rule) in invalid.violations() {
                fields.report(field, Rule::Module(rule));
            }
            None
        }
    }
}

/// Sets the burst to one second's worth of requests, unless it is configured.
pub(super) fn with_default_burst(mut raw: RawConstraint) -> RawConstraint {
    if raw.burst_capacity.is_none() && raw.burst_factor.is_none() {
        raw.burst_capacity = raw.requests_per_minute.map(|requests| (requests / 60).max(1));
        // One second of the largest rate exceeds the maximum burst.
        raw.burst_capacity = raw.burst_capacity.map(|burst| burst.min(10_000_000));
    }
    raw
}
