//! Searches the smallest capacity for each of several rates.
//!
//! For each rate, one pass finds the capacity that denies nothing. Then each pass replays several
//! capacities per rate, and the range between one that fails and one that suffices gets smaller,
//! until they are neighbours. So both were replayed: the capacity found, and the one below it. With
//! costs of one and lines in order, a larger capacity never denies more, and the capacity found is
//! the smallest of all. Otherwise that need not be so; then it is one that suffices while the next
//! smaller one does not.
//!
//! The arrival times of all candidates are in memory at once, 16 bytes per key and candidate. If
//! there are so many keys that this would take more than 256 MiB, there are more passes with fewer
//! candidates, but at least one candidate per pass.

use std::time::Duration;

use tidegate_core::{ExactTime, Policy, Rate, TokenBucket};

use crate::decide::admits;
use crate::error::ReplayError;
use crate::event::Event;
use crate::goal::{CountBy, DenyBelow};
use crate::policy::bucket;
use crate::progress::Progress;
use crate::spool::Spool;

/// Number of arrival times in memory: 256 MiB.
const MAX_STATES: usize = 16 * 1024 * 1024;
/// Capacities per rate and pass.
const MAX_STEPS: u64 = 7;
/// Number of rates.
const RATES: usize = 24;
const MINUTE: Duration = Duration::from_secs(60);

/// The smallest capacity that suffices at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrontierPoint {
    /// Rate in tokens per minute.
    pub per_minute: u64,
    /// The smallest capacity.
    pub bucket: TokenBucket,
    /// Number of requests it denies.
    pub denied: u64,
    /// Their cost.
    pub denied_cost: u64,
    /// The smallest capacity that denies nothing at this rate.
    pub denies_nothing: u64,
}

impl FrontierPoint {
    /// Returns what one key can spend in a minute: the capacity and a minute's refill.
    #[must_use]
    pub fn spendable_in_a_minute(&self) -> u128 {
        u128::from(self.bucket.capacity()) + u128::from(self.per_minute)
    }
}

/// Returns the rates to search, in tokens per minute, ascending: 1, 2, 3, 5, 7, 10, 20 and so on,
/// up to the first at which the busiest second of a key can go on forever, and at most 24.
#[must_use]
pub fn ladder(busiest_second: u64) -> Vec<u64> {
    let enough = u128::from(busiest_second) * 60;
    let powers = (0..19).map(|exponent| 10_u64.pow(exponent));
    let steps = powers.flat_map(|power| [1, 2, 3, 5, 7].map(|digit| digit * power));
    let mut steps: Vec<u64> = steps.collect();
    let count = steps.partition_point(|&step| u128::from(step) < enough) + 1;
    steps.truncate(count);
    steps.split_off(steps.len().saturating_sub(RATES))
}

/// Returns the point at which one key can spend least in a minute.
#[must_use]
pub fn best(points: &[FrontierPoint]) -> Option<usize> {
    let smallest = points
        .iter()
        .enumerate()
        .min_by_key(|(_, point)| (point.spendable_in_a_minute(), point.bucket.capacity()));
    smallest.map(|(index, _)| index)
}

/// Searches the smallest capacity for each rate, given in tokens per minute. A rate at which a full
/// bucket would take more than 100 years is left out.
///
/// # Errors
/// If the events cannot be read.
pub fn search(
    spool: &mut Spool,
    keys: usize,
    rates: &[u64],
    goal: DenyBelow,
    progress: &mut dyn Progress,
) -> Result<Vec<FrontierPoint>, ReplayError> {
    let mut passes = Passes { spool, keys, progress, max_states: MAX_STATES };
    let mut ranges = passes.ranges(rates)?;
    while passes.narrow(&mut ranges, goal)? {}
    let found = ranges.into_iter().map(|range| FrontierPoint {
        per_minute: range.per_minute,
        bucket: range.enough,
        denied: range.denied.requests,
        denied_cost: range.denied.cost,
        denies_nothing: range.denies_nothing,
    });
    Ok(found.collect())
}

/// The capacities at one rate that are still possible.
#[derive(Clone, Copy, Debug)]
struct Range {
    per_minute: u64,
    rate: Rate,
    /// A capacity that denies too much; zero at first.
    too_small: u64,
    /// One that does not.
    enough: TokenBucket,
    denied: Denied,
    denies_nothing: u64,
}

