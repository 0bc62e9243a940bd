//! Cache of the `RateLimit-Policy` value of a layer.
//!
//! The value changes when a policy changes, when a failure rule divides a limit among nodes, and
//! with the set of limits that apply to a request. The last value is kept, and rewritten if it does
//! not match.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use http::HeaderValue;
use tidegate::{Outcome, Snapshot};

use super::limits::Charged;
use crate::field::{Fields, Report};

/// The first and the last value written. Unless a policy changes, the first one keeps matching, and
/// reading it is cheapest.
#[derive(Default)]
pub(crate) struct PolicyLine {
    first: OnceLock<Arc<Written>>,
    last: ArcSwapOption<Written>,
}

struct Written {
    /// Rule index, generation and quota of each limit: everything the value depends on.
    of: Vec<(usize, u32, u64)>,
    value: HeaderValue,
    /// Start of the `RateLimit` value of the first limit.
    begins: Box<str>,
}

impl PolicyLine {
    /// Returns the fields of a request with one limit, if a cached value matches.
    #[inline]
    pub(crate) fn of_one(
        &self,
        charged: &Charged,
        terms: &Snapshot,
        outcome: &Outcome,
    ) -> Option<Fields> {
        let now = (charged.rule, terms.limit().generation(), outcome.capacity);
        let fits = |written: &&Arc<Written>| matches!(written.of[..], [known] if known == now);
        let fields = |written: &Arc<Written>| {
            Fields::of_one(written.value.clone(), &written.begins, outcome)
        };
        if let Some(first) = self.first.get().filter(fits) {
            return Some(fields(first));
        }
        self.last.load().as_ref().filter(fits).map(fields)
    }

    pub(crate) fn of(
        &self,
        charges: &[Charged],
        snapshots: &[Snapshot],
        reports: &[Report<'_>],
    ) -> Option<HeaderValue> {
        let limits = charges.iter().zip(snapshots).zip(reports);
        let now = limits.map(|((charged, terms), report)| {
            (charged.rule, terms.limit().generation(), report.quota())
        });
        if let Some(written) = &*self.last.load() {
            if written.of.iter().copied().eq(now.clone()) {
                return Some(written.value.clone());
            }
        }
        let value = Fields::policy(reports)?;
        let (of, begins) = (now.collect(), Fields::beginning(reports.first()?));
        let written = Arc::new(Written { of, value: value.clone(), begins });
        self.first.get_or_init(|| written.clone());
        self.last.store(Some(written));
        Some(value)
    }
}

impl Clone for PolicyLine {
    /// Starts empty: a copy of a layer may get different limits.
    fn clone(&self) -> Self {
        Self::default()
    }
}
