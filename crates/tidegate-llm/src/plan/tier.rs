//! Tiers of accounts, and a table of what each of them may do.
//!
//! Providers raise limits with an account's tier, and change them as they like. So the table is
//! data, can be replaced while calls are made, and ships empty: numbers without a dated public
//! source would be believed.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use tidegate_providers::{Provider, Tier};

use super::constraint::Constraint;

/// A row of the table, as it is written in a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierRow {
    /// Whose tier.
    pub provider: String,
    /// Which one.
    pub tier: String,
    /// For which model; without it, for all that have no row of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What is allowed.
    pub constraint: Constraint,
    /// Where that is written, and of which day. For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// Why a table cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TierTableError {
    /// Two rows for the same thing.
    #[error("{provider}, {tier}, {} stands in the table twice", model.as_deref().unwrap_or("all models"))]
    Twice {
        /// Whose tier.
        provider: Provider,
        /// Which one.
        tier: Tier,
        /// For which model.
        model: Option<String>,
    },
}

/// What each tier of each provider may do, by model.
///
/// ```
/// use tidegate_llm::plan::TierTable;
/// use tidegate_providers::Tier;
/// let table: TierTable = serde_json::from_str(r#"{ "tiers": [
///     { "provider": "gemini", "tier": "free", "constraint": { "requests_per_minute": 5 } },
///     { "provider": "gemini", "tier": "tier_2", "model": "gemini-2.0-flash",
///       "constraint": { "requests_per_minute": 1000, "tokens_per_minute": 4000000 } }
/// ] }"#)?;
/// let found = table.get(&"gemini".into(), &Tier::new("Tier_2"), "gemini-2.0-flash");
/// assert_eq!(found.unwrap().requests_per_minute().unwrap().get(), 1_000);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Rows", into = "Rows")]
pub struct TierTable {
    rows: Vec<TierRow>,
    tiers: HashMap<(Provider, Tier), BTreeMap<Option<String>, usize>>,
}

/// The form in a file: a key with a list, since TOML has no list at its top.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    tiers: Vec<TierRow>,
}

impl TierTable {
    /// A table of these rows.
    ///
    /// # Errors
    /// When two rows are for the same provider, tier and model.
    pub fn new(rows: impl IntoIterator<Item = TierRow>) -> Result<Self, TierTableError> {
        let mut table = Self { rows: rows.into_iter().collect(), tiers: HashMap::new() };
        for (index, row) in table.rows.iter().enumerate() {
            let (provider, tier) = (Provider::new(&row.provider), Tier::new(&row.tier));
            let model = row.model.as_deref().map(str::to_lowercase);
            let models = table.tiers.entry((provider.clone(), tier.clone())).or_default();
            if models.insert(model.clone(), index).is_some() {
                return Err(TierTableError::Twice { provider, tier, model });
            }
        }
        Ok(table)
    }

    /// The rows, as they were given.
    #[must_use]
    pub fn rows(&self) -> &[TierRow] {
        &self.rows
    }

    /// The tier that counts: the one asked for if the provider has it here, else `free`.
    #[must_use]
    pub fn known_tier(&self, provider: &Provider, tier: &Tier) -> Tier {
        let known = self.tiers.contains_key(&(provider.clone(), tier.clone()));
        if known { tier.clone() } else { Tier::default() }
    }

    /// What a model may do in a tier; a tier that is not known counts as `free`. A row of the model
    /// wins over a row for all of them.
    #[must_use]
    pub fn get(&self, provider: &Provider, tier: &Tier, model: &str) -> Option<&Constraint> {
        let tier = self.known_tier(provider, tier);
        let models = self.tiers.get(&(provider.clone(), tier))?;
        let index = models.get(&Some(model.to_lowercase())).or_else(|| models.get(&None))?;
        self.rows.get(*index).map(|row| &row.constraint)
    }
}

impl TryFrom<Rows> for TierTable {
    type Error = TierTableError;

    fn try_from(rows: Rows) -> Result<Self, TierTableError> {
        Self::new(rows.tiers)
    }
}

impl From<TierTable> for Rows {
    fn from(table: TierTable) -> Self {
        Self { tiers: table.rows }
    }
}
