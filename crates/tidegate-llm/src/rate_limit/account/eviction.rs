//! Eviction of idle models, and the cost of evicting the account.

use std::sync::Arc;

use tidegate::clock::Clock;

use super::Account;
use crate::call::LimitScope;
use crate::memory::EvictionCost;
use crate::rate_limit::call_queue::CallQueue;
use crate::rate_limit::model_limits::ModelLimits;

/// An account with more queues than this is not examined as a whole: its models are evicted one by
/// one.
const MAX_QUEUES_EXAMINED: usize = 32;

/// Maximum number of models examined when there is no room for another.
const MAX_EXAMINED: usize = 16;

impl Account {
    /// Returns whether there is room for `bytes`, evicting models of this account first.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let evict = |max_cost| self.evict_models(MAX_EXAMINED, max_cost);
        self.inner.settings.memory.has_room_with(bytes, evict)
    }

    /// Returns the cost of evicting the account with all of its models.
    pub(in crate::rate_limit) fn eviction_cost(&self) -> EvictionCost {
        let queues = self.inner.lock_queues();
        if queues.len() > MAX_QUEUES_EXAMINED {
            return EvictionCost::MustKeep;
        }
        let now = self.inner.settings.model_params.clock.now();
        let mut worst = EvictionCost::None;
        for (_, queue) in queues.iter() {
            let is_used = Arc::strong_count(queue) > 1;
            worst =
                worst.max(if is_used { EvictionCost::MustKeep } else { queue.eviction_cost(now) });
            if worst == EvictionCost::MustKeep {
                break;
            }
        }
        worst
    }

    /// Examines up to `max_examined` models, longest unexamined first, and evicts unused ones that
    /// cost at most `max_cost`.
    pub(in crate::rate_limit) fn evict_models(&self, max_examined: usize, max_cost: EvictionCost) {
        let inner = &*self.inner;
        let now = inner.settings.model_params.clock.now();
        let own = &inner.scope;
        let may_evict = |scope: &LimitScope, queue: &Arc<CallQueue>, is_used: bool| {
            let is_unused = !is_used && Arc::strong_count(queue) == 1;
            is_unused && scope != own && queue.eviction_cost(now) <= max_cost
        };
        let mut queues = inner.lock_queues();
        for (_, queue) in queues.evict(max_examined, may_evict) {
            queue.clear_models();
            queue.limit_names().iter().for_each(|name| {
                inner.settings.model_params.engine.retire(name);
            });
        }
        let spanning = queues.get(own).or_else(|| queues.get(&own.clone().model(super::OTHER)));
        let spanning = spanning.cloned();
        drop(queues);
        if let Some(queue) = spanning {
            queue.evict_models(max_examined, max_cost);
        }
        // Learned limits that outlived their queues.
        let may_evict = |_: &String, model_limits: &Arc<ModelLimits>, is_used: bool| {
            !is_used
                && Arc::strong_count(model_limits) == 1
                && model_limits.eviction_cost(now) <= max_cost
        };
        let mut known_models = inner.settings.lock_known_models();
        for (_, model_limits) in known_models.evict(max_examined, may_evict) {
            model_limits.limit_names().iter().for_each(|name| {
                inner.settings.model_params.engine.retire(name);
            });
        }
    }
}
