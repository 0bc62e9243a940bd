//! `[providers.NAME] tier`: limits of models from the tier table, where nothing is configured.
//!
//! A limit of the provider replaces that limit of every row. An entry of `models` that matches a
//! row's models replaces the row; what the entry leaves out comes from the row for its name.

use serde_json::Value as Json;
use tidegate_llm::plan::{Constraint, RawConstraint, TierRow, TierTable};
use tidegate_providers::Provider;

use super::ProviderConfig;
use super::limits::with_default_burst;
use crate::values::value::Value;
use crate::violation::{Rule, nearest};

/// Limits of models that come from a tier.
#[derive(Clone, Debug, Default)]
pub(super) struct TierLimits {
    /// Limits of models without an entry of their own, by name or pattern.
    pub(super) models: Vec<(String, Constraint)>,
    /// All limits that come from the tier.
    pub(super) shown: Vec<TierLimit>,
}

/// One limit of a model that comes from a tier, for readers of the settings.
#[derive(Clone, Debug)]
pub(crate) struct TierLimit {
    pub(crate) model: String,
    /// Key of the limit, such as `requests_per_minute`.
    pub(crate) key: &'static str,
    pub(crate) value: Json,
    /// Where it comes from: `tier table, 2026-09-24`.
    pub(crate) note: String,
}

/// Parses a tier that the table has for the provider.
pub(super) fn known(value: &Value<'_>, provider: &Provider) -> Result<Option<String>, Rule> {
    let tier = value.to_text()?.trim().to_lowercase();
    let known = TierTable::shipped().tiers(provider);
    if known.contains(&tier) {
        return Ok(Some(tier));
    }
    let provider = provider.to_string();
    if known.is_empty() {
        return Err(Rule::NoTiers(provider));
    }
    let nearest = nearest(&tier, known.iter().map(String::as_str)).map(ToOwned::to_owned);
    Err(Rule::UnknownTier { provider, nearest, known })
}

impl ProviderConfig {
    /// Adds the limits of the tier to those that are configured.
    pub(super) fn apply_tier(&mut self, provider: &Provider) {
        let Some(tier) = &self.tier.value else { return };
        let (table, limits) = (TierTable::shipped(), &mut self.tier_limits);
        for (model, config) in &mut self.model_limits {
            let Some(row) = table.row(provider, tier, model) else { continue };
            let configured = &config.limits.raw;
            let Some(constraint) = completed(configured, row) else { continue };
            limits.show(model, &constraint, configured, row);
            config.limits.constraint = Some(constraint);
        }
        for row in table.rows(provider, tier) {
            if self.model_limits.keys().any(|model| row.is_within(model)) {
                continue;
            }
            let raw = without(RawConstraint::from(row.constraint.clone()), &self.limits.raw);
            let bursts = RawConstraint {
                burst_factor: self.limits.raw.burst_factor,
                burst_capacity: self.limits.raw.burst_capacity,
                ..raw
            };
            let Some(constraint) = constraint(bursts) else { continue };
            limits.show(row.pattern(), &constraint, &RawConstraint::default(), row);
            limits.models.push((row.pattern().to_owned(), constraint));
        }
    }

    /// Returns all limits that come from the tier.
    pub(crate) fn shown_tier_limits(&self) -> &[TierLimit] {
        &self.tier_limits.shown
    }
}

impl TierLimits {
    /// Records the limits of `constraint` that are not configured.
    fn show(
        &mut self,
        model: &str,
        limits: &Constraint,
        configured: &RawConstraint,
        row: &TierRow,
    ) {
        let date = row.date.as_ref().map_or(String::new(), |date| format!(", {date}"));
        let limits = RawConstraint::from(limits.clone());
        let numbers = |raw: &RawConstraint| {
            [
                ("requests_per_minute", raw.requests_per_minute),
                ("tokens_per_minute", raw.tokens_per_minute),
                ("input_tokens_per_minute", raw.input_tokens_per_minute),
                ("output_tokens_per_minute", raw.output_tokens_per_minute),
                ("requests_per_day", raw.requests_per_day),
            ]
        };
        let mut show = |key, value: Json| {
            let (model, note) = (model.to_owned(), format!("tier table{date}"));
            self.shown.push(TierLimit { model, key, value, note });
        };
        for ((key, number), (_, own)) in numbers(&limits).into_iter().zip(numbers(configured)) {
            if let (Some(number), None) = (number, own) {
                show(key, number.into());
            }
        }
        if let (Some(zone), None) = (limits.requests_per_day_zone, configured.requests_per_day) {
            show("requests_per_day_zone", zone.into());
        }
    }
}

/// Removes the limits that are configured for the provider.
fn without(mut raw: RawConstraint, configured: &RawConstraint) -> RawConstraint {
    let tokens = [
        configured.tokens_per_minute,
        configured.input_tokens_per_minute,
        configured.output_tokens_per_minute,
    ];
    if tokens.iter().any(Option::is_some) {
        raw.tokens_per_minute = None;
        (raw.input_tokens_per_minute, raw.output_tokens_per_minute) = (None, None);
    }
    if configured.requests_per_minute.is_some() {
        raw.requests_per_minute = None;
    }
    if configured.requests_per_day.is_some() {
        (raw.requests_per_day, raw.requests_per_day_zone) = (None, None);
    }
    raw
}

/// Returns the configured limits of a model, completed by those of a row.
fn completed(configured: &RawConstraint, row: &TierRow) -> Option<Constraint> {
    let row = without(RawConstraint::from(row.constraint.clone()), configured);
    let configured = configured.clone();
    constraint(RawConstraint {
        requests_per_minute: configured.requests_per_minute.or(row.requests_per_minute),
        tokens_per_minute: configured.tokens_per_minute.or(row.tokens_per_minute),
        input_tokens_per_minute: configured.input_tokens_per_minute.or(row.input_tokens_per_minute),
        output_tokens_per_minute: configured
            .output_tokens_per_minute
            .or(row.output_tokens_per_minute),
        requests_per_day: configured.requests_per_day.or(row.requests_per_day),
        requests_per_day_zone: configured.requests_per_day_zone.or(row.requests_per_day_zone),
        ..configured
    })
}

/// Returns the limits as a constraint, if there are any.
fn constraint(raw: RawConstraint) -> Option<Constraint> {
    let limits = [
        raw.requests_per_minute,
        raw.tokens_per_minute,
        raw.input_tokens_per_minute,
        raw.output_tokens_per_minute,
        raw.requests_per_day,
    ];
    let has_limit = limits.iter().any(Option::is_some);
    Constraint::try_new(&with_default_burst(raw)).ok().filter(|_| has_limit)
}
