//! `[providers.NAME.models]`: a list of models that metrics report by name, or a table of models
//! with their own limits, whose names may contain `*` as a wildcard.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use tidegate_llm::plan::Constraint;
use tidegate_providers::Provider;

use super::bounded;
use super::keys::{inner_concurrency, per_minute};
use super::limits::ProviderLimits;
use super::read::{check_factor, interval};
use crate::sections::keys as table;
use crate::sections::keys::KnownKey;
use crate::sections::modules::capacity;
use crate::sections::read_context::ReadContext;
use crate::values::fields::{Fields, Path};
use crate::values::setting::Setting;
use crate::values::value::{Node, Value};
use crate::values::value_kind::ValueKind;
use crate::values::zone::canonical_zone;
use crate::violation::Rule;

/// Maximum length of a model name or pattern.
const MAX_NAME_LENGTH: usize = 128;
/// Maximum number of entries.
const MAX_MODELS: usize = 256;

pub(crate) const KEYS: &[KnownKey] = &[
    inner_concurrency("providers.*.models.*.max_concurrent_requests"),
    per_minute("providers.*.models.*.requests_per_minute", "Requests per minute."),
    per_minute(
        "providers.*.models.*.tokens_per_minute",
        "Tokens per minute, input and output together.",
    ),
    per_minute("providers.*.models.*.input_tokens_per_minute", "Input tokens per minute."),
    per_minute("providers.*.models.*.output_tokens_per_minute", "Output tokens per minute."),
    per_minute("providers.*.models.*.requests_per_day", "Requests per calendar day."),
    KnownKey::new(
        "providers.*.models.*.requests_per_day_zone",
        ValueKind::Text,
        |value| canonical_zone(value.to_text()?).map(drop),
        "Time zone of the day of requests_per_day. If unset: UTC.",
    ),
    KnownKey::new(
        "providers.*.models.*.min_interval_ms",
        ValueKind::Whole(0, 86_400_000),
        |value| interval(value).map(drop),
        "Minimum interval between two requests, in milliseconds.",
    ),
    KnownKey::new(
        "providers.*.models.*.burst_factor",
        ValueKind::Number,
        check_factor,
        "Burst size, as seconds' worth of requests that can be sent at once; 1.0 means one request \
         at a time.",
    ),
    KnownKey::new(
        "providers.*.models.*.burst_capacity",
        ValueKind::Whole(1, 10_000_000),
        |value| capacity(value).map(drop),
        "Burst size, as requests that can be sent at once. If neither this nor burst_factor is \
         set: one second's worth.",
    ),
];

/// Limits of a model, or of all models together that match a pattern.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ModelConfig {
    /// Rate limits.
    pub limits: ProviderLimits,
    /// Maximum number of concurrent calls, within that of the provider.
    pub max_concurrent_requests: Setting<Option<NonZeroU32>>,
}

impl ModelConfig {
    /// Returns the configured limits including concurrency; `None` if there are none.
    #[must_use]
    pub const fn constraint(&self) -> Option<&Constraint> {
        self.limits.constraint.as_ref()
    }
}

/// Models that metrics report by name, and limits of models.
pub(super) struct Models {
    pub(super) named: Option<Setting<Vec<String>>>,
    pub(super) limited: BTreeMap<String, ModelConfig>,
}

impl Models {
    pub(super) fn read(
        provider: &str,
        dialect_provider: &Provider,
        fields: &mut Fields<'_, '_>,
        context: &mut ReadContext<'_>,
    ) -> Self {
        let Some(section) = fields.get("models") else {
            return Self { named: None, limited: BTreeMap::new() };
        };
        if !matches!(section.node, Node::Table(_)) {
            let named = fields.setting("models", Value::to_strings);
            return Self { named, limited: BTreeMap::new() };
        }
        let path = fields.path();
        let path = Path::Key(&path, "models");
        let mut limited: BTreeMap<String, ModelConfig> = BTreeMap::new();
        if matches!(&section.node, Node::Table(entries) if entries.len() > MAX_MODELS) {
            fields.report("models", Rule::TooManyModels(MAX_MODELS));
        }
        let known = table::below("providers.*.models.*");
        if let Some(mut fields) = Fields::open_any(section, path, fields.violations()) {
            for entry in fields.entries() {
                if let Err(rule) = check_model(&entry.key) {
                    fields.report(&entry.key, rule);
                }
                let bare = |name: &str| name.trim().to_lowercase();
                let same = |known: &&String| bare(known) == bare(&entry.key);
                if let Some(known) = limited.keys().find(same) {
                    fields.report(&entry.key, Rule::SameModel(known.clone()));
                }
                let path = Path::Key(&path, &entry.key);
                let opened = Fields::open(&entry.value, path, &known, fields.violations());
                let Some(mut fields) = opened else { continue };
                let label = format!("{provider} {}", entry.key);
                limited.insert(
                    entry.key.to_string(),
                    model(&label, dialect_provider, &mut fields, context),
                );
            }
        }
        // Metrics report models with limits by name; a pattern is not a name.
        let named = limited.keys().filter(|name| !name.contains('*')).cloned().collect();
        let named = Setting { value: named, source: section.position.source };
        Self { named: Some(named), limited }
    }
}

fn model(
    label: &str,
    dialect_provider: &Provider,
    fields: &mut Fields<'_, '_>,
    context: &mut ReadContext<'_>,
) -> ModelConfig {
    let concurrency = match fields.get("max_concurrent_requests") {
        Some(_) => bounded::concurrency(label, dialect_provider, fields, context),
        None => None,
    };
    let max_concurrent_requests = concurrency.map_or(Setting::default(None), |read| read.map(Some));
    let limits = ProviderLimits::read(fields, max_concurrent_requests.value);
    ModelConfig { limits, max_concurrent_requests }
}

fn check_model(name: &str) -> Result<(), Rule> {
    let is_plain = |char: char| !char.is_control() && !char.is_whitespace();
    let fits = !name.is_empty() && name.len() <= MAX_NAME_LENGTH && name.chars().all(is_plain);
    if fits { Ok(()) } else { Err(Rule::ModelPattern(MAX_NAME_LENGTH)) }
}
