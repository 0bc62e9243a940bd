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

/// Length of a run.
const RUN: Duration = Duration::from_millis(100);
/// The share of its core that a thread must have had.
const FAIR_SHARE: f64 = 0.97;

/// How much patience to spend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Runs that count, per row.
    pub(crate) runs: usize,
    /// Runs that may be thrown away, per row.
    pub(crate) throw_aways: usize,
}

/// For figures to quote.
pub(crate) const THOROUGH: Effort = Effort { runs: 7, throw_aways: 20 };
/// For a first look.
pub(crate) const QUICK: Effort = Effort { runs: 3, throw_aways: 6 };

/// One contender at one point of the axes, and the runs it has had.
pub(crate) struct Row<'a> {
    contender: &'a dyn Contender,
    orders: &'a [Vec<String>],
    requests: u64,
    /// Nanoseconds per decision of each run that counted.
    nanos: Vec<f64>,
    thrown_away: usize,
    disturbed: usize,
}

/// What a row came to: nanoseconds per decision and thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// Runs that counted although a thread had to share its core.
    pub(crate) disturbed: usize,
}

impl<'a> Row<'a> {
    /// A row with one thread for each order; finds out how many requests make a run.
    pub(crate) fn calibrate(
        contender: &'a dyn Contender,
        orders: &'a [Vec<String>],
    ) -> Result<Self> {
        let row = |requests| Row {
            contender,
            orders,
            requests,
            nanos: Vec::new(),
            thrown_away: 0,
            disturbed: 0,
        };
        let mut requests = 10_000;
        loop {
            let nanos = row(requests).run()?.nanos;
            let length = nanos * as_float(requests);
            let wanted = RUN.as_secs_f64() * 1e9;
            if length > wanted / 4.0 {
                return Ok(row(whole(wanted / nanos)));
            }
            requests *= 4;
        }
    }

    /// Makes one run and keeps it, unless it was disturbed and there is patience left.
    pub(crate) fn turn(&mut self, effort: Effort) -> Result<()> {
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

    /// The median and the span of the runs so far.
    pub(crate) fn figure(&self) -> Figure {
        summary(&self.nanos, self.disturbed)
    }

    fn run(&self) -> Result<Run> {
        let cores = machine::cores();
        let barrier = Barrier::new(self.orders.len());
        let work = |index: usize| {
            if let Some(core) = cores.get(index) {
                machine::pin(*core);
            }
            barrier.wait();
            let before = machine::processor_time();
            let stopwatch = Stopwatch::start();
            let allowed = self.contender.decide(&self.orders[index], self.requests);
            let wall = stopwatch.elapsed();
            let busy = machine::processor_time().zip(before).map(|(after, before)| after - before);
            (allowed, wall, busy)
        };
        let parts: Vec<_> = thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> =
                (0..self.orders.len()).map(|index| scope.spawn(move || work(index))).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        ensure!(parts.len() == self.orders.len(), "a thread of the benchmark panicked");
        let mut run = Run { nanos: 0.0, share: None };
        for (allowed, wall, busy) in parts {
            ensure!(allowed == self.requests, "a contender denied; the figures would not compare");
            let nanos = wall.as_secs_f64() * 1e9 / as_float(self.requests);
            run.nanos += nanos / as_float(self.orders.len() as u64);
            let share = busy.map(|busy| busy.as_secs_f64() / wall.as_secs_f64());
            run.share = share.map(|share| run.share.map_or(share, |least| share.min(least)));
        }
        Ok(run)
    }
}

/// One run: time per decision, and the smallest share that a thread had of its core.
struct Run {
    nanos: f64,
    share: Option<f64>,
}

/// The median and the span of runs.
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
        // The smallest value that so many per cent do not exceed.
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

/// Measures contenders on the same keys, run by run in turns, so that drift hits all alike.
pub(crate) fn in_turns(
    contenders: &[Box<dyn Contender>],
    orders: &[Vec<String>],
    effort: Effort,
    progress: &ProgressBar,
) -> Result<Vec<Figure>> {
    let rows = contenders.iter().map(|contender| Row::calibrate(contender.as_ref(), orders));
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
    fn a_contender_that_denies_is_not_measured() {
        assert!(Row::calibrate(&Miser, &[vec!["a".to_owned()]]).is_err());
    }
}
