//! Configuration and shared state of a retry layer.

use std::sync::Arc;
use std::time::Duration;

use tidegate_providers::Provider;

use super::budget::Budget;
use super::counters::Counters;
use super::random::Random;
use super::schedule::Schedule;
use crate::log_limit::LogLimit;
use crate::telemetry::Observers;

/// Default maximum delay accepted from a provider.
const MAX_SERVER_DELAY: Duration = Duration::from_secs(600);

/// Configuration of a retry layer. Clones share the counters and the budget.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    pub(super) provider: Provider,
    pub(super) function: Arc<str>,
    pub(super) schedule: Schedule,
    pub(super) max_server_delay: Duration,
    pub(super) deadline: Option<Duration>,
    pub(super) budget: Budget,
    pub(super) is_paced: bool,
    pub(super) random: Random,
    pub(super) observers: Observers,
    pub(super) counters: Arc<Counters>,
    /// `None`: every failed attempt is logged.
    pub(super) log: Option<Arc<LogLimit>>,
}

impl Policy {
    pub(super) fn new(provider: Provider) -> Self {
        Self {
            function: provider.as_str().into(),
            provider,
            schedule: Schedule::default(),
            max_server_delay: MAX_SERVER_DELAY,
            deadline: None,
            budget: Budget::default(),
            is_paced: false,
            random: Random::default(),
            observers: Observers::default(),
            counters: Arc::default(),
            log: None,
        }
    }

    /// Returns `None` if the next log line must be suppressed, else the number of lines suppressed
    /// before it, if any.
    pub(super) fn next_log_line(&self) -> Option<Option<u64>> {
        let suppressed = self.log.as_ref().map_or(Some(0), |log| log.due())?;
        Some(Some(suppressed).filter(|suppressed| *suppressed > 0))
    }
}
