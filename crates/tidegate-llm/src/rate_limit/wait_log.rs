//! Log lines for waits: one per call in a library, one per minute and scope in a server. Waits for
//! the rate and for a concurrency slot have lines of their own.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::Time;

use crate::call::LimitScope;

/// Minimum time between log lines of one scope in a server.
const MINUTE: Duration = Duration::from_secs(60);
/// Maximum number of scopes logged separately; further ones are logged together. Scopes contain
/// keys and models chosen by callers, who must not be able to fill the log.
const MAX_SCOPES: usize = 64;

/// Logs waits. Cheap to clone; clones share one log.
#[derive(Clone, Debug)]
pub(super) struct WaitLog {
    /// `None` logs each wait.
    summaries: Option<Arc<Mutex<Summaries>>>,
}

/// Waits since the last log lines: for the rate, and for a concurrency slot.
#[derive(Debug, Default)]
struct Summaries {
    rate: WaitsByScope,
    slot: WaitsByScope,
}

#[derive(Debug, Default)]
struct WaitsByScope {
    scopes: HashMap<LimitScope, WaitSummary>,
    /// Summary of all scopes beyond the maximum.
    others: Option<WaitSummary>,
}

/// Waits since the last log line.
#[derive(Clone, Copy, Debug)]
struct WaitSummary {
    logged_at: Time,
    count: u64,
    worst: Duration,
}

impl WaitLog {
    /// Logs each wait. For libraries.
    pub(super) const fn each_call() -> Self {
        Self { summaries: None }
    }

    /// Logs waits at most once a minute per scope, with their number and the longest. For servers.
    pub(super) fn each_minute() -> Self {
        Self { summaries: Some(Arc::default()) }
    }

    /// Records how long a call of `scope` waited for the rate, and for a concurrency slot. A call
    /// that waited for both has a line for each. A slot is no rate limit: a full queue of slow calls
    /// is normal, so its line is not a warning.
    pub(super) fn waited(&self, scope: &LimitScope, (rate, slot): (Duration, Duration), now: Time) {
        let provider = scope.provider();
        let Some(summaries) = &self.summaries else {
            let (rate_seconds, slot_seconds) = (rate.as_secs_f64(), slot.as_secs_f64());
            if !rate.is_zero() {
                tracing::warn!(
                    "Rate limited for provider '{provider}'. Waited {rate_seconds:.2}s for token."
                );
            }
            if !slot.is_zero() {
                tracing::info!(
                    "Concurrency limited for provider '{provider}'. Waited {slot_seconds:.2}s for \
                     a slot."
                );
            }
            return;
        };
        let mut summaries = summaries.lock().unwrap_or_else(PoisonError::into_inner);
        let rate = summaries.rate.line(scope, rate, now);
        let slot = summaries.slot.line(scope, slot, now);
        drop(summaries);
        if let Some((scope, waits)) = rate {
            tracing::warn!(%scope, "Rate limited for provider '{provider}': {waits}.");
        }
        if let Some((scope, waits)) = slot {
            tracing::info!(%scope, "Concurrency limited for provider '{provider}': {waits}.");
        }
    }
}

impl WaitsByScope {
    /// Records a wait, if it is one. Returns the scope and the summary to log now, if one is due.
    fn line(&mut self, scope: &LimitScope, wait: Duration, now: Time) -> Option<(String, String)> {
        if wait.is_zero() {
            return None;
        }
        let (WaitSummary { count, worst, .. }, is_other) = self.record(scope, wait, now)?;
        let scope = if is_other { "others".to_owned() } else { scope.to_string() };
        Some((scope, format!("{count} calls waited, {:.2}s at worst", worst.as_secs_f64())))
    }

    /// Records a wait. Returns the summary to log now, if one is due, and whether it is that of the
    /// other scopes.
    fn record(
        &mut self,
        scope: &LimitScope,
        wait: Duration,
        now: Time,
    ) -> Option<(WaitSummary, bool)> {
        if let Some(waits) = self.scopes.get_mut(scope) {
            return Some((waits.add(wait, now)?, false));
        }
        if self.scopes.len() >= MAX_SCOPES {
            self.scopes.retain(|_, waits| now.since(waits.logged_at) < MINUTE);
        }
        let none = WaitSummary { logged_at: now, count: 0, worst: Duration::ZERO };
        let first = WaitSummary { count: 1, worst: wait, ..none };
        if self.scopes.len() < MAX_SCOPES {
            self.scopes.insert(scope.clone(), none);
            return Some((first, false));
        }
        match &mut self.others {
            Some(others) => Some((others.add(wait, now)?, true)),
            others => {
                *others = Some(none);
                Some((first, true))
            }
        }
    }
}

impl WaitSummary {
    /// Records a wait. Returns the summary if it is due.
    fn add(&mut self, wait: Duration, now: Time) -> Option<Self> {
        self.count += 1;
        self.worst = self.worst.max(wait);
        let none = Self { logged_at: now, count: 0, worst: Duration::ZERO };
        let is_due = now.since(self.logged_at) >= MINUTE;
        is_due.then(|| mem::replace(self, none))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_providers::Credential;

    #[test]
    fn scopes_beyond_the_maximum_are_logged_together() {
        let mut summaries = WaitsByScope::default();
        let scope = |number| {
            LimitScope::new("openai", &Credential::none()).model(&format!("model-{number}"))
        };
        let mut logged = |number, now| summaries.record(&scope(number), MINUTE, now);
        let (start, second) = (Time::from_nanos(0), Duration::from_secs(1));
        let lines = (0..10_000).filter_map(|number| logged(number, start)).count();
        assert_eq!(lines, MAX_SCOPES + 1, "one for each scope, and one for all others");
        assert!(logged(0, start.after(second)).is_none(), "summarized");
        assert!(logged(10_000, start.after(second)).is_none(), "summarized with others");
        let (others, is_other) =
            logged(1, start.after(MINUTE)).zip(logged(10_001, start.after(MINUTE))).unwrap().1;
        assert!(is_other || others.count == 1);
        assert!(summaries.scopes.len() <= MAX_SCOPES);
    }
}
