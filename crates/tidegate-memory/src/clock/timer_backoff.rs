//! Spans of the machine's timers, for waits on a clock that may be behind them.

use std::time::Duration;

use tidegate_core::Time;

/// Shortest timer after one that fired while the clock stood still.
const MIN_SPAN: Duration = Duration::from_millis(1);
/// Longest such timer: how late a wait can end once the clock moves again.
const MAX_SPAN: Duration = Duration::from_secs(1);

/// Chooses the spans of a series of timers that wait for one clock.
///
/// The timers are the machine's, and the clock may be any. If it stands still, what is due next
/// stays due next, however often a timer fires. So timers get longer while it does.
#[derive(Debug, Default)]
pub struct TimerBackoff {
    /// The time at which the last timer was started.
    started: Option<Time>,
    least: Duration,
}

impl TimerBackoff {
    /// Returns the span of the next timer, for something that is due in `left`. `has_fired` says
    /// whether the last timer ran to its end, and was not interrupted.
    pub fn span(&mut self, left: Duration, now: Time, has_fired: bool) -> Duration {
        let stands_still = has_fired && self.started == Some(now);
        self.least =
            if stands_still { (self.least * 2).clamp(MIN_SPAN, MAX_SPAN) } else { Duration::ZERO };
        self.started = Some(now);
        left.max(self.least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_get_longer_only_while_the_clock_stands_still() {
        let (mut timers, left) = (TimerBackoff::default(), Duration::from_nanos(1));
        let now = Time::from_nanos(7);
        assert_eq!(timers.span(left, now, false), left);
        let spans: Vec<_> = (0..12).map(|_| timers.span(left, now, true).as_millis()).collect();
        assert_eq!(spans, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_000, 1_000]);
        assert_eq!(timers.span(left, now.after(left), true), left, "it has moved");
        assert_eq!(timers.span(left, now.after(left), false), left, "a notification is no timer");
        assert_eq!(timers.span(MAX_SPAN * 2, now.after(left), true), MAX_SPAN * 2);
    }
}
