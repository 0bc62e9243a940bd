//! Views of a queue, its limits and its models.

use std::sync::Arc;

use tidegate::pacer::WaitPart;
use tidegate_providers::Dimension;
use tokio::time::Instant;

use super::CallQueue;
use crate::rate_limit::limit_tracker::LimitTracker;
use crate::rate_limit::limit_tracker::view::{ViewContext, view_of_reports};
use crate::rate_limit::limit_view::{HoldCause, LimitSource, ModelView, QueueView};
use crate::rate_limit::model_limits::ModelLimits;

impl CallQueue {
    /// Returns a view of the queue. Buckets of a shared store that does not answer by `until` are
    /// omitted.
    pub(in crate::rate_limit) async fn view(&self, until: Instant) -> QueueView {
        let waits_for = self.pacer.blocking_limit();
        let context = ViewContext { waits_for: waits_for.as_deref(), now: self.now(), until };
        let configured = self.configured.load_full();
        let mut known_models: Vec<(Arc<str>, Arc<ModelLimits>)> = {
            let known_models = self.lock_known_models();
            known_models
                .iter()
                .map(|(model, model_limits)| (model.clone(), model_limits.clone()))
                .collect()
        };
        known_models.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut limits = Vec::new();
        for (applies_to, set) in configured.parts() {
            for tracker in set.trackers.iter().chain(&set.daily) {
                let view = tracker.view(set.source.into(), &context).await;
                let Some(mut limit) = view else { continue };
                let is_replaced = |(_, model_limits): &(_, Arc<ModelLimits>)| {
                    self.is_replaced(tracker, &model_limits.trackers(), set)
                };
                limit.in_force = known_models.is_empty() || !known_models.iter().all(is_replaced);
                limit.applies_to = applies_to.clone();
                limits.push(limit);
            }
        }
        let mut models = Vec::new();
        let mut limited_by = waits_for.as_deref().and_then(|limit| {
            let is_slot = limit == WaitPart::CONCURRENCY;
            let trackers = configured.trackers();
            let all_keys = self.settings.all_keys.as_ref();
            let of_all_keys = || all_keys.and_then(|all_keys| all_keys.name_of(limit));
            is_slot
                .then_some(WaitPart::CONCURRENCY)
                .or_else(|| name_in(trackers, limit))
                .or_else(of_all_keys)
        });
        for (model, model_limits) in known_models {
            let trackers = model_limits.trackers();
            if let (None, Some(limit)) = (limited_by, waits_for.as_deref()) {
                limited_by = name_in(trackers.iter().chain([model_limits.gate()]), limit);
            }
            let mut limits = Vec::new();
            for tracker in &trackers {
                limits.extend(tracker.view(LimitSource::Learned, &context).await);
            }
            let day = Dimension::RequestsPerDay;
            limits.extend(view_of_reports(
                &model_limits.day_reports,
                (day.name(), day),
                context.now,
            ));
            let hold = match model_limits.closed(context.now) {
                Some((left, failure)) => Some((left, HoldCause::of_class(failure.class).name())),
                None => model_limits.gate().hold_view(&context).await,
            };
            models.push(ModelView { model, limits, hold });
        }
        let (model, endpoint) = self.scope.model_and_endpoint();
        QueueView { model, endpoint, gauges: self.pacer.gauges(), limited_by, limits, models }
    }
}

/// Returns the reported wait reason if `limit` is one of these.
fn name_in<'m>(
    mut trackers: impl Iterator<Item = &'m Arc<LimitTracker>>,
    limit: &str,
) -> Option<&'static str> {
    trackers.find(|tracker| tracker.name() == limit).map(|tracker| tracker.kind().wait_reason())
}
