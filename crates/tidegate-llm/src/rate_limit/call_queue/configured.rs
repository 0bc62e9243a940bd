//! Configured limits of a queue, and changing them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate::LimitError;
use tidegate::pacer::SlotGroup;
use tidegate_providers::{Dimension, Endpoint};

use super::super::account::Settings;
use super::super::limit_tracker::{LimitKind, LimitTracker, TrackerSpec};
use super::super::limits::AccountLimits;
use super::super::model_pattern::ModelPattern;
use super::super::send_rate::{Allowed, Burst, SendRate};
use super::CallQueue;
use crate::plan::{Constraint, ConstraintSource};

/// Configured limits of a queue.
#[derive(Debug, Default)]
pub(super) struct Configured {
    /// For all calls.
    pub(super) all: LimitSet,
    endpoints: HashMap<Endpoint, LimitSet>,
    /// Most specific first.
    models: Vec<(ModelPattern, LimitSet)>,
    /// Trackers of earlier configurations, which may be used again.
    retired: Vec<(String, Arc<LimitTracker>)>,
}

/// Limits that were configured together.
#[derive(Debug, Default)]
pub(super) struct LimitSet {
    pub(super) trackers: Vec<Arc<LimitTracker>>,
    /// The daily limit. It is charged last, since calls do not wait for the next day.
    pub(super) daily: Option<Arc<LimitTracker>>,
    /// Concurrency slots.
    pub(super) slots: Option<LimitedSlots>,
    /// Whether the limits are explicit settings; others are replaced by reported limits.
    pub(super) is_explicit: bool,
    /// Source of the limits.
    pub(super) source: ConstraintSource,
    /// Whether they apply to a single model.
    pub(super) is_single_model: bool,
    /// Scope that the buckets belong to.
    key: String,
}

/// Concurrency slots of a model or endpoint, over all accounts that share them.
#[derive(Debug)]
pub(super) struct LimitedSlots {
    pub(super) group: SlotGroup,
    name: String,
    limit: u64,
}

impl Configured {
    /// Slot groups with their configured sizes.
    fn slots(&self) -> impl Iterator<Item = (&SlotGroup, u64)> {
        self.sets().filter_map(|set| set.slots.as_ref()).map(|slots| (&slots.group, slots.limit))
    }

    /// Limits that apply to calls of `model` at `endpoint`.
    pub(super) fn of<'c>(
        &'c self,
        model: &'c str,
        endpoint: &Endpoint,
    ) -> impl Iterator<Item = &'c LimitSet> {
        let endpoint = self.endpoints.get(endpoint);
        self.of_model(model).chain(endpoint)
    }

    /// Limits that apply to calls of `model` at any endpoint.
    pub(super) fn of_model<'c>(&'c self, model: &'c str) -> impl Iterator<Item = &'c LimitSet> {
        let mut models = self.models.iter();
        let model = models.find(|(pattern, _)| pattern.matches(model)).map(|(_, set)| set);
        [&self.all].into_iter().chain(model)
    }

    /// Returns the tightest configured request limit of `model`.
    pub(super) fn requests(&self, model: &str) -> Option<Allowed> {
        let trackers = self.of_model(model).flat_map(|set| &set.trackers);
        let allowed =
            trackers.filter(|tracker| tracker.counts_requests()).filter_map(|one| one.allowed());
        allowed.min_by_key(|allowed| allowed.in_span(Duration::from_secs(60)))
    }

    pub(super) fn has_endpoint(&self, endpoint: &Endpoint) -> bool {
        self.endpoints.contains_key(endpoint)
    }

    /// All limits, each with the endpoint or pattern it applies to, if any.
    pub(super) fn parts(&self) -> Vec<(Option<Arc<str>>, &LimitSet)> {
        let endpoints = self.endpoints.iter().map(|(endpoint, set)| (endpoint.as_str(), set));
        let models = self.models.iter().map(|(pattern, set)| (pattern.as_str(), set));
        let mut parts: Vec<_> = endpoints.chain(models).collect();
        parts.sort_by_key(|(name, _)| *name);
        let parts = parts.into_iter().map(|(name, set)| (Some(name.into()), set));
        [(None, &self.all)].into_iter().chain(parts).collect()
    }

    /// All trackers except daily ones.
    pub(super) fn trackers(&self) -> impl Iterator<Item = &Arc<LimitTracker>> {
        self.sets().flat_map(|set| &set.trackers)
    }

    /// All trackers, including daily ones.
    pub(super) fn all_trackers(&self) -> impl Iterator<Item = &Arc<LimitTracker>> {
        self.sets().flat_map(|set| set.trackers.iter().chain(&set.daily))
    }

    fn sets(&self) -> impl Iterator<Item = &LimitSet> {
        let models = self.models.iter().map(|(_, set)| set);
        [&self.all].into_iter().chain(self.endpoints.values()).chain(models)
    }

    /// Every tracker with the scope it belongs to.
    fn known(&self) -> Vec<(String, Arc<LimitTracker>)> {
        let used = self.sets().flat_map(|set| {
            let trackers = set.trackers.iter().chain(&set.daily);
            trackers.map(|tracker| (set.key.clone(), tracker.clone()))
        });
        used.chain(self.retired.iter().cloned()).collect()
    }
}

impl CallQueue {
    /// Names of the configured limits.
    pub(in crate::rate_limit) fn limit_names(&self) -> Vec<String> {
        self.configured.load().known().iter().map(|(_, tracker)| tracker.name()).collect()
    }

