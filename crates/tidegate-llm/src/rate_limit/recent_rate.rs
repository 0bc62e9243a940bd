//! Observed rate of calls sent.

use std::time::Duration;

use tidegate_core::Time;

use super::send_rate::Allowed;

/// Calls are counted per span; the current and the previous one are used.
pub(super) const SPAN: Duration = Duration::from_secs(10);

/// Number of calls sent recently.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecentRate {
    since: Time,
    count: u64,
    before: u64,
}

impl RecentRate {
    /// Returns whether no call was sent recently: the next one is the first, or the first after a
    /// pause.
    pub(super) fn is_idle(&self, now: Time) -> bool {
        self.count == 0 || now.since(self.since).as_nanos() / SPAN.as_nanos() > 1
    }

    /// Records a sent call.
    pub(super) fn call_sent(&mut self, now: Time) {
        let spans = now.since(self.since).as_nanos() / SPAN.as_nanos();
        let first = self.is_idle(now);
        if first || spans == 1 {
            self.before = if first { 0 } else { self.count };
            (self.since, self.count) = (now, 0);
        }
        self.count += 1;
    }

    /// Returns the rate per minute, at least one.
    pub(super) fn rate(&self, now: Time) -> Allowed {
        let elapsed = now.since(self.since);
        let (count, span) = match self.before {
            0 => (self.count, elapsed.max(Duration::from_secs(1))),
            before => (self.count + before, elapsed + SPAN),
        };
        Allowed::per_minute(
            Allowed { amount: count, window: span }.in_span(Duration::from_secs(60)).max(1),
        )
    }
}
