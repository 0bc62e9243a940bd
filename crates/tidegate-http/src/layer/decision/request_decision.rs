//! The decision on a request, for its handler to read.

use std::sync::Arc;

use tidegate::{FailureRule, Retry};

use crate::field::Report;

/// How a request was decided. A layer with [`expose`](crate::layer::LimitLayer::expose) or in
/// [shadow](crate::layer::LimitLayer::shadow) mode puts one into the extensions of every request,
/// without limits if none applies or the store failed. Of several layers the innermost wins. Cheap
/// to clone.
#[derive(Clone, Debug)]
pub struct RequestDecision(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    reports: Vec<Report<'static>>,
    refused: bool,
    retry: Option<Retry>,
    degraded: Option<FailureRule>,
}

impl RequestDecision {
    pub(crate) fn new(
        reports: &[Report<'_>],
        retry: Option<Retry>,
        degraded: Option<FailureRule>,
    ) -> Self {
        let reports = reports.iter().map(|report| report.clone().into_owned()).collect();
        Self(Arc::new(Inner { reports, refused: retry.is_some(), retry, degraded }))
    }

    /// The decision on a request to which no limit applies.
    pub(crate) fn no_limits() -> Self {
        Self::new(&[], None, None)
    }

    /// The decision on a request that would have been refused without a decision of any limit: it
    /// has no key, or the store is unavailable.
    pub(crate) fn undecided() -> Self {
        Self(Arc::new(Inner { reports: Vec::new(), refused: true, retry: None, degraded: None }))
    }

    /// Returns whether the request would have been refused outside of shadow mode: by a limit, for
    /// a missing key, or because the store is unavailable.
    #[must_use]
    pub fn would_be_refused(&self) -> bool {
        self.0.refused
    }

    /// Returns when a retry would succeed; `None` if the request was admitted or the time is
    /// unknown.
    #[must_use]
    pub fn retry(&self) -> Option<Retry> {
        self.0.retry
    }

    /// Returns the state of the limits that apply to the request, in their order.
    #[must_use]
    pub fn limits(&self) -> &[Report<'static>] {
        &self.0.reports
    }

    /// Returns the limit that denies, or else the one with the least left; `None` if no limit
    /// applies.
    #[must_use]
    pub fn binding(&self) -> Option<&Report<'static>> {
        Report::binding(&self.0.reports)
    }

    /// Returns the failure rule that decided in place of an unavailable store.
    #[must_use]
    pub fn degraded(&self) -> Option<FailureRule> {
        self.0.degraded
    }
}
