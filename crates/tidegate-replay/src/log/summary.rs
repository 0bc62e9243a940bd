//! What a log contained: lines, times, and lines that could not be read.

use tidegate_core::Time;

use crate::error::ReplayError;
use crate::event::Event;
use crate::log::REPORTED;
use crate::log::line_error::LineError;

/// A line that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidLine {
    /// Name of the log.
    pub log: String,
    /// Number of the line, from 1.
    pub number: u64,
    /// What is wrong.
    pub error: LineError,
}

impl std::fmt::Display for InvalidLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.log, self.number, self.error)
    }
}

/// Counts of a log. Empty lines and headers are not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogSummary {
    /// Number of lines.
    pub lines: u64,
    /// Number of lines that could not be read.
    pub invalid: u64,
    /// The first of them.
    pub first_invalid: Vec<InvalidLine>,
    /// Total cost of all requests.
    pub cost: u64,
    /// Earliest time; `None` if there is no request.
    pub first: Option<Time>,
    /// Latest time.
    pub last: Option<Time>,
    /// Number of lines earlier than a line before them.
    pub out_of_order: u64,
    /// By how much at most they are earlier, in nanoseconds.
    pub largest_step_back: u64,
}

impl LogSummary {
    /// Returns the number of lines that could be read.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.lines - self.invalid
    }

    /// Returns the time from the earliest to the latest request.
    #[must_use]
    pub fn span(&self) -> std::time::Duration {
        let times = self.last.zip(self.first);
        times.map_or(std::time::Duration::ZERO, |(last, first)| last.since(first))
    }

    #[inline]
    pub(crate) fn count(&mut self, event: Event) {
        self.cost = self.cost.saturating_add(event.cost);
        match self.last {
            Some(last) if event.time < last => {
                self.out_of_order += 1;
                let back = last.as_nanos() - event.time.as_nanos();
                self.largest_step_back = self.largest_step_back.max(back);
                self.first = self.first.min(Some(event.time));
            }
            Some(_) => self.last = Some(event.time),
            None => (self.first, self.last) = (Some(event.time), Some(event.time)),
        }
    }

    pub(crate) fn count_invalid(&mut self, log: &str, number: u64, error: LineError) {
        self.invalid += 1;
        if self.first_invalid.len() < REPORTED {
            self.first_invalid.push(InvalidLine { log: log.to_owned(), number, error });
        }
    }

    pub(crate) fn check(&self) -> Result<(), ReplayError> {
        if self.lines == 0 {
            return Err(ReplayError::Empty);
        }
        match self.first_invalid.first() {
            Some(first) if self.invalid > self.lines / 2 => Err(ReplayError::MostlyInvalid {
                invalid: self.invalid,
                lines: self.lines,
                first: first.error,
            }),
            _ => Ok(()),
        }
    }
}
