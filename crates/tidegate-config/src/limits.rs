//! `[limits.NAME]`: the limits that requests may name.

use std::collections::BTreeMap;

use tidegate::{Limit, Policy};

use crate::fault::Rule;
use crate::fields::{Fields, Path};
use crate::policy::{Calendar, POLICY_KEYS, PolicyPlan, read_policy_fields};
use crate::setting::Source;
use crate::store::on_failure;
use crate::value::Value;

/// The limits by name. A file that has any replaces the ones that are there by default.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// The limits.
    pub by_name: BTreeMap<String, LimitPlan>,
    /// Who gave them.
    pub source: Source,
}

/// One limit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LimitPlan {
    /// The name, what it allows, and what is decided when the store does not answer, if that
    /// differs from the store's rule.
    pub limit: Limit,
    /// The windows of a calendar quota.
    pub calendar: Option<Calendar>,
}

impl Default for Limits {
    /// `client`, 100 at once and 50 a second, and `organization`, ten times that.
    fn default() -> Self {
        let defaults = [("client", 100, 50), ("organization", 1_000, 500)];
        let plans = defaults.into_iter().filter_map(|(name, capacity, rate)| {
            let policy = Policy::per_second(rate).capacity(capacity).build().ok()?;
            let limit = Limit::named(name, policy).ok()?;
            Some((name.to_owned(), LimitPlan { limit, calendar: None }))
        });
        Self { by_name: plans.collect(), source: Source::Default }
    }
}

impl Limits {
    pub(crate) fn layer(&mut self, fields: &mut Fields<'_, '_>, source: Source) {
        let path = fields.path();
        self.by_name.clear();
        self.source = source;
        for entry in fields.entries() {
            let path = Path::Key(&path, &entry.key);
            if let Some(plan) = limit(&entry.key, &entry.value, path, fields) {
                self.by_name.insert(entry.key.to_string(), plan);
            }
        }
    }
}

fn limit<'t>(
    name: &str,
    value: &'t Value<'t>,
    path: Path<'t>,
    limits: &mut Fields<'_, '_>,
) -> Option<LimitPlan> {
    let known: Vec<_> = POLICY_KEYS.iter().copied().chain(["on_failure"]).collect();
    let mut fields = Fields::open(value, path, &known, limits.faults())?;
    let on_failure = fields.read("on_failure", on_failure);
    let policy = read_policy_fields(&mut fields);
    // The name is checked even when the policy is wrong, with one that is not.
    let PolicyPlan { policy, calendar } = match policy {
        Some(plan) => plan,
        None => PolicyPlan { policy: Policy::allowance(1).ok()?, calendar: None },
    };
    match Limit::named(name, policy) {
        Ok(limit) => {
            let limit = match on_failure {
                Some(rule) => limit.on_failure(rule),
                None => limit,
            };
            Some(LimitPlan { limit, calendar })
        }
        Err(error) => {
            limits.refuse(name, Rule::Limit(error));
            None
        }
    }
}
