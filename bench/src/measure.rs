//! How a figure is taken.
//!
//! A run is calibrated to a fixed length. Contenders take turns run by run, so that whatever the
//! machine does meanwhile hits all alike. A run in which a thread had less than 97 % of its core
//! is thrown away, up to a number of times; after that it counts, and the row says so.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use indicatif::ProgressBar;

use crate::contender::Contender;
use crate::machine;
use crate::stopwatch::Stopwatch;

/// Minimum share of its core that a thread must get.
const FAIR_SHARE: f64 = 0.97;

/// Amount of measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Number of counted runs per row.
    pub(crate) runs: usize,
    /// Maximum number of discarded runs per row.
    pub(crate) throw_aways: usize,
    /// Length of a run.
    pub(crate) run: Duration,
}

/// Effort for quotable results.
pub(crate) const THOROUGH: Effort =
    Effort { runs: 7, throw_aways: 20, run: Duration::from_millis(100) };
/// Effort for a quick overview.
pub(crate) const QUICK: Effort =
    Effort { runs: 3, throw_aways: 6, run: Duration::from_millis(100) };

/// The decision that a limiter must return in every request of a run; any other is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Yes,
    No,
}

/// One thread of a run: its limiter and the keys of its requests.
#[derive(Clone, Copy)]
pub(crate) struct Worker<'a> {
    pub(crate) contender: &'a dyn Contender,
    pub(crate) order: &'a [String],
}

/// One contender at one point of the axes, and its runs.
struct Row<'a> {
    workers: Vec<Worker<'a>>,
    answer: Answer,
    requests: u64,
    /// Nanoseconds per decision of each counted run.
    nanos: Vec<f64>,
    thrown_away: usize,
    disturbed: usize,
}

/// Result of a row: nanoseconds per decision and thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// Number of counted runs in which a thread had to share its core.
    pub(crate) disturbed: usize,
}

impl Figure {
    /// Not measured.
    pub(crate) const UNKNOWN: Self =
        Self { median: f64::NAN, min: f64::NAN, max: f64::NAN, disturbed: 0 };
}

impl<'a> Row<'a> {
    /// Creates a row with one thread per worker, and determines the number of requests per run.
    fn calibrate(workers: Vec<Worker<'a>>, answer: Answer, effort: Effort) -> Result<Self> {
        let (nanos, thrown_away, disturbed) = (Vec::new(), 0, 0);
        let mut row = Row { workers, answer, requests: 10_000, nanos, thrown_away, disturbed };
        let wanted = effort.run.as_secs_f64() * 1e9;
        loop {
            let nanos = row.run()?.nanos;
            if nanos * as_float(row.requests) > wanted / 4.0 {
                row.requests = whole(wanted / nanos);
                return Ok(row);
            }
            row.requests *= 4;
        }
    }

    /// Makes one run and keeps it, unless it was disturbed and may be discarded.
    fn turn(&mut self, effort: Effort) -> Result<()> {
        loop {
            let run = self.run()?;
            let fair = run.share.is_none_or(|share| share >= FAIR_SHARE);
            if fair || self.thrown_away == effort.throw_aways {
                self.disturbed += usize::from(!fair);
                self.nanos.push(run.nanos);
                return Ok(());
            }
            self.thrown_away += 1;
        }
    }

    /// Median and range of the runs so far.
    fn figure(&self) -> Figure {
        summary(&self.nanos, self.disturbed)
    }

    fn run(&self) -> Result<Run> {
        let cores = machine::cores();
        let barrier = Barrier::new(self.workers.len());
        let work = |index: usize| {
            if let Some(core) = cores.get(index) {
                machine::pin(*core);
            }
            let Worker { contender, order } = self.workers[index];
            barrier.wait();
            let before = machine::processor_time();
            let stopwatch = Stopwatch::start();
            let allowed = contender.decide(order, self.requests);
            let wall = stopwatch.elapsed();
            let busy = machine::processor_time().zip(before).map(|(after, before)| after - before);
            (allowed, wall, busy)
        };
        let parts: Vec<_> = thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> =
                (0..self.workers.len()).map(|index| scope.spawn(move || work(index))).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        ensure!(parts.len() == self.workers.len(), "a thread of the benchmark panicked");
        let mut run = Run { nanos: 0.0, share: None };
        let expected = if self.answer == Answer::Yes { self.requests } else { 0 };
        for (allowed, wall, busy) in parts {
            ensure!(
                allowed == expected,
                "a contender allowed {allowed} of {}; results would not be comparable",
                self.requests
            );
            let nanos = wall.as_secs_f64() * 1e9 / as_float(self.requests);
            run.nanos += nanos / as_float(self.workers.len() as u64);
            let share = busy.map(|busy| busy.as_secs_f64() / wall.as_secs_f64());
            run.share = share.map(|share| run.share.map_or(share, |least| share.min(least)));
        }
        Ok(run)
    }
}

