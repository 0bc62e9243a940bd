//! The result: one table for people, or JSON for programs. Every number is measured.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use tidegate_sim::Ledger;

use super::agents::{Tally, read};
use super::scenario::{AGENTS, CALLS, REQUESTS_PER_MINUTE, Scenario, TASKS, TOKENS_PER_MINUTE};
use super::{Route, Time};

/// What to do next.
pub(super) const HINT: &str = "shortest possible: when the provider can admit the last of the \
     answered calls\nto use the gateway for your own agents, run `tidegate serve` and set the base \
     URL of their SDK";

/// Describes what is about to happen.
pub(super) fn introduction(scenario: Scenario, time: Time) -> String {
    let duration = match time {
        Time::Real => "about a minute; --fast needs seconds",
        Time::Virtual => "in virtual time",
    };
    format!(
        "{AGENTS} agents with {TASKS} tasks of {CALLS} calls each; a simulated provider that allows \
         {REQUESTS_PER_MINUTE} requests and {TOKENS_PER_MINUTE} tokens per minute; seed {} \
         ({duration})",
        scenario.seed
    )
}

/// The results of both routes.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    seed: u64,
    virtual_time: bool,
    agents: u64,
    tasks: u64,
    /// Calls of all tasks.
    calls: u64,
    provider: Provider,
    direct: Run,
    gateway: Run,
}

#[derive(Debug, Serialize)]
struct Provider {
    requests_per_minute: u64,
    tokens_per_minute: u64,
}

/// What was measured on one route.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Run {
    tasks_finished: u64,
    calls_made: u64,
    calls_answered: u64,
    calls_failed: u64,
    requests_at_provider: u64,
    throttled_at_clients: u64,
    throttled_at_provider: u64,
    /// Share of the quota that the answered calls used, up to the end of the run.
    quota_used: f64,
    seconds: f64,
    /// Shortest time in which the provider can admit the answered calls.
    shortest_seconds: f64,
}

impl Run {
    /// Reads the numbers of a route that has ended.
    pub(super) fn measured(
        scenario: Scenario,
        took: Duration,
        tally: &Tally,
        ledger: &Ledger,
    ) -> Self {
        let (limits, answered) = (scenario.limits(), ledger.answered());
        Self {
            tasks_finished: read(&tally.tasks_finished),
            calls_made: read(&tally.calls_made),
            calls_answered: read(&tally.calls_answered),
            calls_failed: read(&tally.calls_failed),
            requests_at_provider: ledger.seen(),
            throttled_at_clients: read(&tally.throttled),
            throttled_at_provider: ledger.throttled(),
            quota_used: limits.used_share(answered, took),
            seconds: took.as_secs_f64(),
            shortest_seconds: limits.shortest_time(answered).as_secs_f64(),
        }
    }

    /// The cells of a column of the table.
    fn cells(&self) -> [String; 10] {
        let tasks = AGENTS * TASKS;
        [
            format!("{} of {tasks}", self.tasks_finished),
            self.calls_made.to_string(),
            self.calls_answered.to_string(),
            self.calls_failed.to_string(),
            self.throttled_at_clients.to_string(),
            self.throttled_at_provider.to_string(),
            format!("{:.0} %", self.quota_used * 100.0),
            format!("{:.1} s", self.seconds),
            format!("{:.1} s", self.shortest_seconds),
            format!("{:.2} x", self.seconds / self.shortest_seconds.max(f64::MIN_POSITIVE)),
        ]
    }
}

const ROWS: [&str; 10] = [
    "tasks finished",
    "calls made",
    "calls answered",
    "calls failed",
    "429s seen by clients",
    "429s at the provider",
    "quota used",
    "time",
    "shortest possible",
    "time against the shortest",
];

impl Route {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Gateway => "through tidegate",
        }
    }
}

impl Report {
    pub(super) fn new(scenario: Scenario, time: Time, [direct, gateway]: [Run; 2]) -> Self {
        Self {
            seed: scenario.seed,
            virtual_time: time == Time::Virtual,
            agents: AGENTS,
            tasks: AGENTS * TASKS,
            calls: AGENTS * TASKS * CALLS,
            provider: Provider {
                requests_per_minute: REQUESTS_PER_MINUTE,
                tokens_per_minute: TOKENS_PER_MINUTE,
            },
            direct,
            gateway,
        }
    }

    /// The table for people, without a final line break.
    pub(super) fn table(&self) -> String {
        let [direct, gateway] = [Route::Direct, Route::Gateway].map(Route::name);
        let mut text = format!("{:26}{direct:>12}{gateway:>18}", "");
        let cells = self.direct.cells().into_iter().zip(self.gateway.cells());
        for (row, (direct, gateway)) in ROWS.iter().zip(cells) {
            // Writing to a String does not fail.
            let _ = write!(text, "\n{row:26}{direct:>12}{gateway:>18}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_are_aligned() {
        let run = |calls| Run {
            tasks_finished: 80,
            calls_made: calls,
            calls_answered: calls,
            calls_failed: 0,
            requests_at_provider: calls,
            throttled_at_clients: 0,
            throttled_at_provider: 3,
            quota_used: 0.974,
            seconds: 41.0,
            shortest_seconds: 40.0,
        };
        let table = Report::new(Scenario::new(1), Time::Virtual, [run(7), run(400)]).table();
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines.len(), 11);
        assert!(lines.iter().all(|line| line.len() == 56), "{table}");
        assert!(lines[2].ends_with("7               400"), "{table}");
        assert!(lines[7].ends_with("97 %") && lines[10].ends_with("1.02 x"), "{table}");
    }
}
