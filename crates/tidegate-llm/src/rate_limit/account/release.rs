//! Forgetting models of an account, and what is lost when all of it is forgotten.

use std::sync::Arc;

use tidegate::clock::Clock;

use super::Account;
use crate::call::Scope;
use crate::memory::Loss;
use crate::rate_limit::lane::Lane;
use crate::rate_limit::quota::Quota;

/// An account with more queues than this is not looked through: its models go one by one.
const MANY: usize = 32;

/// So many models are looked at when there is no room for another one.
const LOOKS: usize = 16;

impl Account {
    /// Whether there is room for so many bytes, for which models of this account go first.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let release = |most| self.release_models(LOOKS, most);
        self.inner.settings.memory.has_room_with(bytes, release)
    }

    /// What is lost when the account is forgotten with all of its models.
    pub(in crate::rate_limit) fn loss(&self) -> Loss {
        let lanes = self.inner.lock_lanes();
        if lanes.len() > MANY {
            return Loss::Debt;
        }
        let now = self.inner.settings.quota.clock.now();
        let mut worst = Loss::Nothing;
        for (_, lane) in lanes.iter() {
            let is_used = Arc::strong_count(lane) > 1;
            worst = worst.max(if is_used { Loss::Debt } else { lane.loss(now) });
            if worst == Loss::Debt {
                break;
            }
        }
        worst
    }

    /// Looks at some models that were not looked at for the longest time, and forgets those that are
    /// not in use and whose loss is no more than this.
    pub(in crate::rate_limit) fn release_models(&self, looks: usize, most: Loss) {
        let inner = &*self.inner;
        let now = inner.settings.quota.clock.now();
        let own = &inner.scope;
        let may_go = |scope: &Scope, lane: &Arc<Lane>, is_used: bool| {
            let is_unused = !is_used && Arc::strong_count(lane) == 1;
            is_unused && scope != own && lane.loss(now) <= most
        };
        let mut lanes = inner.lock_lanes();
        for (_, lane) in lanes.release(looks, may_go) {
            lane.forget_models();
            lane.limit_names().iter().for_each(|name| {
                inner.settings.quota.engine.retire(name);
            });
        }
        let spanning = lanes.get(own).or_else(|| lanes.get(&own.clone().model(super::OTHER)));
        let spanning = spanning.cloned();
        drop(lanes);
        if let Some(lane) = spanning {
            lane.release_models(looks, most);
        }
        // Those that outlived their queues.
        let may_go = |_: &String, quota: &Arc<Quota>, is_used: bool| {
            !is_used && Arc::strong_count(quota) == 1 && quota.loss(now) <= most
        };
        let mut quotas = inner.settings.lock_quotas();
        for (_, quota) in quotas.release(looks, may_go) {
            quota.limit_names().iter().for_each(|name| {
                inner.settings.quota.engine.retire(name);
            });
        }
    }
}
