//! Table of limits by account tier.
//!
//! Providers raise limits with an account's tier and change them at any time. Therefore the table
//! is data that can be replaced at run time. It ships empty, since users would trust numbers that
//! have no dated public source.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use tidegate_providers::Provider;

use super::constraint::Constraint;

/// Tier of requests without a tier, or with a tier that is not in the table.
pub(super) const FREE: &str = "free";

/// Normalises the name of a tier, which is case-insensitive.
pub(crate) fn tier_name(name: &str) -> String {
    name.trim().to_lowercase()
}

/// A row of the table, as written in a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TierRow {
    provider: String,
    tier: String,
    /// Model; `None` is all models without a row of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    constraint: Constraint,
    /// Where the limits are published, and the date. Informational.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<String>,
}

/// Limits by provider, tier and model.
///
/// ```
/// use tidegate_llm::plan::TierTable;
/// let table: TierTable = serde_json::from_str(r#"{ "tiers": [
///     { "provider": "gemini", "tier": "free", "constraint": { "requests_per_minute": 5 } },
///     { "provider": "gemini", "tier": "tier_2", "model": "gemini-2.0-flash",
///       "constraint": { "requests_per_minute": 1000, "tokens_per_minute": 4000000 } }
/// ] }"#)?;
/// let found = table.get(&"gemini".into(), "Tier_2", "gemini-2.0-flash");
/// assert_eq!(found.unwrap().requests_per_minute().unwrap().get(), 1_000);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Rows", into = "Rows")]
pub struct TierTable {
    rows: Vec<TierRow>,
    tiers: HashMap<(Provider, String), BTreeMap<Option<String>, usize>>,
}

/// Form of the table in a file: a key with a list, since TOML has no top-level lists.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    tiers: Vec<TierRow>,
}

impl TierTable {
    /// Returns the limits of a model in a tier. Unknown tiers count as `free`. A row for the model
    /// takes precedence over a row for all models.
    #[must_use]
    pub fn get(&self, provider: &Provider, tier: &str, model: &str) -> Option<&Constraint> {
        let of = |tier: String| self.tiers.get(&(provider.clone(), tier));
        let models = of(tier_name(tier)).or_else(|| of(FREE.to_owned()))?;
        let index = models.get(&Some(model.to_lowercase())).or_else(|| models.get(&None))?;
        self.rows.get(*index).map(|row| &row.constraint)
    }

    pub(super) const fn len(&self) -> usize {
        self.rows.len()
    }
}

impl TryFrom<Rows> for TierTable {
    type Error = String;

    /// Rejects duplicate rows for the same provider, tier and model.
    fn try_from(rows: Rows) -> Result<Self, String> {
        let mut table = Self { rows: rows.tiers, tiers: HashMap::new() };
        for (index, row) in table.rows.iter().enumerate() {
            let (provider, tier) = (Provider::new(&row.provider), tier_name(&row.tier));
            let model = row.model.as_deref().map(str::to_lowercase);
            let models = table.tiers.entry((provider.clone(), tier.clone())).or_default();
            if models.insert(model.clone(), index).is_some() {
                let model = model.as_deref().unwrap_or("all models");
                return Err(format!(
                    "two rows for provider {provider}, tier {tier} and {model}: keep one of them"
                ));
            }
        }
        Ok(table)
    }
}

impl From<TierTable> for Rows {
    fn from(table: TierTable) -> Self {
        Self { tiers: table.rows }
    }
}
