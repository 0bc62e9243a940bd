//! Rate limit for log lines that calls cause, since callers decide how many there are.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Maximum number of lines per span; further ones are counted.
const LINES: u32 = 60;
const SPAN: Duration = Duration::from_secs(10);

/// Decides whether to write a line.
#[derive(Debug, Default)]
pub(crate) struct LogLimit(Mutex<Written>);

#[derive(Debug, Default)]
struct Written {
    /// Start of the current span.
    since: Option<Instant>,
    lines: u32,
    suppressed: u64,
}

impl LogLimit {
    /// Returns the number of lines suppressed since the last one if a line may be written now, else
    /// `None`.
    pub(crate) fn due(&self) -> Option<u64> {
        let now = Instant::now();
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if written.since.is_none_or(|since| now.saturating_duration_since(since) >= SPAN) {
            (written.since, written.lines) = (Some(now), 0);
        }
        if written.lines >= LINES {
            written.suppressed += 1;
            return None;
        }
        written.lines += 1;
        Some(std::mem::take(&mut written.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lines_beyond_the_maximum_are_counted() {
        let limit = LogLimit::default();
        let lines = (0..1_000).filter_map(|_| limit.due()).count();
        assert_eq!(lines, 60);
        tokio::time::advance(SPAN).await;
        assert_eq!((limit.due(), limit.due()), (Some(940), Some(0)));
    }
}
