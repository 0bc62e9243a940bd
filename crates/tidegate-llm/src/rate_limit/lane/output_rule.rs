//! How the provider of a lane charges output: what follows when that turns out to be different, and
//! calls that wait for tokens without need.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_providers::{Dimension, Endpoint};

use super::Lane;
use crate::rate_limit::charge_inference::{ChargeInference, Probing};
use crate::rate_limit::charging::OutputCharge;
use crate::rate_limit::meter::limit_feedback::SPARE;
use crate::rate_limit::meter::{Counts, Meter};
use crate::rate_limit::pace::Allowed;
use crate::rate_limit::quota::Quota;
use crate::rate_limit::reservation::Followed;

/// How long calls wait for tokens before it is asked whether they have to.
const PROBING: Duration = Duration::from_secs(1);

impl Lane {
    /// The tightest limit on tokens that counts output, and what it is on.
    pub(super) fn followed(&self, meters: &[Arc<Meter>]) -> (Option<Allowed>, Option<Followed>) {
        let counts_output = |meter: &&Arc<Meter>| match meter.counts() {
            Counts::Dimension(dimension) => self.settings.charging.counts_output(dimension),
            _ => false,
        };
        let per_minute = |allowed: &Allowed| allowed.in_span(Duration::from_secs(60));
        let known = meters.iter().filter(counts_output);
        let known = known.filter_map(|meter| Some((meter.allowed()?, meter.counts())));
        match known.min_by_key(|(allowed, _)| per_minute(allowed)) {
            Some((allowed, Counts::Dimension(dimension))) => {
                (Some(allowed), Some(Followed(dimension)))
            }
            _ => (None, None),
        }
    }

    /// The provider charges output in another way than was thought: our buckets hold what its own
    /// does.
    pub(in crate::rate_limit) fn rule_changed(&self, quota: &Quota, followed: Option<Followed>) {
        let Some(Followed(dimension)) = followed else { return };
        tracing::debug!(scope = %self.scope, rule = ?quota.rule(), "output charge inferred");
        self.rule_changes.notify_waiters();
        let gained = quota.infer(ChargeInference::take_gain);
        for meter in self.meters_of(dimension, quota) {
            let spare = meter.allowed().map_or(0, |allowed| allowed.amount / SPARE);
            let pacer = self.pacer.clone();
            meter.give(gained.saturating_sub(spare), move || pacer.nudge());
        }
    }

    /// All limits of a dimension, also one that was set and is replaced by what is told: calls that
    /// waited before wait for it.
    fn meters_of(&self, dimension: Dimension, quota: &Quota) -> Vec<Arc<Meter>> {
        let counts = Counts::Dimension(dimension);
        let (told, configured) = (quota.meters(), self.configured.load());
        let configured = configured.of_model(&quota.model).flat_map(|set| &set.meters);
        let all = configured.chain(&told);
        all.filter(|meter| meter.counts() == counts && meter.allowed().is_some()).cloned().collect()
    }

    /// Looks after calls that wait for tokens: every second, whether they have to.
    pub(super) fn attend(self: &Arc<Self>, quota: &Arc<Quota>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if quota.rule() == OutputCharge::AtEnd || quota.is_attended.swap(true, Ordering::AcqRel) {
            return;
        }
        let (lane, quota) = (Arc::downgrade(self), Arc::downgrade(quota));
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(PROBING).await;
                let (Some(lane), Some(quota)) = (lane.upgrade(), quota.upgrade()) else { return };
                let is_over = lane.pacer.gauges().waiting == 0;
                if is_over || quota.rule() == OutputCharge::AtEnd {
                    return quota.is_attended.store(false, Ordering::Release);
                }
                lane.probe(&quota);
            }
        });
    }

    /// Lets one call more go than the provider is thought to take, if calls wait for tokens that
    /// those under way will hardly use.
    fn probe(&self, quota: &Quota) {
        let meters = self.meters(quota, (&quota.model, &Endpoint::default()));
        let (_, followed) = self.followed(&meters);
        let Some(Followed(dimension)) = followed else { return };
        let meters = self.meters_of(dimension, quota);
        let largest = meters.iter().map(|meter| meter.largest()).max().unwrap_or(0);
        let now = self.now();
        match quota.infer(|inference| inference.waited(largest, now)) {
            Probing::Wait => {}
            Probing::Changed => self.rule_changed(quota, followed),
            Probing::Probe => {
                for meter in &meters {
                    let pacer = self.pacer.clone();
                    meter.lend(largest, move || pacer.nudge());
                }
            }
        }
    }

    /// Calls that waited before a limit was told are charged to the one that was set as well. What
    /// is told is the tighter one, so the other holds nobody up.
    pub(super) fn release_replaced(&self, quota: &Quota) {
        let (told, configured) = (quota.meters(), self.configured.load());
        let is_local = self.settings.quota.engine.store().local().is_some();
        if !is_local || self.pacer.gauges().waiting == 0 {
            return;
        }
        let replaced = configured.of_model(&quota.model).flat_map(|set| {
            set.meters
                .iter()
                .filter(|meter| meter.is_of_tokens() && self.is_replaced(meter, &told, set))
        });
        for meter in replaced {
            let pacer = self.pacer.clone();
            meter.give(u64::MAX, move || pacer.nudge());
        }
    }
}