/// What a candidate denies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Denied {
    requests: u64,
    cost: u64,
}

struct Passes<'a> {
    spool: &'a mut Spool,
    keys: usize,
    progress: &'a mut dyn Progress,
    max_states: usize,
}

impl Passes<'_> {
    /// Returns the number of candidates whose arrival times fit into memory.
    fn candidates(&self) -> usize {
        (self.max_states / self.keys.max(1)).max(1)
    }

    /// Creates the ranges, from nothing to the capacity that denies nothing.
    fn ranges(&mut self, per_minute: &[u64]) -> Result<Vec<Range>, ReplayError> {
        let rates = per_minute.iter().filter_map(|&per_minute| {
            let rate = Rate::per(per_minute, MINUTE).ok()?;
            Some((per_minute, rate, candidate(rate, 1)?))
        });
        let rates: Vec<_> = rates.collect();
        let mut ranges = Vec::new();
        for rates in rates.chunks(self.candidates()) {
            let buckets: Vec<TokenBucket> = rates.iter().map(|&(_, _, bucket)| bucket).collect();
            let largest = self.largest_spans(&buckets)?;
            for (&(per_minute, rate, bucket), span) in rates.iter().zip(largest) {
                let denies_nothing = bucket.tokens_ceil(span).max(1);
                if let Some(enough) = candidate(rate, denies_nothing) {
                    let (too_small, denied) = (0, Denied::default());
                    let range =
                        Range { per_minute, rate, too_small, enough, denied, denies_nothing };
                    ranges.push(range);
                }
            }
        }
        Ok(ranges)
    }

    /// Returns, for each rate, how far ahead of the present an arrival time ever is if nothing is
    /// denied.
    fn largest_spans(&mut self, buckets: &[TokenBucket]) -> Result<Vec<ExactTime>, ReplayError> {
        let mut largest = vec![ExactTime::ZERO; buckets.len()];
        let mut states = vec![ExactTime::ZERO; buckets.len() * self.keys];
        self.run("finding the capacities that deny nothing", |event| {
            let first = event.key as usize * buckets.len();
            let states = &mut states[first..first + buckets.len()];
            for ((bucket, tat), largest) in buckets.iter().zip(states).zip(&mut largest) {
                let ahead = spend_anyway(bucket, tat, event);
                *largest = ahead.max(*largest);
            }
        })?;
        Ok(largest)
    }

    /// Replays capacities inside each range. Returns whether any range has become smaller.
    fn narrow(&mut self, ranges: &mut [Range], goal: DenyBelow) -> Result<bool, ReplayError> {
        let open = ranges.iter().filter(|range| range.too_small + 1 < range.enough.capacity());
        let steps = (self.candidates() / open.count().max(1)) as u64;
        let steps = steps.clamp(1, MAX_STEPS);
        let mut candidates = Vec::new();
        for (index, range) in ranges.iter().enumerate() {
            let buckets = between(range.too_small, range.enough.capacity(), steps);
            let buckets = buckets.filter_map(|capacity| candidate(range.rate, capacity));
            candidates.extend(buckets.map(|bucket| (index, bucket)));
        }
        let most = self.candidates();
        for group in candidates.chunks(most) {
            let buckets: Vec<TokenBucket> = group.iter().map(|&(_, bucket)| bucket).collect();
            let (denied, total) = self.evaluate(&buckets)?;
            for (&(index, bucket), denied) in group.iter().zip(denied) {
                let range = &mut ranges[index];
                let suffices = match goal.counted() {
                    CountBy::Requests => goal.holds(denied.requests, total.requests),
                    CountBy::Cost => goal.holds(denied.cost, total.cost),
                };
                let capacity = bucket.capacity();
                if suffices && capacity < range.enough.capacity() {
                    (range.enough, range.denied) = (bucket, denied);
                } else if !suffices && capacity < range.enough.capacity() {
                    range.too_small = range.too_small.max(capacity);
                }
            }
        }
        Ok(!candidates.is_empty())
    }

    /// Replays the events on each bucket. Returns what each denies, and the total of all events.
    fn evaluate(&mut self, buckets: &[TokenBucket]) -> Result<(Vec<Denied>, Denied), ReplayError> {
        let mut denied = vec![Denied::default(); buckets.len()];
        let mut total = Denied::default();
        let mut states = vec![ExactTime::ZERO; buckets.len() * self.keys];
        self.run("searching", |event| {
            total.add(event.cost);
            let first = event.key as usize * buckets.len();
            let states = &mut states[first..first + buckets.len()];
            for ((bucket, tat), denied) in buckets.iter().zip(states).zip(&mut denied) {
                if !admits(bucket, tat, event.cost, event.time) {
                    denied.add(event.cost);
                }
            }
        })?;
        Ok((denied, total))
    }

    fn run(&mut self, what: &str, each: impl FnMut(Event)) -> Result<(), ReplayError> {
        self.progress.start(what, self.spool.events());
        let progress = &mut *self.progress;
        self.spool.pass(&mut |events| progress.advance(events), each)
    }
}

