//! Suggests limits from the traffic of a log.
//!
//! The rate of a key is the cost of its busiest minute, by the clock, per minute. Its burst is the
//! smallest capacity that denies it nothing at that rate. A choice takes the same percentile of the
//! rates and of the bursts of all keys (the smallest value that is not exceeded by that share of
//! the keys), and is then replayed to say what it would have denied. The largest rate with the
//! largest burst denies nothing.
//!
//! A rate that cannot be represented, above 4 billion per minute, is rounded up to one that can.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_core::{ExactTime, Policy, Rate, TokenBucket};

use crate::busiest::BusiestWindows;
use crate::distribution::nearest_rank;
use crate::error::ReplayError;
use crate::event::EventSink as _;
use crate::policy::{NamedPolicy, bucket};
use crate::progress::Progress;
use crate::replay::{Replay, Totals};
use crate::search::spend_anyway;
use crate::spool::Spool;

const MINUTE: Duration = Duration::from_secs(60);

/// A choice of a limit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Choice {
    /// How it was chosen, such as `p99`.
    pub name: &'static str,
    /// The limit.
    pub bucket: TokenBucket,
    /// What it would have decided.
    pub totals: Totals,
}

/// Choices of a limit, from strict to generous.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Suggestion {
    /// The choices.
    pub choices: Vec<Choice>,
    /// Index of the choice to start with: p99 and half as much again.
    pub recommended: usize,
}

/// Name, percentile, and the numerator of the headroom in halves.
const CHOICES: [(&str, u64, u64); 5] =
    [("p50", 50, 2), ("p90", 90, 2), ("p99", 99, 2), ("p99+50%", 99, 3), ("max", 100, 2)];
const RECOMMENDED: usize = 3;

/// Returns a sink that must see all events that are spooled, for [`suggest`].
#[must_use]
pub fn busiest_minutes() -> BusiestWindows {
    BusiestWindows::new(MINUTE)
}

/// Computes bursts in one pass, and what each choice denies in another.
///
/// # Errors
/// If the events cannot be read.
pub fn suggest(
    spool: &mut Spool,
    minutes: &BusiestWindows,
    progress: &mut dyn Progress,
) -> Result<Suggestion, ReplayError> {
    let mut rates: Vec<u64> = minutes.largest().collect();
    let mut bursts = bursts(spool, &rates, progress)?;
    rates.sort_unstable();
    bursts.sort_unstable();
    let mut policies = Vec::new();
    for (name, percent, halves) in CHOICES {
        let with_headroom = |value: u64| {
            let halves = (u128::from(value) * u128::from(halves)).div_ceil(2);
            u64::try_from(halves).unwrap_or(u64::MAX).max(1)
        };
        let capacity = with_headroom(percentile(&bursts, percent));
        let rate = rate_of(with_headroom(percentile(&rates, percent)));
        let bucket = bucket(Policy::rate(rate).capacity(capacity).max_debt(0))?;
        policies.push(NamedPolicy { name: name.to_owned(), bucket });
    }
    let mut replay = Replay::new(policies.clone(), Duration::ZERO);
    progress.start("replaying the choices", spool.events());
    spool.pass(&mut |events| progress.advance(events), |event| {
        // A replay keeps its counts in memory, which does not fail.
        let _ = replay.event(event);
    })?;
    let choices = CHOICES.iter().zip(policies).zip(replay.totals());
    let choices = choices.map(|(((name, ..), policy), totals)| Choice {
        name,
        bucket: policy.bucket,
        totals: totals.clone(),
    });
    Ok(Suggestion { choices: choices.collect(), recommended: RECOMMENDED })
}

