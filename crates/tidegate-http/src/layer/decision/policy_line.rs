//! The policies of a layer's limits as a field, written once and not for every request.
//!
//! They change with the policy of a limit, with a failure rule that divides it among nodes, and
//! with the limits that apply to a request. What was written last is kept; if it does not fit, it
//! is written anew.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use http::HeaderValue;
use tidegate::{Outcome, Snapshot};

use super::limits::Charged;
use crate::field::{Fields, Report};

/// The field as it was first and last written. The first is the one that counts as long as nobody
/// changes a policy, and is read without ceremony.
#[derive(Default)]
pub(crate) struct PolicyLine {
    first: OnceLock<Arc<Written>>,
    last: ArcSwapOption<Written>,
}

struct Written {
    /// Of each limit its place, its generation and its quota: all that the field depends on.
    of: Vec<(usize, u32, u64)>,
    value: HeaderValue,
    /// How the state of the first limit begins.
    begins: Box<str>,
}

impl PolicyLine {
    /// The fields of a request with one limit, if what was written last is of that.
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
    /// A copy of a layer may get other limits, so it starts without.
    fn clone(&self) -> Self {
        Self::default()
    }
}