impl Denied {
    fn add(&mut self, cost: u64) {
        self.requests += 1;
        self.cost = self.cost.saturating_add(cost);
    }
}

/// Spends whether or not the cost fits. Returns how far ahead of the present the arrival time is
/// afterwards: a capacity that refills in this span admits the event.
#[inline]
pub(crate) fn spend_anyway(bucket: &TokenBucket, tat: &mut ExactTime, event: Event) -> ExactTime {
    if event.cost == 0 {
        return ExactTime::ZERO;
    }
    *tat = bucket.spend(*tat, event.cost, event.time);
    bucket.charged_since(*tat, ExactTime::from_nanos(event.time.as_nanos()))
}

/// Builds a candidate; `None` if it would take more than 100 years to fill.
fn candidate(rate: Rate, capacity: u64) -> Option<TokenBucket> {
    let policy = Policy::rate(rate).capacity(capacity);
    bucket(policy.max_debt(0).max_horizon(Duration::ZERO)).ok()
}

/// Returns up to `steps` numbers strictly between two, evenly spaced, ascending.
fn between(low: u64, high: u64, steps: u64) -> impl Iterator<Item = u64> {
    let gap = high.saturating_sub(low);
    let steps = steps.min(gap.saturating_sub(1));
    (1..=steps).map(move |step| {
        let offset = u128::from(gap) * u128::from(step) / u128::from(steps + 1);
        // Below the gap, which has 64 bits.
        low + u64::try_from(offset).unwrap_or(gap)
    })
}

#[cfg(test)]
mod tests {
    use tidegate_core::Time;

    use super::*;
    use crate::event::EventSink as _;

    #[test]
    fn the_ladder_ends_where_the_busiest_second_can_go_on() {
        assert_eq!(ladder(0), [1]);
        assert_eq!(ladder(1), [1, 2, 3, 5, 7, 10, 20, 30, 50, 70]);
        let steps = ladder(5_000);
        assert_eq!((steps.len(), steps[23]), (RATES, 300_000));
        assert_eq!(ladder(u64::MAX).len(), RATES);
    }

    #[test]
    fn numbers_between_are_inside_and_ascend() {
        for (low, high, steps) in [(0, 1, 7), (0, 2, 7), (3, 9, 7), (0, 1_000, 7), (5, u64::MAX, 3)]
        {
            let found: Vec<u64> = between(low, high, steps).collect();
            assert!(found.iter().all(|&number| number > low && number < high), "{found:?}");
            assert!(found.is_sorted_by(|a, b| a < b), "{found:?}");
            assert_eq!(found.is_empty(), high - low < 2);
        }
    }

    /// With many keys there are more passes, with the same result.
    #[test]
    fn memory_does_not_change_the_result() {
        let mut spool = Spool::new().unwrap();
        for n in 0..2_000_u64 {
            let key = u32::try_from(n * n % 17).unwrap();
            let time = Time::from_nanos(n / 40 * 5_000_000_000);
            spool.event(Event { key, time, cost: 1 }).unwrap();
        }
        let goal: DenyBelow = "2%".parse().unwrap();
        let rates = [1, 5, 30, 100, 1_000];
        let mut results = Vec::new();
        for max_states in [1, 17 * 7, MAX_STATES] {
            let mut passes = Passes { spool: &mut spool, keys: 17, progress: &mut (), max_states };
            let mut ranges = passes.ranges(&rates).unwrap();
            while passes.narrow(&mut ranges, goal).unwrap() {}
            results.push(ranges.iter().map(|range| range.enough.capacity()).collect::<Vec<_>>());
        }
        assert_eq!(results[0].len(), rates.len());
        assert!(
            results[0][0] > 1 && results.iter().all(|result| *result == results[0]),
            "{results:?}"
        );
    }
}
