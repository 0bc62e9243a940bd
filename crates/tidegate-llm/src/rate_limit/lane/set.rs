//! The limits that were set for a lane, and how they are changed.

use std::sync::Arc;

use tidegate_providers::Dimension;

use super::super::account::{AccountError, Settings};
use super::super::meter::{Counts, Meter, Wanted};
use super::super::pace::{Allowed, Burst, Pace};
use super::Lane;
use crate::plan::{Constraint, Source};

/// Limits that were set.
#[derive(Debug, Default)]
pub(super) struct Set {
    pub(super) meters: Vec<Arc<Meter>>,
    /// The one of the day. Nobody waits for tomorrow, so it is asked when everything else is there.
    pub(super) day: Option<Arc<Meter>>,
    /// Those of an earlier setting, which may be wanted again.
    retired: Vec<Arc<Meter>>,
    /// Whether they are somebody's wish; others are replaced by what is told.
    pub(super) wished: bool,
}

impl Set {
    /// How many requests were set.
    pub(super) fn requests(&self) -> Option<Allowed> {
        self.meters.iter().find(|meter| meter.is_of_requests())?.allowed()
    }
}

impl Lane {
    /// The names of the limits that were set.
    pub(in crate::rate_limit) fn limit_names(&self) -> Vec<String> {
        let set = self.set.load();
        let meters = set.meters.iter().chain(&set.day).chain(&set.retired);
        meters.map(|meter| meter.name()).collect()
    }

    /// Sets other limits. What was spent counts on. Whoever waits goes by the new numbers at once,
    /// and no longer waits for limits that are gone; limits that are new hold for those who come.
    pub(in crate::rate_limit) fn configure(
        &self,
        constraint: &Constraint,
        source: Source,
    ) -> Result<(), AccountError> {
        let old = self.set.load();
        let known: Vec<_> =
            old.meters.iter().chain(&old.day).chain(&old.retired).cloned().collect();
        let find = |counts| known.iter().find(|meter: &&Arc<Meter>| meter.counts() == counts);
        let wanted = wanted(constraint, &self.settings);
        // Whatever can fail comes first.
        let mut used = Vec::new();
        for wanted in &wanted {
            used.push(match find(wanted.counts()) {
                Some(meter) => meter.clone(),
                None => {
                    let engine = &self.settings.quota.engine;
                    Arc::new(Meter::new(engine, &self.key, wanted.clone(), self.clock)?)
                }
            });
        }
        for (meter, wanted) in used.iter().zip(&wanted) {
            meter.set(wanted, self.now())?;
        }
        let is_used = |meter: &Arc<Meter>| used.iter().any(|used| Arc::ptr_eq(used, meter));
        let retired: Vec<_> = known.into_iter().filter(|meter| !is_used(meter)).collect();
        retired.iter().for_each(|meter| meter.retire(self.now()));
        let (day, meters) = used.into_iter().partition::<Vec<_>, _>(|meter| meter.is_of_a_day());
        let (day, wished) = (day.into_iter().next(), source == Source::Override);
        self.set.store(Arc::new(Set { meters, day, retired, wished }));
        if let Some(limit) = constraint.concurrency() {
            self.pacer.set_concurrency(Some(limit.get().into()));
        }
        self.pacer.nudge();
        Ok(())
    }
}

/// What meters a constraint asks for.
fn wanted(constraint: &Constraint, settings: &Settings) -> Vec<Wanted> {
    let (margin, tokens) = (settings.margin, Burst::Window);
    let rates = [
        (Dimension::Requests, constraint.requests_per_minute(), Burst::Amount(constraint.burst())),
        (Dimension::Tokens, constraint.tokens_per_minute(), tokens),
        (Dimension::InputTokens, constraint.input_tokens_per_minute(), tokens),
        (Dimension::OutputTokens, constraint.output_tokens_per_minute(), tokens),
    ];
    let rates = rates.into_iter().filter_map(|(dimension, amount, burst)| {
        let allowed = Allowed::per_minute(amount?.get().into());
        let pace = Pace::new(Some(allowed), burst, margin);
        Some(Wanted::Paced(Counts::Dimension(dimension), pace))
    });
    let interval = Some(constraint.min_interval()).filter(|interval| !interval.is_zero());
    let starts = interval.map(|window| {
        let allowed = Allowed { amount: 1, window };
        Wanted::Paced(Counts::Starts, Pace::new(Some(allowed), Burst::Amount(1), 0))
    });
    let daily = constraint.requests_per_day().cloned().map(Wanted::Daily);
    rates.chain(starts).chain(daily).collect()
}
