//! What came of fallbacks, counted.

use crate::telemetry::Counter;

/// What came of the calls through one layer so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Calls that began.
    pub calls: u64,
    /// Turns to another provider; a call can have several.
    pub turns: u64,
    /// Calls that another provider answered.
    pub rescued: u64,
    /// Calls that fell back and still have no answer.
    pub lost: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) calls: Counter,
    pub(super) turns: Counter,
    pub(super) rescued: Counter,
    pub(super) lost: Counter,
}

impl Counters {
    pub(super) fn read(&self) -> Stats {
        let Self { calls, turns, rescued, lost } = self;
        Stats {
            calls: calls.read(),
            turns: turns.read(),
            rescued: rescued.read(),
            lost: lost.read(),
        }
    }
}
