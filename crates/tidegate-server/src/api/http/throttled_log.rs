//! What the log says of a store that could not answer: enough, and not with every request.

use std::error::Error;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidegate::StoreError;
use tidegate::guard::NotAsked;
use tokio::time::Instant;

/// How long after it was told such a trouble is not told again.
const SILENCE: Duration = Duration::from_secs(60);

/// ThrottledLog with the store, as far as the log is concerned.
#[derive(Debug, Default)]
pub(crate) struct ThrottledLog {
    told: Mutex<Option<Instant>>,
}

impl ThrottledLog {
    /// Logs why the store could not answer, unless something like it was logged just now. That a
    /// store is down its guard has said already.
    pub(crate) fn log(&self, error: &StoreError) {
        if !is_known_to_be_down(error) && self.is_news(Instant::now()) {
            let error = error as &(dyn Error + 'static);
            tracing::warn!(error, "the store could not answer; this is told once a minute");
        }
    }

    fn is_news(&self, now: Instant) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let news = told.is_none_or(|told| now.saturating_duration_since(told) >= SILENCE);
        if news {
            *told = Some(now);
        }
        news
    }
}

fn is_known_to_be_down(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable(reason) if reason.is::<NotAsked>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_told_once_a_minute() {
        let (log, start) = (ThrottledLog::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        let news = [0, 1, 59, 60, 61].map(|seconds| log.is_news(after(seconds)));
        assert_eq!(news, [true, false, false, true, false]);
    }

    #[test]
    fn what_the_guard_has_told_is_no_news() {
        let down = NotAsked::Down { retry_after: Duration::from_secs(1) };
        assert!(is_known_to_be_down(&StoreError::Unavailable(down.into())));
        assert!(!is_known_to_be_down(&StoreError::Unavailable("refused".into())));
        assert!(!is_known_to_be_down(&StoreError::TimedOut));
    }
}
