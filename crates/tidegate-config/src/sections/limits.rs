//! `[limits.NAME]`: limits that requests can refer to.

use std::collections::BTreeMap;

use tidegate::Policy;
use tidegate_core::Limit;

use crate::sections::keys::{self, KnownKey};
use crate::sections::policy::{self, Calendar, PERIODS, PolicyConfig, read_policy_fields};
use crate::sections::store::{FAILURE_RULES, on_failure};
use crate::values::fields::{Fields, Path};
use crate::values::setting::Source;
use crate::values::value::Value;
use crate::values::value_kind::{DURATION, ValueKind};
use crate::violation::Rule;

const WHOLE: ValueKind = ValueKind::Whole(1, u64::MAX);

pub(crate) const KEYS: &[KnownKey] = &[
    KnownKey::new(
        "limits.*.capacity",
        WHOLE,
        |value| policy::check("capacity", value),
        "Capacity of the token bucket. If unset: one second's worth of tokens.",
    ),
    KnownKey::new(
        "limits.*.rate",
        ValueKind::Text,
        |value| policy::check("rate", value),
        "Refill rate of the token bucket, such as 50/s, 7/min, 1.5/s, 10000/day or 5/10s.",
    ),
    KnownKey::new(
        "limits.*.tokens_per_second",
        ValueKind::Number,
        |value| policy::check("tokens_per_second", value),
        "Refill rate in tokens per second; an alternative to rate.",
    ),
    KnownKey::new(
        "limits.*.max_debt",
        ValueKind::Whole(0, u64::MAX),
        |value| policy::check("max_debt", value),
        "How far below zero a bucket can go when a call turns out to cost more than charged. If \
         unset: the capacity.",
    ),
    KnownKey::new(
        "limits.*.quota",
        WHOLE,
        |value| policy::check("quota", value),
        "Tokens per calendar window. They are restored at the start of each window.",
    ),
    KnownKey::new(
        "limits.*.every",
        ValueKind::Words(PERIODS),
        |value| policy::check("every", value),
        "Length of the windows of a calendar quota.",
    ),
    KnownKey::new(
        "limits.*.zone",
        ValueKind::Text,
        |value| policy::check("zone", value),
        "Time zone of the windows of a calendar quota. If unset: UTC.",
    ),
    KnownKey::new(
        "limits.*.allowance",
        WHOLE,
        |value| policy::check("allowance", value),
        "Tokens that are never refilled, except by a reset.",
    ),
    KnownKey::new(
        "limits.*.strict",
        ValueKind::Text,
        |value| policy::check("strict", value),
        "Maximum number of tokens in any window of this length, wherever it starts, such as \
         60/min.",
    ),
    KnownKey::new(
        "limits.*.burst",
        WHOLE,
        |value| policy::check("burst", value),
        "Tokens of a strict window that can be spent at once. If unset: 1.",
    ),
    KnownKey::new(
        "limits.*.concurrency",
        WHOLE,
        |value| policy::check("concurrency", value),
        "Maximum number of slots held at the same time, as with /v1/acquire.",
    ),
    KnownKey::new(
        "limits.*.lease",
        DURATION,
        |value| policy::check("lease", value),
        "How long a slot is kept without being renewed, for example after its holder crashed. If \
         unset: 30s.",
    ),
    KnownKey::new(
        "limits.*.on_failure",
        ValueKind::Words(FAILURE_RULES),
        |value| on_failure(value).map(drop),
        "How to decide on this limit while the store is unreachable. If unset: store.on_failure.",
    ),
];

/// The configured limits. Limits in a file replace the default limits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Limits by name.
    pub by_name: BTreeMap<String, LimitConfig>,
    /// The highest layer that configures a limit.
    pub source: Source,
}

/// A configured limit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LimitConfig {
    /// Name, policy and, if it has its own, failure rule.
    pub limit: Limit,
    /// The calendar of a calendar quota.
    pub calendar: Option<Calendar>,
}

impl Default for Limits {
    /// `client` with capacity 100 and 50/s, and `organization` with ten times as much.
    fn default() -> Self {
        let defaults = [("client", 100, 50), ("organization", 1_000, 500)];
        let plans = defaults.into_iter().filter_map(|(name, capacity, rate)| {
            let policy = Policy::per_second(rate).capacity(capacity).build().ok()?;
            let limit = Limit::named(name, policy).ok()?;
            Some((name.to_owned(), LimitConfig { limit, calendar: None }))
        });
        Self { by_name: plans.collect(), source: Source::Default }
    }
}

impl Limits {
    pub(crate) fn read(fields: &mut Fields<'_, '_>) -> Self {
        let path = fields.path();
        let mut limits = Self { by_name: BTreeMap::new(), source: fields.position().source };
        for entry in fields.entries() {
            let path = Path::Key(&path, &entry.key);
            if let Some(config) = limit(&entry.key, &entry.value, path, fields) {
                limits.by_name.insert(entry.key.to_string(), config);
            }
        }
        limits
    }
}

fn limit<'t>(
    name: &str,
    value: &'t Value<'t>,
    path: Path<'t>,
    limits: &mut Fields<'_, '_>,
) -> Option<LimitConfig> {
    let known = keys::below("limits.*");
    let mut fields = Fields::open(value, path, &known, limits.violations())?;
    let on_failure = fields.read("on_failure", on_failure);
    let policy = read_policy_fields(&mut fields);
    // If the policy is invalid, check the name with a placeholder policy, to report both.
    let PolicyConfig { policy, calendar } = match policy {
        Some(config) => config,
        None => PolicyConfig { policy: Policy::allowance(1).ok()?, calendar: None },
    };
    match Limit::named(name, policy) {
        Ok(limit) => {
            let limit = match on_failure {
                Some(rule) => limit.on_failure(rule),
                None => limit,
            };
            Some(LimitConfig { limit, calendar })
        }
        Err(error) => {
            limits.report(name, Rule::Limit(error));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::sections::keys;
    use crate::sections::policy::POLICY_KEYS;

    #[test]
    fn table_has_all_policy_keys() {
        let known = keys::below("limits.*");
        assert_eq!(known.split_last(), Some((&"on_failure", POLICY_KEYS)));
    }
}
