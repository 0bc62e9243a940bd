//! Forgetting models, and what a lane takes of memory.

use std::sync::{Arc, PoisonError};

use tidegate_core::Time;

use super::Lane;
use crate::memory::Loss;
use crate::rate_limit::account::Settings;
use crate::rate_limit::footprint;
use crate::rate_limit::limits::AccountLimits;
use crate::rate_limit::quota::Quota;

/// A model that is not in use is known to its lane and to its account.
const UNUSED: usize = 2;

/// So many models are looked at when there is no room for another one.
const LOOKS: usize = 16;

impl Lane {
    /// Whether there is room for so many bytes, for which models of this lane go first.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let release = |most| self.release_models(LOOKS, most);
        self.settings.memory.has_room_with(bytes, release)
    }

    /// What is lost when the lane and its models are forgotten.
    pub(in crate::rate_limit) fn loss(&self, now: Time) -> Loss {
        let gauges = self.pacer.gauges();
        if gauges.in_flight > 0 || gauges.waiting > 0 {
            return Loss::Debt;
        }
        let configured = self.configured.load();
        // What was configured is not learned.
        let of_configured = configured.all_meters().map(|meter| match meter.loss(now) {
            Loss::Debt => Loss::Debt,
            _ => Loss::Nothing,
        });
        let quotas = self.lock_quotas();
        let of_models = quotas.iter().map(|(_, quota)| quota.loss(now));
        let mut worst = Loss::Nothing;
        for loss in of_configured.chain(of_models) {
            worst = worst.max(loss);
            if worst == Loss::Debt {
                break;
            }
        }
        worst
    }

    /// Looks at so many models, and forgets those that are not in use and whose loss is no more than
    /// this.
    pub(in crate::rate_limit) fn release_models(&self, looks: usize, most: Loss) {
        let now = self.now();
        let may_go = |_: &Arc<str>, quota: &Arc<Quota>, is_used: bool| {
            !is_used && Arc::strong_count(quota) == UNUSED && quota.loss(now) <= most
        };
        let released = self.lock_quotas().release(looks, may_go);
        for (_, quota) in released {
            self.settings.forget(&quota);
        }
    }

    /// Forgets all models of a lane that is not in use any more.
    pub(in crate::rate_limit) fn forget_models(&self) {
        let mut quotas = self.lock_quotas();
        let all: Vec<_> = quotas.iter().map(|(_, quota)| quota.clone()).collect();
        quotas.clear();
        drop(quotas);
        for quota in all {
            self.settings.forget(&quota);
        }
    }

    /// Charges what the lane takes of memory under these limits.
    pub(super) fn recharge(&self, limits: &AccountLimits) {
        let share = self.settings.memory.charge(footprint::of_lane(limits));
        *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = share;
    }
}

impl Settings {
    /// Forgets a model that no lane knows any more.
    pub(in crate::rate_limit) fn forget(&self, quota: &Arc<Quota>) {
        let mut quotas = self.lock_quotas();
        // Somebody may have asked for it again.
        if Arc::strong_count(quota) == UNUSED && quotas.remove(quota.scope()).is_some() {
            // Under the lock: nobody makes the same limits meanwhile.
            quota.limit_names().iter().for_each(|name| {
                self.quota.engine.retire(name);
            });
        }
    }
}