    /// Changes the configured limits. Charges are kept. Waiting calls follow changed limits at once
    /// and no longer wait for removed ones; new limits apply to new calls.
    pub(in crate::rate_limit) fn configure(
        &self,
        limits: &AccountLimits,
    ) -> Result<(), LimitError> {
        let old = self.configured.load();
        let known = old.known();
        // Everything that can fail comes first.
        let mut changes = Vec::new();
        let mut set = |key: String, constraint: &Constraint| {
            self.limit_set(key, constraint, &known, &mut changes)
        };
        let all = match &limits.all {
            Some((constraint, source)) => LimitSet {
                is_explicit: *source == ConstraintSource::Override,
                source: *source,
                ..set(self.key.clone(), constraint)?
            },
            None => LimitSet::default(),
        };
        let mut endpoints = HashMap::new();
        for (endpoint, constraint) in &limits.endpoints {
            let key = self.scope.clone().endpoint(endpoint.clone()).to_string();
            let name = format!("#{}", endpoint.as_str());
            let set = set(key, constraint)?.with_slots(constraint, &name, &self.settings);
            endpoints.insert(endpoint.clone(), set);
        }
        let mut models = Vec::new();
        for (pattern, constraint, source) in &limits.models {
            let key = self.scope.clone().model(pattern.as_str()).to_string();
            let name = pattern.as_str();
            let set = set(key, constraint)?.with_slots(constraint, name, &self.settings);
            let is_single_model = pattern.is_exact();
            let is_explicit = *source == ConstraintSource::Override;
            let set = LimitSet { is_single_model, is_explicit, source: *source, ..set };
            models.push((pattern.clone(), set));
        }
        for (tracker, spec) in &changes {
            tracker.set(spec, self.now())?;
        }
        let is_used = |tracker: &Arc<LimitTracker>| {
            changes.iter().any(|(used, _)| Arc::ptr_eq(used, tracker))
        };
        let retired: Vec<_> = known.into_iter().filter(|(_, tracker)| !is_used(tracker)).collect();
        retired.iter().for_each(|(_, tracker)| tracker.retire(self.now()));
        let next = Configured { all, endpoints, models, retired };
        for (group, limit) in next.slots() {
            group.resize(limit);
        }
        // Calls must not wait for removed limits.
        let is_kept = |name: &str| next.sets().any(|set| set.slots_name() == Some(name));
        for set in old.sets().filter(|set| set.slots_name().is_some_and(|name| !is_kept(name))) {
            set.slots.iter().for_each(|slots| slots.group.resize(u64::MAX));
        }
        self.configured.store(Arc::new(next));
        self.recharge(limits);
        let concurrency = limits.all.as_ref().and_then(|(constraint, _)| constraint.concurrency());
        self.pacer.set_concurrency(concurrency.map(|limit| limit.get().into()));
        self.pacer.nudge();
        Ok(())
    }

    /// Returns the limits of one constraint, reusing existing trackers.
    fn limit_set(
        &self,
        key: String,
        constraint: &Constraint,
        known: &[(String, Arc<LimitTracker>)],
        changes: &mut Vec<(Arc<LimitTracker>, TrackerSpec)>,
    ) -> Result<LimitSet, LimitError> {
        let source = ConstraintSource::Override;
        let mut set = LimitSet { is_explicit: true, source, key, ..LimitSet::default() };
        for spec in specs(constraint, &self.settings) {
            let same = |(key, tracker): &&(String, Arc<LimitTracker>)| {
                *key == set.key && tracker.kind() == spec.kind()
            };
            let tracker = match known.iter().find(same) {
                Some((_, tracker)) => tracker.clone(),
                None => {
                    let engine = &self.settings.model_params.engine;
                    Arc::new(LimitTracker::new(engine, &set.key, spec.clone(), self.clock)?)
                }
            };
            changes.push((tracker.clone(), spec));
            match tracker.is_daily() {
                true => set.daily = Some(tracker),
                false => set.trackers.push(tracker),
            }
        }
        Ok(set)
    }
}

impl LimitSet {
    fn slots_name(&self) -> Option<&str> {
        self.slots.as_ref().map(|slots| slots.name.as_str())
    }

    /// Adds the slot group `name` if the constraint limits concurrency.
    fn with_slots(mut self, constraint: &Constraint, name: &str, settings: &Settings) -> Self {
        self.slots = constraint.concurrency().map(|limit| {
            let (limit, name) = (limit.get().into(), name.to_owned());
            LimitedSlots { group: settings.groups.group(&name, limit), name, limit }
        });
        self
    }
}

/// Trackers that a constraint needs.
fn specs(constraint: &Constraint, settings: &Settings) -> Vec<TrackerSpec> {
    let (margin, tokens) = (settings.margin, Burst::Window);
    let rates = [
        (Dimension::Requests, constraint.requests_per_minute(), Burst::Amount(constraint.burst())),
        (Dimension::Tokens, constraint.tokens_per_minute(), tokens),
        (Dimension::InputTokens, constraint.input_tokens_per_minute(), tokens),
        (Dimension::OutputTokens, constraint.output_tokens_per_minute(), tokens),
    ];
    let rates = rates.into_iter().filter_map(|(dimension, amount, burst)| {
        let allowed = Allowed::per_minute(amount?.get().into());
        let send_rate = SendRate::new(Some(allowed), burst, margin);
        Some(TrackerSpec::Paced(LimitKind::Dimension(dimension), send_rate))
    });
    let interval = Some(constraint.min_interval()).filter(|interval| !interval.is_zero());
    let starts = interval.map(|window| {
        let allowed = Allowed { amount: 1, window };
        TrackerSpec::Paced(LimitKind::Starts, SendRate::new(Some(allowed), Burst::Amount(1), 0))
    });
    let day = LimitKind::Dimension(Dimension::RequestsPerDay);
    let daily = constraint.daily().cloned().map(|daily| TrackerSpec::Daily(day, daily));
    rates.chain(starts).chain(daily).collect()
}