/// One run: time per decision, and the smallest share of a core that a thread got.
struct Run {
    nanos: f64,
    share: Option<f64>,
}

/// Median and range of runs.
pub(crate) fn summary(runs: &[f64], disturbed: usize) -> Figure {
    let mut sorted = runs.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
    let (last, middle) = (sorted.len().saturating_sub(1), sorted.len() / 2);
    let median = if sorted.len() % 2 == 1 {
        at(middle)
    } else {
        f64::midpoint(at(middle), at(middle.wrapping_sub(1)))
    };
    Figure { median, min: at(0), max: at(last), disturbed }
}

/// Percentiles of nanoseconds, in microseconds.
pub(crate) fn percentiles<const N: usize>(nanos: &mut [u64], wanted: [usize; N]) -> [f64; N] {
    nanos.sort_unstable();
    wanted.map(|percent| {
        // The smallest value that this percentage of values does not exceed.
        let rank = (nanos.len() * percent).div_ceil(100).max(1);
        nanos.get(rank - 1).map_or(f64::NAN, |&nanos| as_float(nanos) / 1e3)
    })
}

#[allow(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^52")]
pub(crate) fn as_float(count: u64) -> f64 {
    count as f64
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and small")]
fn whole(number: f64) -> u64 {
    number.max(1.0) as u64
}

/// Measures contenders on the same keys, interleaved by run, so that drift affects all equally.
pub(crate) fn measure_shared(
    contenders: &[Box<dyn Contender>],
    orders: &[Vec<String>],
    effort: Effort,
    progress: &ProgressBar,
) -> Result<Vec<Figure>> {
    measure_interleaved(shared_workers(contenders, orders), Answer::Yes, effort, progress)
}

/// The workers of contenders that all threads share, each with its own order of keys.
pub(crate) fn shared_workers<'a>(
    contenders: &'a [Box<dyn Contender>],
    orders: &'a [Vec<String>],
) -> Vec<Vec<Worker<'a>>> {
    let team = |contender: &'a dyn Contender| {
        orders.iter().map(|order| Worker { contender, order }).collect()
    };
    contenders.iter().map(|contender| team(contender.as_ref())).collect()
}

/// Measures contenders with their own workers and a given expected decision, interleaved by run.
pub(crate) fn measure_interleaved(
    teams: Vec<Vec<Worker<'_>>>,
    answer: Answer,
    effort: Effort,
    progress: &ProgressBar,
) -> Result<Vec<Figure>> {
    let rows = teams.into_iter().map(|workers| Row::calibrate(workers, answer, effort));
    let mut rows = rows.collect::<Result<Vec<_>>>()?;
    for _ in 0..effort.runs {
        for row in &mut rows {
            row.turn(effort)?;
            progress.inc(1);
        }
    }
    Ok(rows.iter().map(Row::figure).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_the_span_are_those_of_the_runs() {
        let figure = summary(&[3.0, 1.0, 9.0], 1);
        assert_eq!(figure, Figure { median: 3.0, min: 1.0, max: 9.0, disturbed: 1 });
        assert_eq!(summary(&[4.0, 1.0, 2.0, 9.0], 0).median, 3.0);
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let mut nanos: Vec<u64> = (1..=200).rev().map(|n| n * 1_000).collect();
        assert_eq!(percentiles(&mut nanos, [50, 99, 100]), [100.0, 198.0, 200.0]);
        assert_eq!(percentiles(&mut [7_000], [50, 99]), [7.0, 7.0]);
        assert!(percentiles(&mut [], [50])[0].is_nan());
    }

    struct Miser;

    impl Contender for Miser {
        fn decide(&self, _keys: &[String], requests: u64) -> u64 {
            requests - 1
        }
    }

    #[test]
    fn a_contender_with_another_answer_is_not_measured() {
        let workers = || vec![Worker { contender: &Miser, order: &[] }];
        assert!(Row::calibrate(workers(), Answer::Yes, QUICK).is_err());
        assert!(Row::calibrate(workers(), Answer::No, QUICK).is_err());
    }
}