/// Returns the burst of each key at its rate.
fn bursts(
    spool: &mut Spool,
    rates: &[u64],
    progress: &mut dyn Progress,
) -> Result<Vec<u64>, ReplayError> {
    // Keys of the same rate share a bucket, so that a key has a number only.
    let mut numbers: BTreeMap<u64, u32> = BTreeMap::new();
    let mut buckets = Vec::new();
    let mut bucket_of = Vec::with_capacity(rates.len());
    for &rate in rates {
        let number = match numbers.get(&rate) {
            Some(&number) => number,
            None => {
                buckets.push(bucket(Policy::rate(rate_of(rate)).capacity(1).max_debt(0))?);
                let number = u32::try_from(numbers.len()).map_err(|_| ReplayError::TooManyKeys)?;
                numbers.insert(rate, number);
                number
            }
        };
        bucket_of.push(number);
    }
    let mut states = vec![(ExactTime::ZERO, ExactTime::ZERO); rates.len()];
    progress.start("finding the bursts", spool.events());
    spool.pass(&mut |events| progress.advance(events), |event| {
        let (tat, largest) = &mut states[event.key as usize];
        let bucket = &buckets[bucket_of[event.key as usize] as usize];
        *largest = spend_anyway(bucket, tat, event).max(*largest);
    })?;
    let bursts = states.iter().zip(&bucket_of);
    Ok(bursts.map(|((_, span), &number)| buckets[number as usize].tokens_ceil(*span)).collect())
}

/// Returns the smallest of the sorted values that is not exceeded by `percent` of them.
fn percentile(sorted: &[u64], percent: u64) -> u64 {
    let rank = nearest_rank(sorted.len() as u64, percent);
    let index = usize::try_from(rank).unwrap_or(usize::MAX).saturating_sub(1);
    sorted.get(index).copied().unwrap_or(0)
}

/// Returns the rate of `cost` per minute, or the next higher one that can be represented. Costs up
/// to 4 billion always can.
fn rate_of(cost: u64) -> Rate {
    let cost = cost.max(1);
    let mut step = 1_u64;
    loop {
        let rounded = cost.div_ceil(step).checked_mul(step).unwrap_or(cost / step * step);
        match Rate::per(rounded, MINUTE) {
            Ok(rate) => return rate,
            // A multiple of 10^10 per minute is N per 6 ns, and at most 2^64 / 10^10 is below 2^32.
            Err(_) => step = step.saturating_mul(10),
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::Time;

    use super::*;
    use crate::event::Event;

    fn suggestion(events: &[(u32, u64, u64)]) -> Suggestion {
        let (mut spool, mut minutes) = (Spool::new().unwrap(), busiest_minutes());
        for &(key, millis, cost) in events {
            let event = Event { key, time: Time::from_nanos(millis * 1_000_000), cost };
            (&mut spool, &mut minutes).event(event).unwrap();
        }
        suggest(&mut spool, &minutes, &mut ()).unwrap()
    }

    fn numbers(choice: &Choice) -> (u64, String, u64, u64) {
        let rate = crate::policy::rate_text(choice.bucket.rate());
        (choice.bucket.capacity(), rate, choice.totals.denied, choice.totals.keys_denied)
    }

    #[test]
    fn choices_and_what_they_deny() {
        // Ninety-nine keys make one request; one makes 60 at once and 60 in the next minute.
        let mut events: Vec<_> = (0..99).map(|key| (key, u64::from(key), 1)).collect();
        events.extend((0..60).map(|_| (99, 30_000, 1)));
        events.extend((0..60).map(|second| (99, 60_000 + second * 1_000, 1)));
        let found = suggestion(&events);
        assert_eq!(numbers(&found.choices[0]), (1, "1/min".into(), 118, 1));
        assert_eq!(numbers(&found.choices[2]), (1, "1/min".into(), 118, 1));
        assert_eq!(numbers(&found.choices[3]), (2, "2/min".into(), 116, 1));
        assert_eq!(numbers(&found.choices[4]), (60, "1/s".into(), 0, 0));
        assert_eq!(found.recommended, 3);
    }

    #[test]
    fn large_costs_have_a_rate() {
        for cost in [0, 1, 59, 4_294_967_295, 4_294_967_291 * 60 + 1, u64::MAX - 1, u64::MAX] {
            let rate = rate_of(cost);
            let per_minute = u128::from(rate.tokens()) * 60_000_000_000 / u128::from(rate.period());
            assert!(
                per_minute >= u128::from(cost.min(u64::MAX - u64::MAX % 10_000_000_000)),
                "{cost}"
            );
        }
        let found = suggestion(&[(0, 0, u64::MAX), (0, 1, u64::MAX), (1, 0, 0)]);
        assert_eq!(found.choices[4].totals.admitted_cost, u64::MAX);
    }
}
