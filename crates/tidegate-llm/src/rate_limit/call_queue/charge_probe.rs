//! Reacts to a changed charging rule, and probes for one while calls wait for tokens without need.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_providers::{Dimension, Endpoint};

use super::CallQueue;
use crate::rate_limit::charge_inference::{ChargeInference, Probing};
use crate::rate_limit::limit_tracker::limit_feedback::RAISE_MARGIN;
use crate::rate_limit::limit_tracker::{LimitKind, LimitTracker};
use crate::rate_limit::model_limits::ModelLimits;
use crate::rate_limit::reservation::ObservedDimension;
use crate::rate_limit::send_rate::Allowed;
use crate::rate_limit::token_accounting::OutputCharge;

/// How often waiting calls are examined for a probe.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

impl CallQueue {
    /// Returns the tightest token limit that counts output, with its dimension.
    pub(super) fn observed(
        &self,
        trackers: &[Arc<LimitTracker>],
    ) -> (Option<Allowed>, Option<ObservedDimension>) {
        let counts_output = |tracker: &&Arc<LimitTracker>| match tracker.kind() {
            LimitKind::Dimension(dimension) => self.settings.accounting.counts_output(dimension),
            _ => false,
        };
        let per_minute = |allowed: &Allowed| allowed.in_span(Duration::from_secs(60));
        let known = trackers.iter().filter(counts_output);
        let known = known.filter_map(|tracker| Some((tracker.allowed()?, tracker.kind())));
        match known.min_by_key(|(allowed, _)| per_minute(allowed)) {
            Some((allowed, LimitKind::Dimension(dimension))) => {
                (Some(allowed), Some(ObservedDimension(dimension)))
            }
            _ => (None, None),
        }
    }

    /// Handles a changed charging rule: credits our buckets with what the provider's hold.
    pub(in crate::rate_limit) fn rule_changed(
        &self,
        model_limits: &ModelLimits,
        observed: Option<ObservedDimension>,
    ) {
        let Some(ObservedDimension(dimension)) = observed else { return };
        tracing::debug!(scope = %self.scope, rule = ?model_limits.rule(), "output charge inferred");
        self.rule_changes.notify_waiters();
        let gained = model_limits.infer(ChargeInference::take_gain);
        for tracker in self.trackers_of(dimension, model_limits) {
            let margin = tracker.allowed().map_or(0, |allowed| allowed.amount / RAISE_MARGIN);
            let pacer = self.pacer.clone();
            tracker.credit(gained.saturating_sub(margin), move || pacer.nudge());
        }
    }

    /// All limits of a dimension, including configured ones that a reported limit replaced: calls
    /// that started to wait earlier are charged to them.
    fn trackers_of(
        &self,
        dimension: Dimension,
        model_limits: &ModelLimits,
    ) -> Vec<Arc<LimitTracker>> {
        let kind = LimitKind::Dimension(dimension);
        let (reported, configured) = (model_limits.trackers(), self.configured.load());
        let configured = configured.of_model(&model_limits.model).flat_map(|set| &set.trackers);
        let all = configured.chain(&reported);
        all.filter(|tracker| tracker.kind() == kind && tracker.allowed().is_some())
            .cloned()
            .collect()
    }

    /// Spawns a task that probes every second while calls wait for tokens.
    pub(super) fn spawn_probe_task(self: &Arc<Self>, model_limits: &Arc<ModelLimits>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if model_limits.rule() == OutputCharge::ActualUsage
            || model_limits.has_probe_task.swap(true, Ordering::AcqRel)
        {
            return;
        }
        let (queue, model_limits) = (Arc::downgrade(self), Arc::downgrade(model_limits));
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(PROBE_INTERVAL).await;
                let (Some(queue), Some(model_limits)) = (queue.upgrade(), model_limits.upgrade())
                else {
                    return;
                };
                let is_over = queue.pacer.gauges().waiting == 0;
                if is_over || model_limits.rule() == OutputCharge::ActualUsage {
                    return model_limits.has_probe_task.store(false, Ordering::Release);
                }
                queue.probe(&model_limits);
            }
        });
    }

    /// Sends one call more than the assumed rule allows if calls wait for tokens that calls in
    /// flight will hardly use.
    fn probe(&self, model_limits: &ModelLimits) {
        let trackers = self.trackers(model_limits, (&model_limits.model, &Endpoint::default()));
        let (_, observed) = self.observed(&trackers);
        let Some(ObservedDimension(dimension)) = observed else { return };
        let trackers = self.trackers_of(dimension, model_limits);
        let largest = trackers.iter().map(|tracker| tracker.largest()).max().unwrap_or(0);
        let now = self.now();
        match model_limits.infer(|inference| inference.waited(largest, now)) {
            Probing::Wait => {}
            Probing::Changed => self.rule_changed(model_limits, observed),
            Probing::Probe => {
                for tracker in &trackers {
                    let pacer = self.pacer.clone();
                    tracker.lend(largest, move || pacer.nudge());
                }
            }
        }
    }

    /// Calls that started to wait before a limit was reported are charged to the configured one as
    /// well. The reported one is tighter, so the configured one must not delay them.
    pub(super) fn credit_replaced(&self, model_limits: &ModelLimits) {
        let (reported, configured) = (model_limits.trackers(), self.configured.load());
        let is_local = self.settings.model_params.engine.store().local().is_some();
        if !is_local || self.pacer.gauges().waiting == 0 {
            return;
        }
        let replaced = configured.of_model(&model_limits.model).flat_map(|set| {
            set.trackers.iter().filter(|tracker| {
                tracker.counts_tokens() && self.is_replaced(tracker, &reported, set)
            })
        });
        for tracker in replaced {
            let pacer = self.pacer.clone();
            tracker.credit(u64::MAX, move || pacer.nudge());
        }
    }
}
