//! What callers noted while a server went away and came back.

use std::time::Duration;

use tidegate::guard::GuardStats;

/// The time right after the loss that is told apart.
pub(in crate::remote) const SHOCK: Duration = Duration::from_millis(200);
/// A call that takes longer than this is counted.
pub(in crate::remote) const LONG: Duration = Duration::from_millis(1);

/// One decision.
#[derive(Clone, Copy, Debug)]
pub(in crate::remote) struct Entry {
    pub(super) ended: Duration,
    pub(super) took: Duration,
    pub(super) degraded: bool,
}

/// When the server went away, and when it answered again.
#[derive(Clone, Copy, Debug)]
pub(in crate::remote) struct Moments {
    pub(super) lost: Duration,
    pub(super) back: Duration,
}

impl Moments {
    /// Whether the failure rule had to decide while the server was there.
    pub(super) fn were_disturbed(self, entries: &[Entry]) -> bool {
        entries.iter().any(|entry| entry.degraded && entry.ended < self.lost)
    }
}

/// The parts of the story, by when a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::remote) enum Phase {
    Before,
    Shock,
    Down,
    /// The server answers, and not everybody is back with it.
    Returning,
    After,
}

impl Phase {
    pub(in crate::remote) const ALL: [Self; 5] =
        [Self::Before, Self::Shock, Self::Down, Self::Returning, Self::After];

    pub(in crate::remote) const fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::Shock => "the first 200 ms",
            Self::Down => "while it is down",
            Self::Returning => "it answers again, until all decisions are shared",
            Self::After => "after",
        }
    }
}

/// All repeats together.
#[derive(Debug)]
pub(in crate::remote) struct OutageLog {
    /// Nanoseconds of each call and whether its decision was degraded, by phase.
    calls: [Vec<(u64, bool)>; 5],
    /// Milliseconds from when the server answered to the first decision that was shared, and to
    /// the last one that was not; one for each repeat.
    pub(in crate::remote) first_shared: Vec<f64>,
    pub(in crate::remote) last_degraded: Vec<f64>,
    /// Calls that the store failed or did not answer in time.
    pub(in crate::remote) in_vain: u64,
    /// Whether the limit held exactly afterwards.
    pub(in crate::remote) exact: bool,
}

impl Default for OutageLog {
    fn default() -> Self {
        Self {
            calls: Default::default(),
            first_shared: Vec::new(),
            last_degraded: Vec::new(),
            in_vain: 0,
            exact: true,
        }
    }
}

impl OutageLog {
    pub(super) fn add(&mut self, entries: Vec<Entry>, moments: Moments, stats: GuardStats) {
        let Moments { lost, back } = moments;
        let late = || entries.iter().filter(|entry| entry.ended >= back);
        let last = late().filter(|entry| entry.degraded).map(|entry| entry.ended).max();
        let first = late().filter(|entry| !entry.degraded).map(|entry| entry.ended).min();
        let millis = |moment: Option<Duration>| {
            moment.unwrap_or(back).saturating_sub(back).as_secs_f64() * 1e3
        };
        self.first_shared.push(millis(first));
        self.last_degraded.push(millis(last));
        self.in_vain += stats.failed + stats.timed_out;
        for Entry { ended, took, degraded } in entries {
            let phase = match ended {
                ended if ended < lost => Phase::Before,
                ended if ended < lost + SHOCK => Phase::Shock,
                ended if ended < back => Phase::Down,
                ended if last.is_some_and(|last| ended <= last) => Phase::Returning,
                _ => Phase::After,
            };
            let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            self.calls[phase as usize].push((nanos, degraded));
        }
    }

    /// How long the calls of a phase took, in nanoseconds.
    pub(in crate::remote) fn nanos(&self, phase: Phase) -> Vec<u64> {
        self.calls[phase as usize].iter().map(|&(nanos, _)| nanos).collect()
    }

    /// How many of them took long.
    pub(in crate::remote) fn long(&self, phase: Phase) -> usize {
        let long = |&&(nanos, _): &&(u64, bool)| u128::from(nanos) > LONG.as_nanos();
        self.calls[phase as usize].iter().filter(long).count()
    }

    /// How many of their decisions the failure rule took.
    pub(in crate::remote) fn degraded(&self, phase: Phase) -> usize {
        self.calls[phase as usize].iter().filter(|&&(_, degraded)| degraded).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_belong_to_the_phase_in_which_they_ended() {
        let entry = |ended, took, degraded| Entry {
            ended: Duration::from_millis(ended),
            took: Duration::from_millis(took),
            degraded,
        };
        let entries = vec![
            entry(999, 1, false),
            entry(1_050, 50, true),
            entry(1_900, 2, true),
            entry(2_010, 0, true),
            entry(2_020, 0, false),
            entry(2_030, 0, true),
            entry(2_100, 0, false),
        ];
        let at = Duration::from_secs;
        let mut log = OutageLog::default();
        let moments = Moments { lost: at(1), back: at(2) };
        assert!(!moments.were_disturbed(&entries));
        assert!(moments.were_disturbed(&[entry(500, 50, true)]));
        log.add(entries, moments, GuardStats::default());
        assert_eq!(Phase::ALL.map(|phase| log.nanos(phase).len()), [1, 1, 1, 3, 1]);
        assert_eq!(Phase::ALL.map(|phase| log.long(phase)), [0, 1, 1, 0, 0]);
        assert_eq!(Phase::ALL.map(|phase| log.degraded(phase)), [0, 1, 1, 2, 0]);
        assert_eq!((log.first_shared, log.last_degraded), (vec![20.0], vec![30.0]));
    }
}
