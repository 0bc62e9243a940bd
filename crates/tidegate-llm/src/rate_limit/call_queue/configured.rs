//! The limits that were configured for a lane, and how they are changed.

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
use crate::plan::{Constraint, Source};

/// The limits of a lane.
#[derive(Debug, Default)]
pub(super) struct Configured {
    /// Of all calls.
    pub(super) all: LimitSet,
    endpoints: HashMap<Endpoint, LimitSet>,
    /// The most specific first.
    models: Vec<(ModelPattern, LimitSet)>,
    /// Meters of an earlier configuration, which may be wanted again.
    retired: Vec<(String, Arc<LimitTracker>)>,
}

/// Limits that were configured together.
#[derive(Debug, Default)]
pub(super) struct LimitSet {
    pub(super) trackers: Vec<Arc<LimitTracker>>,
    /// The one of the day. Nobody waits for tomorrow, so it is asked when everything else is there.
    pub(super) daily: Option<Arc<LimitTracker>>,
    /// The calls that may be under way.
    pub(super) slots: Option<LimitedSlots>,
    /// Whether they are somebody's wish; others are replaced by what is told.
    pub(super) wished: bool,
    /// Where they come from.
    pub(super) source: Source,
    /// Whether they are for one model alone.
    pub(super) is_of_one_model: bool,
    /// Whose buckets they are.
    key: String,
}

/// Slots of a model or an endpoint, over all accounts that share them.
#[derive(Debug)]
pub(super) struct LimitedSlots {
    pub(super) group: SlotGroup,
    name: String,
    limit: u64,
}

impl Configured {
    /// The groups of slots, and how many there are to be.
    fn slots(&self) -> impl Iterator<Item = (&SlotGroup, u64)> {
        self.sets().filter_map(|set| set.slots.as_ref()).map(|slots| (&slots.group, slots.limit))
    }

    /// What applies to the calls of a model at an endpoint.
    pub(super) fn of<'c>(
        &'c self,
        model: &'c str,
        endpoint: &Endpoint,
    ) -> impl Iterator<Item = &'c LimitSet> {
        let endpoint = self.endpoints.get(endpoint);
        self.of_model(model).chain(endpoint)
    }

    /// What applies to the calls of a model at any endpoint.
    pub(super) fn of_model<'c>(&'c self, model: &'c str) -> impl Iterator<Item = &'c LimitSet> {
        let mut models = self.models.iter();
        let model = models.find(|(pattern, _)| pattern.matches(model)).map(|(_, set)| set);
        [&self.all].into_iter().chain(model)
    }

    /// How many requests of a model are allowed, by the tightest limit that was configured.
    pub(super) fn requests(&self, model: &str) -> Option<Allowed> {
        let trackers = self.of_model(model).flat_map(|set| &set.trackers);
        let allowed =
            trackers.filter(|tracker| tracker.counts_requests()).filter_map(|one| one.allowed());
        allowed.min_by_key(|allowed| allowed.in_span(Duration::from_secs(60)))
    }

    pub(super) fn has_endpoint(&self, endpoint: &Endpoint) -> bool {
        self.endpoints.contains_key(endpoint)
    }

    /// All limits, with what they apply to if that is not everything.
    pub(super) fn parts(&self) -> Vec<(Option<Arc<str>>, &LimitSet)> {
        let endpoints = self.endpoints.iter().map(|(endpoint, set)| (endpoint.as_str(), set));
        let models = self.models.iter().map(|(pattern, set)| (pattern.as_str(), set));
        let mut parts: Vec<_> = endpoints.chain(models).collect();
        parts.sort_by_key(|(name, _)| *name);
        let parts = parts.into_iter().map(|(name, set)| (Some(name.into()), set));
        [(None, &self.all)].into_iter().chain(parts).collect()
    }

    /// All meters that calls are charged to, but for those of a day.
    pub(super) fn trackers(&self) -> impl Iterator<Item = &Arc<LimitTracker>> {
        self.sets().flat_map(|set| &set.trackers)
    }

    /// All meters, those of a day too.
    pub(super) fn all_trackers(&self) -> impl Iterator<Item = &Arc<LimitTracker>> {
        self.sets().flat_map(|set| set.trackers.iter().chain(&set.daily))
    }

    fn sets(&self) -> impl Iterator<Item = &LimitSet> {
        let models = self.models.iter().map(|(_, set)| set);
        [&self.all].into_iter().chain(self.endpoints.values()).chain(models)
    }

    /// Every meter with the key that it was made for.
    fn known(&self) -> Vec<(String, Arc<LimitTracker>)> {
        let used = self.sets().flat_map(|set| {
            let trackers = set.trackers.iter().chain(&set.daily);
            trackers.map(|tracker| (set.key.clone(), tracker.clone()))
        });
        used.chain(self.retired.iter().cloned()).collect()
    }
}

impl CallQueue {
    /// The names of the limits that were configured.
    pub(in crate::rate_limit) fn limit_names(&self) -> Vec<String> {
        self.configured.load().known().iter().map(|(_, tracker)| tracker.name()).collect()
    }

    /// Configures other limits. What was spent counts on. Whoever waits goes by the new numbers at
    /// once, and no longer waits for limits that are gone; limits that are new hold for those who
    /// come.
    pub(in crate::rate_limit) fn configure(
        &self,
        limits: &AccountLimits,
    ) -> Result<(), LimitError> {
        let old = self.configured.load();
        let known = old.known();
        // Whatever can fail comes first.
        let mut changes = Vec::new();
        let mut set = |key: String, constraint: &Constraint| {
            self.limit_set(key, constraint, &known, &mut changes)
        };
        let all = match &limits.all {
            Some((constraint, source)) => LimitSet {
                wished: *source == Source::Override,
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
        for (pattern, constraint) in &limits.models {
            let key = self.scope.clone().model(pattern.as_str()).to_string();
            let name = pattern.as_str();
            let set = set(key, constraint)?.with_slots(constraint, name, &self.settings);
            let is_of_one_model = pattern.is_exact();
            models.push((pattern.clone(), LimitSet { is_of_one_model, ..set }));
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
        // Nobody waits for limits that are gone.
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

    /// The limits of one constraint, on meters that are known or new.
    fn limit_set(
        &self,
        key: String,
        constraint: &Constraint,
        known: &[(String, Arc<LimitTracker>)],
        changes: &mut Vec<(Arc<LimitTracker>, TrackerSpec)>,
    ) -> Result<LimitSet, LimitError> {
        let source = Source::Override;
        let mut set = LimitSet { wished: true, source, key, ..LimitSet::default() };
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

    /// With the group of slots of this name, if the constraint has a concurrency.
    fn with_slots(mut self, constraint: &Constraint, name: &str, settings: &Settings) -> Self {
        self.slots = constraint.concurrency().map(|limit| {
            let (limit, name) = (limit.get().into(), name.to_owned());
            LimitedSlots { group: settings.groups.group(&name, limit), name, limit }
        });
        self
    }
}

/// What meters a constraint asks for.
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
