//! The decisions of callers during an outage.

use std::time::Duration;

use tidegate::guard::GuardStats;

/// Time after the start of the outage that is reported separately.
pub(in crate::remote) const SHOCK: Duration = Duration::from_millis(200);
/// Calls that take longer are counted as slow.
pub(in crate::remote) const LONG: Duration = Duration::from_millis(1);

/// One decision.
#[derive(Clone, Copy, Debug)]
pub(in crate::remote) struct Entry {
    pub(super) ended: Duration,
    pub(super) took: Duration,
    pub(super) degraded: bool,
}

/// Start of the outage, and the time of the first response after it.
#[derive(Clone, Copy, Debug)]
pub(in crate::remote) struct Moments {
    pub(super) lost: Duration,
    pub(super) back: Duration,
}

impl Moments {
    /// Whether the failure rule decided although the server was available.
    pub(super) fn were_disturbed(self, entries: &[Entry]) -> bool {
        entries.iter().any(|entry| entry.degraded && entry.ended < self.lost)
    }
}

/// The phases of an outage, by the end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::remote) enum Phase {
    Before,
    Shock,
    Down,
    /// The server responds again, but not all decisions are shared yet.
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

/// The decisions of all repetitions.
#[derive(Debug)]
pub(in crate::remote) struct OutageLog {
    /// Duration of each call in nanoseconds, and whether its decision was degraded, by phase.
    calls: [Vec<(u64, bool)>; 5],
    /// Milliseconds from the first response of the server to the first shared decision, and to the
    /// last degraded one; one entry per repetition.
    pub(in crate::remote) first_shared: Vec<f64>,
    pub(in crate::remote) last_degraded: Vec<f64>,
    /// Number of store calls that failed or timed out.
    pub(in crate::remote) in_vain: u64,
    /// Whether the limit was exact afterwards.
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

    /// Durations of the calls of a phase, in nanoseconds.
    pub(in crate::remote) fn nanos(&self, phase: Phase) -> Vec<u64> {
        self.calls[phase as usize].iter().map(|&(nanos, _)| nanos).collect()
    }

    /// Number of slow calls of a phase.
    pub(in crate::remote) fn long(&self, phase: Phase) -> usize {
        let long = |&&(nanos, _): &&(u64, bool)| u128::from(nanos) > LONG.as_nanos();
        self.calls[phase as usize].iter().filter(long).count()
    }

    /// Number of degraded decisions of a phase.
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
