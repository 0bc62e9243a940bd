//! Table of limits by account tier.
//!
//! Providers raise limits with an account's tier and change them at any time. Therefore the table
//! is data with a source and a date in each row, and can be replaced at run time. The shipped one
//! leaves out every number without a dated public source.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use tidegate_providers::Provider;

use super::constraint::Constraint;
use crate::rate_limit::ModelPattern;

/// Tier of requests that name none.
pub(super) const FREE: &str = "free";

/// The rows that are shipped. The date in the name is that of their last change; each row has the
/// date of its source. Gemini's page lists no limits of tiers since 2026: its rows are those of the
/// last version that does.
const SHIPPED: &str = include_str!("../../data/tiers-2026-11-19.json");

/// Normalises the name of a tier, which is case-insensitive.
pub(crate) fn tier_name(name: &str) -> String {
    name.trim().to_lowercase()
}

/// A row of a [`TierTable`], as written in a file: the limits of a model, or of all models that
/// match a pattern, in one tier of a provider.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TierRow {
    /// Name of the provider.
    pub provider: String,
    /// Name of the tier.
    pub tier: String,
    /// Name of a model, in which `*` matches any characters; `None` is all models without a row of
    /// their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The limits.
    pub constraint: Constraint,
    /// Where the limits are published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// When they were published there, such as `2026-09-24`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
}

impl TierRow {
    /// Returns the pattern of the models that the row is for.
    #[must_use]
    pub fn pattern(&self) -> &str {
        self.model.as_deref().unwrap_or("*")
    }

    /// Returns whether a pattern matches all models that the row is for.
    #[must_use]
    pub fn is_within(&self, pattern: &str) -> bool {
        ModelPattern::new(pattern).matches(self.pattern())
    }

    fn is_of(&self, provider: &Provider, tier: &str) -> bool {
        Provider::new(&self.provider) == *provider && tier_name(&self.tier) == tier_name(tier)
    }
}

/// Limits by provider, tier and model.
///
/// ```
/// use tidegate_llm::plan::TierTable;
/// let table: TierTable = serde_json::from_str(r#"{ "tiers": [
///     { "provider": "gemini", "tier": "free", "constraint": { "requests_per_minute": 5 } },
///     { "provider": "gemini", "tier": "tier_2", "model": "gemini-2.0-flash*",
///       "constraint": { "requests_per_minute": 1000, "input_tokens_per_minute": 4000000 } }
/// ] }"#)?;
/// let found = table.get(&"gemini".into(), "Tier_2", "gemini-2.0-flash-001");
/// assert_eq!(found.unwrap().requests_per_minute().unwrap().get(), 1_000);
/// assert_eq!(table.tiers(&"gemini".into()), ["free", "tier_2"]);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Rows", into = "Rows")]
pub struct TierTable {
    rows: Vec<TierRow>,
}

/// Form of the table in a file: a key with a list, since TOML has no top-level lists.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    tiers: Vec<TierRow>,
}

impl TierTable {
    /// Returns the table that is shipped, for Gemini, OpenAI and Anthropic. Each row has a source
    /// and a date. Models without such a row are not in it.
    ///
    /// ```
    /// use tidegate_llm::plan::TierTable;
    /// let found = TierTable::shipped().get(&"openai".into(), "tier_1", "gpt-4o");
    /// assert_eq!(found.unwrap().tokens_per_minute().unwrap().get(), 30_000);
    /// ```
    #[must_use]
    pub fn shipped() -> &'static Self {
        // A test reads the file, so it is valid.
        static TABLE: LazyLock<TierTable> =
            LazyLock::new(|| serde_json::from_str(SHIPPED).unwrap_or_default());
        &TABLE
    }

    /// Returns the limits of a model in a tier. If several patterns match the model, the most
    /// specific one applies.
    #[must_use]
    pub fn get(&self, provider: &Provider, tier: &str, model: &str) -> Option<&Constraint> {
        self.row(provider, tier, model).map(|row| &row.constraint)
    }

    /// Returns the row of [`get`](Self::get).
    #[must_use]
    pub fn row(&self, provider: &Provider, tier: &str, model: &str) -> Option<&TierRow> {
        let pattern = |row: &TierRow| ModelPattern::new(row.pattern());
        let rows = self.rows(provider, tier).into_iter().filter(|row| pattern(row).matches(model));
        rows.max_by_key(|row| pattern(row).specificity())
    }

    /// Returns the rows of a tier.
    #[must_use]
    pub fn rows(&self, provider: &Provider, tier: &str) -> Vec<&TierRow> {
        self.rows.iter().filter(|row| row.is_of(provider, tier)).collect()
    }

    /// Returns the tiers of a provider, sorted by name; empty if the table has none.
    #[must_use]
    pub fn tiers(&self, provider: &Provider) -> Vec<String> {
        let rows = self.rows.iter().filter(|row| Provider::new(&row.provider) == *provider);
        let mut tiers: Vec<_> = rows.map(|row| tier_name(&row.tier)).collect();
        tiers.sort();
        tiers.dedup();
        tiers
    }

    pub(super) const fn len(&self) -> usize {
        self.rows.len()
    }
}

impl TryFrom<Rows> for TierTable {
    type Error = String;

    /// Rejects duplicate rows for the same provider, tier and model.
    fn try_from(rows: Rows) -> Result<Self, String> {
        let rows = rows.tiers;
        for (index, row) in rows.iter().enumerate() {
            let provider = Provider::new(&row.provider);
            let pattern = ModelPattern::new(row.pattern());
            let same = |other: &TierRow| {
                other.is_of(&provider, &row.tier) && ModelPattern::new(other.pattern()) == pattern
            };
            if rows[..index].iter().any(same) {
                let tier = tier_name(&row.tier);
                let model = row.model.as_ref().map_or("all models", |_| pattern.as_str());
                return Err(format!(
                    "two rows for provider {provider}, tier {tier} and {model}: keep one of them"
                ));
            }
        }
        Ok(Self { rows })
    }
}

impl From<TierTable> for Rows {
    fn from(table: TierTable) -> Self {
        Self { tiers: table.rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row without a source and a date must not be shipped. The source is a page of the provider
    /// that anybody can read: neither one of an account nor another project.
    #[test]
    fn every_shipped_row_has_a_source_and_a_date() {
        let table: TierTable = serde_json::from_str(SHIPPED).unwrap();
        assert_eq!(*TierTable::shipped(), table);
        for row in &table.rows {
            let source = row.source.as_deref().unwrap();
            let published = [
                "https://ai.google.dev/gemini-api/docs/",
                "https://developers.openai.com/api/docs/",
                "https://platform.claude.com/docs/",
            ];
            assert!(published.iter().any(|page| source.starts_with(page)), "{row:?}");
            let date: jiff::civil::Date = row.date.as_deref().unwrap().parse().unwrap();
            assert!(date.year() >= 2025, "{row:?}");
            assert!(row.model.is_some(), "providers publish limits by model: {row:?}");
        }
        for (provider, tiers) in [
            ("gemini", vec!["free", "tier_1", "tier_2", "tier_3"]),
            ("openai", vec!["tier_1", "tier_2", "tier_3", "tier_4", "tier_5"]),
            ("anthropic", vec!["build", "scale", "start"]),
        ] {
            assert_eq!(table.tiers(&Provider::new(provider)), tiers);
        }
    }
}
