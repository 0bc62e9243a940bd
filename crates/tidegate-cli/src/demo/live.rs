//! What is seen while the agents work: progress bars in a terminal, else a line every few seconds.
//!
//! All of it goes to standard error. In virtual time there is nothing to watch.

use std::convert::Infallible;
use std::future::pending;
use std::io::{IsTerminal as _, stderr};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tidegate_sim::Simulator;
use tokio::time::{MissedTickBehavior, interval};

use super::agents::{Tally, read};
use super::scenario::{ACCOUNT, AGENTS, CALLS, MODEL, TASKS};
use super::{Route, Time};
use crate::terminal::eprint_line;

/// Time between two updates of the bars, and between two lines.
const REDRAW: Duration = Duration::from_millis(200);
const LINE: Duration = Duration::from_secs(5);
/// The gauge shows the share of the quota that was used in this time.
const RECENT: Duration = Duration::from_secs(5);
/// Width of the gauge.
const GAUGE: usize = 10;
const TEMPLATE: &str = "{prefix:>17} {bar:24} {pos:>3}/{len} calls  {msg}";

/// The display of a demo.
pub(super) enum Live {
    Bars { all: MultiProgress, direct: ProgressBar, gateway: ProgressBar },
    Lines,
    Off,
}

impl Live {
    pub(super) fn start(time: Time) -> Self {
        match time {
            Time::Virtual => Self::Off,
            Time::Real if stderr().is_terminal() => Self::bars(),
            Time::Real => Self::Lines,
        }
    }

    fn bars() -> Self {
        let all = MultiProgress::new();
        let style =
            ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar());
        let add = |route: Route| {
            let bar = ProgressBar::new(AGENTS * TASKS * CALLS).with_style(style.clone());
            all.add(bar.with_prefix(route.name()))
        };
        let (direct, gateway) = (add(Route::Direct), add(Route::Gateway));
        Self::Bars { all, direct, gateway }
    }

    /// Shows the state until it is dropped.
    pub(super) async fn watch(
        &self,
        route: Route,
        tally: &Tally,
        simulator: &Simulator,
    ) -> Infallible {
        let period = match self {
            Self::Bars { .. } => REDRAW,
            Self::Lines => LINE,
            Self::Off => return pending().await,
        };
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        // The first tick comes at once, before there is anything to show.
        ticks.tick().await;
        loop {
            ticks.tick().await;
            self.show(route, tally, simulator);
        }
    }

    /// Shows the state at the end of a route.
    pub(super) fn end(&self, route: Route, tally: &Tally, simulator: &Simulator) {
        self.show(route, tally, simulator);
        if let Self::Bars { direct, gateway, .. } = self {
            let bar = if route == Route::Direct { direct } else { gateway };
            bar.abandon();
        }
    }

    fn show(&self, route: Route, tally: &Tally, simulator: &Simulator) {
        let answered = read(&tally.calls_answered);
        let status = Status {
            failed: read(&tally.calls_failed),
            throttled: read(&tally.throttled),
            quota: recent_share(simulator),
        };
        match self {
            Self::Bars { direct, gateway, .. } => {
                let bar = if route == Route::Direct { direct } else { gateway };
                bar.set_position(answered);
                bar.set_message(status.text());
            }
            Self::Lines => {
                let name = route.name();
                eprint_line(&format!("{name}: {answered} calls answered, {}", status.text()));
            }
            Self::Off => {}
        }
    }

    /// Removes the bars. The table has their numbers.
    pub(super) fn finish(&self) {
        if let Self::Bars { all, .. } = self {
            // If the terminal is gone, there is nothing to clear.
            let _ = all.clear();
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // After an interrupt, the terminal must not keep half a bar.
        self.finish();
    }
}

/// Returns the share of the provider's quota that was used recently.
fn recent_share(simulator: &Simulator) -> f64 {
    let now = simulator.elapsed();
    let usage = simulator.usage(ACCOUNT, MODEL, now.saturating_sub(RECENT)..now);
    usage.map_or(0.0, |usage| usage.ratio().min(1.0))
}

/// The changing part of a bar or a line.
struct Status {
    failed: u64,
    throttled: u64,
    /// Share of the quota that is used now.
    quota: f64,
}

impl Status {
    fn text(&self) -> String {
        let Self { failed, throttled, quota } = self;
        let gauge = gauge(*quota);
        format!("{failed:>3} failed  {throttled:>4} 429s  quota [{gauge}] {:>3.0} %", quota * 100.0)
    }
}

fn gauge(share: f64) -> String {
    let filled = (1..=GAUGE).filter(|step| share >= (*step as f64 - 0.5) / GAUGE as f64).count();
    format!("{}{}", "#".repeat(filled), "-".repeat(GAUGE - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gauge_is_rounded() {
        assert_eq!(gauge(0.0), "----------");
        assert_eq!(gauge(0.54), "#####-----");
        assert_eq!(gauge(0.96), "##########");
    }

    #[test]
    fn the_template_of_the_bars_is_valid() {
        ProgressStyle::with_template(TEMPLATE).unwrap();
    }
}
