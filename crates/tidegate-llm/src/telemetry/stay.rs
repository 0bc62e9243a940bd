//! Where calls are that have no answer yet, so that they can be counted.
//!
//! A stage that is entered is left, however a call ends: its guard may be dropped by a caller that
//! goes away or by a panic. So what is counted up is counted down again.

use std::sync::Arc;

use tidegate_providers::Provider;

use super::Observer;

/// Where a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// It waits for a permit.
    Waiting,
    /// It has one, and its answer has not ended.
    InFlight,
}

/// A call in a stage, until it is dropped.
#[derive(Debug)]
pub(crate) struct Stay {
    observer: Arc<dyn Observer>,
    provider: Provider,
    stage: Stage,
}

impl Stay {
    pub(crate) fn new(observer: Arc<dyn Observer>, provider: Provider, stage: Stage) -> Self {
        observer.entered(&provider, stage);
        Self { observer, provider, stage }
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.observer.left(&self.provider, self.stage);
    }
}
