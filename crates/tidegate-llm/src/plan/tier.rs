//! Tiers of accounts, and a table of what each of them may do.
//!
//! Providers raise limits with an account's tier, and change them as they like. So the table is
//! data, can be replaced while calls are made, and ships empty: numbers without a dated public
//! source would be believed.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use tidegate_providers::Provider;

use super::constraint::Constraint;

/// The tier of an account that names none, and of one whose tier is not in the table.
pub(super) const FREE: &str = "free";

/// The name of a tier: case does not matter.
pub(super) fn tier_name(name: &str) -> String {
    name.trim().to_lowercase()
}

/// A row of the table, as it is written in a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TierRow {
    /// Whose tier.
    provider: String,
    /// Which one.
    tier: String,
    /// For which model; without it, for all that have no row of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// What is allowed.
    constraint: Constraint,
    /// Where that is written, and of which day. For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<String>,
}

/// What each tier of each provider may do, by model.
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

/// The form in a file: a key with a list, since TOML has no list at its top.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    tiers: Vec<TierRow>,
}

impl TierTable {
    /// What a model may do in a tier; a tier that is not known counts as `free`. A row of the model
    /// wins over a row for all of them.
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

    /// Two rows for the same provider, tier and model are refused.
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
