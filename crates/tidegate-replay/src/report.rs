//! Reports: the numbers of a replay, ready to be shown.
//!
//! The same structures become a table for people, a JSON document for programs, and an HTML page.
//! They are rendered in this crate rather than in the program, next to the numbers they show, so
//! that their tests need no process. Floating-point numbers occur only here, as percentages.

mod columns;
mod html;
mod suggestion;
mod svg;
mod table;
mod text;

use std::time::Duration;

use serde::Serialize;
use tidegate_core::{Time, ceil_millis};

use crate::distribution::Distribution;
use crate::goal::{CountBy, DenyBelow};
use crate::key_table::KeyTable;
use crate::log::{LogSummary, timestamp};
use crate::policy::rate_text;
use crate::replay::{Replay, Totals};
use crate::search::{FrontierPoint, best};

pub use crate::report::suggestion::{ChoiceReport, SuggestionReport};

/// Format number of the JSON reports.
const REPORT_FORMAT: u32 = 1;
/// Number of keys in a list.
const TOP: usize = 10;

/// The report of `tidegate simulate`.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SimulationReport {
    /// Format number.
    pub format: u32,
    /// The log.
    pub log: LogReport,
    /// How long callers waited at most, in milliseconds.
    pub max_wait_ms: u64,
    /// Each policy.
    pub policies: Vec<PolicyReport>,
    /// The keys with the most requests.
    pub top_keys: Vec<KeyReport>,
    /// Counts over time.
    pub timeline: TimelineReport,
    /// The result of a search.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<SearchReport>,
}

/// What a log contained.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct LogReport {
    /// Number of lines, without empty ones and headers.
    pub lines: u64,
    /// Number of lines that could not be read.
    pub invalid_lines: u64,
    /// Number of requests.
    pub requests: u64,
    /// Their cost.
    pub cost: u64,
    /// Number of keys.
    pub keys: u64,
    /// Time of the earliest request.
    pub first: Option<String>,
    /// Time of the latest request.
    pub last: Option<String>,
    /// Time between them in milliseconds.
    pub span_ms: u64,
    /// Number of lines earlier than a line before them.
    pub out_of_order_lines: u64,
    /// By how much at most, in milliseconds.
    pub largest_step_back_ms: u64,
}

/// What a policy decided.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct PolicyReport {
    /// Its name.
    pub name: String,
    /// Its capacity.
    pub capacity: u64,
    /// Its rate.
    pub rate: String,
    /// Number of admitted requests.
    pub admitted: u64,
    /// Number of denied requests.
    pub denied: u64,
    /// Their share in percent.
    pub denied_percent: f64,
    /// Cost of the admitted requests.
    pub admitted_cost: u64,
    /// Cost of the denied requests.
    pub denied_cost: u64,
    /// Its share in percent.
    pub denied_cost_percent: f64,
    /// Number of requests that cost more than the capacity.
    pub over_capacity: u64,
    /// Number of keys with a denied request.
    pub keys_denied: u64,
    /// When denied requests would have fit.
    pub retry: WaitReport,
    /// How long admitted requests that had to wait did.
    pub waits: WaitReport,
    /// The keys with the most denied requests.
    pub top_denied: Vec<KeyDenials>,
}

/// A distribution of waits.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct WaitReport {
    /// Number of waits.
    pub count: u64,
    /// Half of the waits are at most this long.
    pub p50_ms: u64,
    /// Nine of ten are.
    pub p90_ms: u64,
    /// Ninety-nine of a hundred are.
    pub p99_ms: u64,
    /// The longest.
    pub max_ms: u64,
    /// Numbers of waits by length.
    pub ranges: Vec<WaitRange>,
}

/// Waits up to a bound, and over that of the range before.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct WaitRange {
    /// The bound; unset for the last range.
    pub up_to_ms: Option<u64>,
    /// Number of waits.
    pub count: u64,
}

/// Requests of a key.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct KeyReport {
    /// The key.
    pub key: String,
    /// Number of its requests.
    pub requests: u64,
    /// Their cost.
    pub cost: u64,
}

/// Denied requests of a key.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct KeyDenials {
    /// The key.
    pub key: String,
    /// Number of its requests.
    pub requests: u64,
    /// Number of those denied.
    pub denied: u64,
}

/// Counts over time.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TimelineReport {
    /// Start of the first interval.
    pub start: Option<String>,
    /// Length of an interval in seconds.
    pub interval_s: u64,
    /// Counts of each policy, in the order of the policies.
    pub policies: Vec<TimelineCounts>,
}

/// Counts of a policy over time.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TimelineCounts {
    /// Admitted requests in each interval.
    pub admitted: Vec<u64>,
    /// Denied requests in each interval.
    pub denied: Vec<u64>,
}

/// The result of a search.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SearchReport {
    /// The share to stay below.
    pub deny_below: String,
    /// What is counted: `requests` or `cost`.
    pub by: &'static str,
    /// For each rate the smallest capacity.
    pub frontier: Vec<FrontierReport>,
    /// Index of the point at which one key can spend least in a minute.
    pub best: Option<usize>,
}

