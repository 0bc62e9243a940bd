//! How a queue, its limits and its models are shown.

use std::sync::Arc;

use tidegate::pacer::WaitPart;
use tidegate_providers::Dimension;
use tokio::time::Instant;

use super::Lane;
use crate::rate_limit::limit_view::{HoldCause, LimitSource, ModelView, QueueView};
use crate::rate_limit::meter::Meter;
use crate::rate_limit::meter::view::{Looking, view_of_reports};
use crate::rate_limit::quota::Quota;

impl Lane {
    /// How the queue is shown. A shared store that has not answered until then is left out.
    pub(in crate::rate_limit) async fn view(&self, until: Instant) -> QueueView {
        let waits_for = self.pacer.waits_for();
        let looking = Looking { waits_for: waits_for.as_deref(), now: self.now(), until };
        let configured = self.configured.load_full();
        let mut quotas: Vec<(Arc<str>, Arc<Quota>)> = {
            let quotas = self.lock_quotas();
            quotas.iter().map(|(model, quota)| (model.clone(), quota.clone())).collect()
        };
        quotas.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut limits = Vec::new();
        for (applies_to, set) in configured.parts() {
            for meter in set.meters.iter().chain(&set.day) {
                let view = meter.view(set.source.into(), &looking).await;
                let Some(mut limit) = view else { continue };
                let is_replaced =
                    |(_, quota): &(_, Arc<Quota>)| self.is_replaced(meter, &quota.meters(), set);
                limit.in_force = quotas.is_empty() || !quotas.iter().all(is_replaced);
                limit.applies_to = applies_to.clone();
                limits.push(limit);
            }
        }
        let mut models = Vec::new();
        let mut limited_by = waits_for.as_deref().and_then(|limit| {
            let is_slot = limit == WaitPart::CONCURRENCY;
            let meters = configured.meters();
            let all_keys = self.settings.all_keys.as_ref();
            let of_all_keys = || all_keys.and_then(|all_keys| all_keys.name_of(limit));
            is_slot
                .then_some(WaitPart::CONCURRENCY)
                .or_else(|| name_in(meters, limit))
                .or_else(of_all_keys)
        });
        for (model, quota) in quotas {
            let meters = quota.meters();
            if let (None, Some(limit)) = (limited_by, waits_for.as_deref()) {
                limited_by = name_in(meters.iter().chain([quota.gate()]), limit);
            }
            let mut limits = Vec::new();
            for meter in &meters {
                limits.extend(meter.view(LimitSource::Learned, &looking).await);
            }
            let day = Dimension::RequestsPerDay;
            limits.extend(view_of_reports(&quota.day_reports, (day.name(), day), looking.now));
            let hold = match quota.closed(looking.now) {
                Some((left, failure)) => Some((left, HoldCause::of_class(failure.class).name())),
                None => quota.gate().hold_view(&looking).await,
            };
            models.push(ModelView { model, limits, hold });
        }
        let (model, endpoint) = self.scope.model_and_endpoint();
        QueueView { model, endpoint, gauges: self.pacer.gauges(), limited_by, limits, models }
    }
}

/// What waits for the limit of this name are said to be for, if it is one of these.
fn name_in<'m>(
    mut meters: impl Iterator<Item = &'m Arc<Meter>>,
    limit: &str,
) -> Option<&'static str> {
    meters.find(|meter| meter.name() == limit).map(|meter| meter.counts().blamed())
}
