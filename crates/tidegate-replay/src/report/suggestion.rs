//! The report of `tidegate suggest`: JSON, or a configuration file with the numbers as comments.

use std::fmt::Write as _;

use serde::Serialize;

use super::columns::{columns, row};
use super::text::share;
use super::{LogReport, REPORT_FORMAT, percent};
use crate::key_table::KeyTable;
use crate::log::LogSummary;
use crate::policy::rate_text;
use crate::suggest::{Choice, Suggestion};

/// The report of `tidegate suggest`.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SuggestionReport {
    /// Format number.
    pub format: u32,
    /// The log.
    pub log: LogReport,
    /// The choices, from strict to generous.
    pub choices: Vec<ChoiceReport>,
    /// Name of the choice in the configuration.
    pub recommended: &'static str,
    /// The configuration.
    pub configuration: String,
}

/// A choice and what it would have denied.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ChoiceReport {
    /// How it was chosen.
    pub name: &'static str,
    /// The capacity: a percentile of the bursts.
    pub capacity: u64,
    /// The rate: a percentile of the rates.
    pub rate: String,
    /// Number of denied requests.
    pub denied: u64,
    /// Their share in percent.
    pub denied_percent: f64,
    /// Cost of the denied requests.
    pub denied_cost: u64,
    /// Number of keys with a denied request.
    pub keys_denied: u64,
    /// Their share in percent.
    pub keys_denied_percent: f64,
}

impl SuggestionReport {
    /// Collects the numbers of a suggestion.
    #[must_use]
    pub fn new(suggestion: &Suggestion, keys: &KeyTable, log: &LogSummary) -> Self {
        let log = LogReport::new(log, keys);
        let choices = suggestion.choices.iter().map(|it| ChoiceReport::new(it, &log)).collect();
        let recommended = &suggestion.choices[suggestion.recommended];
        let configuration = format!(
            "[limits.client]\ncapacity = {}\nrate = \"{}\"\n",
            recommended.bucket.capacity(),
            rate_text(recommended.bucket.rate()),
        );
        Self { format: REPORT_FORMAT, log, choices, recommended: recommended.name, configuration }
    }

    /// Formats the report as a configuration file. Everything but the limit is a comment.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let head =
            row([&"choice", &"capacity", &"rate", &"denied", &"share", &"keys denied", &"share"]);
        let choices = self.choices.iter().map(|it| {
            row([
                &it.name,
                &it.capacity,
                &it.rate,
                &it.denied,
                &share(it.denied_percent),
                &it.keys_denied,
                &share(it.keys_denied_percent),
            ])
        });
        let table = columns(&[head].into_iter().chain(choices).collect::<Vec<_>>());
        let text = format!(
            "{}\n{table}\nThe rate of a key is the cost of its busiest minute, its burst the \
             smallest capacity\nthat denies it nothing at that rate. A choice takes a percentile \
             of both over all keys.\nThe limit below is {}.\n",
            self.log.to_lines(),
            self.recommended
        );
        let mut toml = String::new();
        for line in text.lines() {
            // Writing to a `String` does not fail.
            let _ = writeln!(toml, "{}", format!("# {line}").trim_end());
        }
        toml.push_str(&self.configuration);
        toml
    }
}

impl ChoiceReport {
    fn new(choice: &Choice, log: &LogReport) -> Self {
        let totals = &choice.totals;
        Self {
            name: choice.name,
            capacity: choice.bucket.capacity(),
            rate: rate_text(choice.bucket.rate()),
            denied: totals.denied,
            denied_percent: percent(totals.denied, log.requests),
            denied_cost: totals.denied_cost,
            keys_denied: totals.keys_denied,
            keys_denied_percent: percent(totals.keys_denied, log.keys),
        }
    }
}
