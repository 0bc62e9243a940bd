//! The decision on a request, for its handler to read.

use std::sync::Arc;

use tidegate::{FailureRule, Retry};

use crate::field::Report;

/// How a request was decided. A layer that is told to
/// [`expose`](crate::layer::LimitLayer::expose) it, or is in
/// [shadow](crate::layer::LimitLayer::shadow), puts it into the extensions of the request; of several
/// layers the innermost counts. Such a layer gives one to every request, without limits if none
/// applies or nobody could decide. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Decided(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    reports: Vec<Report<'static>>,
    refused: bool,
    retry: Option<Retry>,
    degraded: Option<FailureRule>,
}

impl Decided {
    pub(crate) fn new(
        reports: &[Report<'_>],
        retry: Option<Retry>,
        degraded: Option<FailureRule>,
    ) -> Self {
        let reports = reports.iter().map(|report| report.clone().into_owned()).collect();
        Self(Arc::new(Inner { reports, refused: retry.is_some(), retry, degraded }))
    }

    /// No limit applies.
    pub(crate) fn nothing() -> Self {
        Self::new(&[], None, None)
    }

    /// The request would have been refused without any limit having decided: it has no key, or the
    /// store did not answer.
    pub(crate) fn undecided() -> Self {
        Self(Arc::new(Inner { reports: Vec::new(), refused: true, retry: None, degraded: None }))
    }

    /// Whether the request would have been refused, had the layer not been in shadow: by a limit,
    /// for want of a key, or because the store did not answer.
    #[must_use]
    pub fn would_be_refused(&self) -> bool {
        self.0.refused
    }

    /// When it would have been worth a retry; `None` if the request was allowed, or nobody knows.
    #[must_use]
    pub fn retry(&self) -> Option<Retry> {
        self.0.retry
    }

    /// How the limits stand that apply to the request, in their order.
    #[must_use]
    pub fn limits(&self) -> &[Report<'static>] {
        &self.0.reports
    }

    /// The limit that refuses, or the one with the least left; `None` if no limit applies.
    #[must_use]
    pub fn binding(&self) -> Option<&Report<'static>> {
        Report::binding(&self.0.reports)
    }

    /// The failure rule that decided because the store did not answer.
    #[must_use]
    pub fn degraded(&self) -> Option<FailureRule> {
        self.0.degraded
    }
}
