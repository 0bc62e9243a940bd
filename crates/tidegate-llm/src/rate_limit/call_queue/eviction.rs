//! Eviction of models, and the memory charge of a queue.

use std::sync::{Arc, PoisonError};

use tidegate_core::Time;

use super::CallQueue;
use crate::memory::EvictionCost;
use crate::rate_limit::account::Settings;
use crate::rate_limit::footprint;
use crate::rate_limit::limits::AccountLimits;
use crate::rate_limit::model_limits::ModelLimits;

/// References to an unused model: its queue's and its account's.
const UNUSED_REFERENCES: usize = 2;

/// Maximum number of models examined when there is no room for another.
const MAX_EXAMINED: usize = 16;

impl CallQueue {
    /// Returns whether there is room for `bytes`, evicting models of this queue first.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let evict = |max_cost| self.evict_models(MAX_EXAMINED, max_cost);
        self.settings.memory.has_room_with(bytes, evict)
    }

    /// Returns the cost of evicting the queue with its models.
    pub(in crate::rate_limit) fn eviction_cost(&self, now: Time) -> EvictionCost {
        let gauges = self.pacer.gauges();
        if gauges.in_flight > 0 || gauges.waiting > 0 {
            return EvictionCost::MustKeep;
        }
        let configured = self.configured.load();
        // Configured limits need not be learned again.
        let of_configured =
            configured.all_trackers().map(|tracker| match tracker.eviction_cost(now) {
                EvictionCost::MustKeep => EvictionCost::MustKeep,
                _ => EvictionCost::None,
            });
        let known_models = self.lock_known_models();
        let of_models =
            known_models.iter().map(|(_, model_limits)| model_limits.eviction_cost(now));
        let mut worst = EvictionCost::None;
        for cost in of_configured.chain(of_models) {
            worst = worst.max(cost);
            if worst == EvictionCost::MustKeep {
                break;
            }
        }
        worst
    }

    /// Examines up to `max_examined` models and evicts unused ones that cost at most `max_cost`.
    pub(in crate::rate_limit) fn evict_models(&self, max_examined: usize, max_cost: EvictionCost) {
        let now = self.now();
        let may_evict = |_: &Arc<str>, model_limits: &Arc<ModelLimits>, is_used: bool| {
            !is_used
                && Arc::strong_count(model_limits) == UNUSED_REFERENCES
                && model_limits.eviction_cost(now) <= max_cost
        };
        let evicted = self.lock_known_models().evict(max_examined, may_evict);
        for (_, model_limits) in evicted {
            self.settings.remove_model(&model_limits);
        }
    }

    /// Removes all models of a queue that is no longer used.
    pub(in crate::rate_limit) fn clear_models(&self) {
        let mut known_models = self.lock_known_models();
        let all: Vec<_> =
            known_models.iter().map(|(_, model_limits)| model_limits.clone()).collect();
        known_models.clear();
        drop(known_models);
        for model_limits in all {
            self.settings.remove_model(&model_limits);
        }
    }

    /// Updates the memory charge to these limits.
    pub(super) fn recharge(&self, limits: &AccountLimits) {
        let share = self.settings.memory.charge(footprint::of_queue(limits));
        *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = share;
    }
}

impl Settings {
    /// Removes a model that no queue refers to.
    pub(in crate::rate_limit) fn remove_model(&self, model_limits: &Arc<ModelLimits>) {
        let mut known_models = self.lock_known_models();
        // It may have been requested again meanwhile.
        if Arc::strong_count(model_limits) == UNUSED_REFERENCES
            && known_models.remove(model_limits.scope()).is_some()
        {
            // Under the lock, so that the same limits are not created meanwhile.
            model_limits.limit_names().iter().for_each(|name| {
                self.model_params.engine.retire(name);
            });
        }
    }
}
