//! Cache of the `RateLimit-Policy` value of a layer.
//!
//! The value changes when a policy changes, when a failure rule divides a limit among nodes, and
//! with the set of limits that apply to a request. The last value is kept, and rewritten if it does
//! not match.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use http::HeaderValue;
use tidegate::{LimitSnapshot, Outcome};

use super::limits::RuleCharge;
use crate::field::{Fields, Report};

/// The first and the last value written. Unless a policy changes, the first one keeps matching, and
/// reading it is cheapest.
#[derive(Default)]
pub(crate) struct PolicyCache {
    first: OnceLock<Arc<CachedPolicy>>,
    last: ArcSwapOption<CachedPolicy>,
}

struct CachedPolicy {
    /// Rule index, generation and quota of each limit: everything the value depends on.
    limits: Vec<(usize, u32, u64)>,
    value: HeaderValue,
    /// Start of the `RateLimit` value of the first limit.
    prefix: Box<str>,
}

impl PolicyCache {
    /// Returns the fields of a request with one limit, if a cached value matches.
    #[inline]
    pub(crate) fn fields_for_one_limit(
        &self,
        charge: &RuleCharge,
        snapshot: &LimitSnapshot,
        outcome: &Outcome,
    ) -> Option<Fields> {
        let current = (charge.rule, snapshot.limit().generation(), outcome.capacity);
        let matches_current =
            |cached: &&Arc<CachedPolicy>| matches!(cached.limits[..], [known] if known == current);
        let fields = |cached: &Arc<CachedPolicy>| {
            Fields::for_one_limit(cached.value.clone(), &cached.prefix, outcome)
        };
        if let Some(first) = self.first.get().filter(matches_current) {
            return Some(fields(first));
        }
        self.last.load().as_ref().filter(matches_current).map(fields)
    }

    pub(crate) fn value(
        &self,
        charges: &[RuleCharge],
        snapshots: &[LimitSnapshot],
        reports: &[Report<'_>],
    ) -> Option<HeaderValue> {
        let limits = charges.iter().zip(snapshots).zip(reports);
        let current = limits.map(|((charge, snapshot), report)| {
            (charge.rule, snapshot.limit().generation(), report.quota())
        });
        if let Some(cached) = &*self.last.load() {
            if cached.limits.iter().copied().eq(current.clone()) {
                return Some(cached.value.clone());
            }
        }
        let value = Fields::policy(reports)?;
        let (limits, prefix) = (current.collect(), Fields::state_prefix(reports.first()?));
        let cached = Arc::new(CachedPolicy { limits, value: value.clone(), prefix });
        self.first.get_or_init(|| cached.clone());
        self.last.store(Some(cached));
        Some(value)
    }
}

impl Clone for PolicyCache {
    /// Starts empty: a copy of a layer may get different limits.
    fn clone(&self) -> Self {
        Self::default()
    }
}
