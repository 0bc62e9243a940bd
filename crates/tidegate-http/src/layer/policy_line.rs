//! The policies of a layer's limits as a field, written once and not for every request.
//!
//! They change with the policy of a limit, with a failure rule that divides it among nodes, and
//! with the limits that apply to a request. What was written last is kept; if it does not fit, it
//! is written anew.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use http::HeaderValue;
use tidegate::Snapshot;

use super::limits::Charged;
use crate::field::{Fields, Report};

/// The field as it was last written.
#[derive(Default)]
pub(super) struct PolicyLine(ArcSwapOption<Written>);

struct Written {
    /// Of each limit its place, its generation and its quota: all that the field depends on.
    of: Vec<(usize, u32, u64)>,
    value: HeaderValue,
}

impl PolicyLine {
    pub(super) fn of(
        &self,
        charges: &[Charged],
        snapshots: &[Snapshot],
        reports: &[Report<'_>],
    ) -> Option<HeaderValue> {
        let limits = charges.iter().zip(snapshots).zip(reports);
        let now = limits.map(|((charged, terms), report)| {
            (charged.rule, terms.limit().generation(), report.quota())
        });
        if let Some(written) = &*self.0.load() {
            if written.of.iter().copied().eq(now.clone()) {
                return Some(written.value.clone());
            }
        }
        let value = Fields::policy(reports)?;
        let of = now.collect();
        self.0.store(Some(Arc::new(Written { of, value: value.clone() })));
        Some(value)
    }
}

impl Clone for PolicyLine {
    /// A copy of a layer may get other limits, so it starts without.
    fn clone(&self) -> Self {
        Self::default()
    }
}
