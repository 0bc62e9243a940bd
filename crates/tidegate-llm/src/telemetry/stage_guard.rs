//! Reports when a call waits for a permit and when it is in flight.
//!
//! The guard reports the end of a stage when it is dropped, so the end is reported even if the
//! caller goes away or panics. Gauges that count stages therefore return to zero.

use std::sync::Arc;

use tidegate_providers::Provider;

use super::Observer;

/// Stage of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stage {
    /// The call waits for a permit.
    Waiting,
    /// The call has a permit, and its response has not ended.
    InFlight,
}

/// A call in a stage. Dropping the guard ends the stage.
#[derive(Debug)]
pub(crate) struct StageGuard {
    observer: Arc<dyn Observer>,
    provider: Provider,
    stage: Stage,
}

impl StageGuard {
    pub(crate) fn new(observer: Arc<dyn Observer>, provider: Provider, stage: Stage) -> Self {
        match stage {
            Stage::Waiting => observer.wait_started(&provider),
            Stage::InFlight => observer.call_started(&provider),
        }
        Self { observer, provider, stage }
    }
}

impl Drop for StageGuard {
    fn drop(&mut self) {
        match self.stage {
            Stage::Waiting => self.observer.wait_ended(&self.provider),
            Stage::InFlight => self.observer.call_ended(&self.provider),
        }
    }
}
