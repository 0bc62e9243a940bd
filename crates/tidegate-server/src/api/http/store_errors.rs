//! Logs store errors, at a limited rate.

use std::error::Error;
use std::time::Duration;

use tidegate::StoreError;
use tidegate::clock::wall_now;
use tidegate::guard::NotCalled;
use tidegate_http::ThrottledLog;

/// Throttled log of store errors.
#[derive(Debug)]
pub(crate) struct StoreErrors(ThrottledLog);

impl Default for StoreErrors {
    fn default() -> Self {
        Self(ThrottledLog::every(Duration::from_secs(60)))
    }
}

impl StoreErrors {
    /// Logs a store error, at most once a minute. Skips errors of a store that is down, which its
    /// guard has already logged.
    pub(crate) fn log(&self, error: &StoreError) {
        if is_known_to_be_down(error) {
            return;
        }
        if let Some(suppressed) = self.0.due(wall_now()) {
            let error = error as &(dyn Error + 'static);
            tracing::warn!(error, suppressed, "store call failed");
        }
    }
}

fn is_known_to_be_down(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable(reason) if reason.is::<NotCalled>())
}

#[cfg(test)]
mod tests {
    use tidegate_core::WallTime;

    use super::*;

    #[test]
    fn an_error_is_logged_once_a_minute() {
        let errors = StoreErrors::default();
        let due = |seconds| errors.0.due(WallTime::from_secs(seconds)).is_some();
        assert_eq!([0, 1, 59, 60, 61].map(due), [true, false, false, true, false]);
    }

    #[test]
    fn errors_that_the_guard_logged_are_skipped() {
        let down = NotCalled::Down { retry_after: Duration::from_secs(1) };
        assert!(is_known_to_be_down(&StoreError::Unavailable(down.into())));
        assert!(!is_known_to_be_down(&StoreError::Unavailable("refused".into())));
        assert!(!is_known_to_be_down(&StoreError::TimedOut));
    }
}