/// The smallest capacity at a rate.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct FrontierReport {
    /// The rate.
    pub rate: String,
    /// The smallest capacity.
    pub capacity: u64,
    /// What one key can spend in a minute.
    pub spendable_in_a_minute: u128,
    /// Number of denied requests.
    pub denied: u64,
    /// Their share in percent.
    pub denied_percent: f64,
    /// Cost of the denied requests.
    pub denied_cost: u64,
    /// Its share in percent.
    pub denied_cost_percent: f64,
    /// The capacity that denies nothing.
    pub denies_nothing: u64,
}

impl SimulationReport {
    /// Collects the numbers of a replay.
    #[must_use]
    pub fn new(replay: &Replay, keys: &KeyTable, log: &LogSummary, max_wait: Duration) -> Self {
        let log = LogReport::new(log, keys);
        let policies =
            (0..replay.policies().len()).map(|index| PolicyReport::new(replay, index, keys, &log));
        let top = replay.busiest(TOP).into_iter().map(|key| {
            let traffic = replay.traffic()[key as usize];
            KeyReport { key: keys.text(key), requests: traffic.requests, cost: traffic.cost }
        });
        Self {
            format: REPORT_FORMAT,
            max_wait_ms: ceil_millis(max_wait),
            policies: policies.collect(),
            top_keys: top.collect(),
            timeline: TimelineReport::new(replay),
            search: None,
            log,
        }
    }

    /// Adds the result of a search.
    pub fn add_search(&mut self, goal: DenyBelow, points: &[FrontierPoint]) {
        let frontier = points.iter().map(|point| FrontierReport {
            rate: format!("{}/min", point.per_minute),
            capacity: point.bucket.capacity(),
            spendable_in_a_minute: point.spendable_in_a_minute(),
            denied: point.denied,
            denied_percent: percent(point.denied, self.log.requests),
            denied_cost: point.denied_cost,
            denied_cost_percent: percent(point.denied_cost, self.log.cost),
            denies_nothing: point.denies_nothing,
        });
        let by = match goal.counted() {
            CountBy::Requests => "requests",
            CountBy::Cost => "cost",
        };
        let (deny_below, best) = (goal.to_string(), best(points));
        self.search = Some(SearchReport { deny_below, by, frontier: frontier.collect(), best });
    }
}

impl LogReport {
    pub(crate) fn new(log: &LogSummary, keys: &KeyTable) -> Self {
        let date = |time: Option<Time>| time.map(|time| timestamp::format(time.as_nanos()));
        Self {
            lines: log.lines,
            invalid_lines: log.invalid,
            requests: log.requests(),
            cost: log.cost,
            keys: keys.len() as u64,
            first: date(log.first),
            last: date(log.last),
            span_ms: ceil_millis(log.span()),
            out_of_order_lines: log.out_of_order,
            largest_step_back_ms: ceil_millis(Duration::from_nanos(log.largest_step_back)),
        }
    }
}

impl PolicyReport {
    fn new(replay: &Replay, index: usize, keys: &KeyTable, log: &LogReport) -> Self {
        let (policy, totals) = (&replay.policies()[index], &replay.totals()[index]);
        let Totals { admitted, denied, admitted_cost, denied_cost, .. } = *totals;
        let top = replay.most_denied(index, TOP).into_iter().map(|key| KeyDenials {
            key: keys.text(key),
            requests: replay.traffic()[key as usize].requests,
            denied: replay.denied(index, key),
        });
        Self {
            name: policy.name.clone(),
            capacity: policy.bucket.capacity(),
            rate: rate_text(policy.bucket.rate()),
            admitted,
            denied,
            denied_percent: percent(denied, log.requests),
            admitted_cost,
            denied_cost,
            denied_cost_percent: percent(denied_cost, log.cost),
            over_capacity: totals.over_capacity,
            keys_denied: totals.keys_denied,
            retry: WaitReport::new(&totals.retry),
            waits: WaitReport::new(&totals.waits),
            top_denied: top.collect(),
        }
    }
}

impl WaitReport {
    fn new(waits: &Distribution) -> Self {
        const BOUNDS_MS: [u64; 8] =
            [10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000];
        let counts = waits.between(&BOUNDS_MS.map(Duration::from_millis));
        let bounds = BOUNDS_MS.into_iter().map(Some).chain([None]);
        let ranges = bounds.zip(counts).map(|(up_to_ms, count)| WaitRange { up_to_ms, count });
        let millis = |percent| ceil_millis(waits.percentile(percent));
        Self {
            count: waits.count(),
            p50_ms: millis(50),
            p90_ms: millis(90),
            p99_ms: millis(99),
            max_ms: ceil_millis(waits.max()),
            ranges: ranges.collect(),
        }
    }
}

impl TimelineReport {
    fn new(replay: &Replay) -> Self {
        let timeline = replay.timeline();
        let counts = (0..replay.policies().len()).map(|index| TimelineCounts {
            admitted: timeline.bins(index).iter().map(|bin| bin.admitted).collect(),
            denied: timeline.bins(index).iter().map(|bin| bin.denied).collect(),
        });
        Self {
            start: timeline.start().map(|time| timestamp::format(time.as_nanos())),
            interval_s: timeline.bin_seconds(),
            policies: counts.collect(),
        }
    }
}

/// Returns a share in percent, with three decimals. Zero of nothing.
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64 * 100_000.0).round() / 1_000.0 }
}
