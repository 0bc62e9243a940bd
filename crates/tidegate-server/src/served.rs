//! What is served: a snapshot of the configured limits, looked up by name.

use std::collections::BTreeMap;

use tidegate::Limit;
use tidegate_config::{Calendar, Limits};

/// The limits that requests may name. It never changes; another configuration is another one.
#[derive(Debug)]
pub(crate) struct Served {
    by_name: BTreeMap<String, ServedLimit>,
}

/// One limit, with the calendar of its windows if it is a quota.
#[derive(Debug)]
pub(crate) struct ServedLimit {
    pub(crate) limit: Limit,
    pub(crate) calendar: Option<Calendar>,
}

impl Served {
    pub(crate) fn new(limits: &Limits) -> Self {
        let by_name = limits.by_name.iter().map(|(name, plan)| {
            let served = ServedLimit { limit: plan.limit.clone(), calendar: plan.calendar.clone() };
            (name.clone(), served)
        });
        Self { by_name: by_name.collect() }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&ServedLimit> {
        self.by_name.get(name)
    }

    /// The names, in alphabetical order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }
}
