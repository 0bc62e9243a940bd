//! Queries for tests: how much of the quota was used, and how dense retries were.
//!
//! Results are integers; only reports use ratios.

use std::ops::Range;
use std::time::Duration;

use super::{Ledger, LedgerEntry};
use crate::calendar::{MINUTE, nanos};
use crate::limits::Limits;
use crate::limits::charging::CallCharge;
use crate::limits::quota::Dimension;

/// Use of the binding limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// The limit with the highest relative use.
    pub dimension: Dimension,
    /// Charge of the admitted calls that arrived in the window. Rejected calls are excluded, even
    /// if the provider counts them.
    pub used: u64,
    /// Refill during the window, rounded down.
    pub allowed: u64,
}

impl Usage {
    /// Returns the used share of the quota. It can exceed 1, because a bucket may start full.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "the ratio is only for reports")]
    pub fn ratio(&self) -> f64 {
        self.used as f64 / self.allowed.max(1) as f64
    }
}

/// Distribution of retries over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryDistribution {
    /// Number of retries.
    pub retries: usize,
    /// Time of the first retry.
    pub first: Duration,
    /// Time of the last retry.
    pub last: Duration,
    /// Shortest time between two consecutive retries; zero if there was only one.
    pub closest: Duration,
    /// Maximum number of retries within any 100 ms.
    pub densest: usize,
}

impl Ledger {
    /// Returns the distribution of an account's retries in a window; `None` if there were none, or
    /// if entries of the window were evicted.
    #[must_use]
    pub fn retry_distribution(
        &self,
        account: &str,
        window: Range<Duration>,
    ) -> Option<RetryDistribution> {
        let mut instants = self.in_window(&window, |entry| {
            (entry.is_retry && entry.account.as_deref() == Some(account)).then_some(entry.at)
        })?;
        // Threads may record calls out of order.
        instants.sort_unstable();
        let (first, last) = (*instants.first()?, *instants.last()?);
        let gaps = instants.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        let dense = |(index, start): (usize, &Duration)| {
            let end = *start + Duration::from_millis(100);
            instants[index..].iter().take_while(|instant| **instant < end).count()
        };
        Some(RetryDistribution {
            retries: instants.len(),
            first,
            last,
            closest: gaps.min().unwrap_or_default(),
            densest: instants.iter().enumerate().map(dense).max().unwrap_or(0),
        })
    }

    /// Returns the use of a pool's binding limit in a window.
    pub(crate) fn usage(
        &self,
        pool: usize,
        limits: &Limits,
        window: &Range<Duration>,
    ) -> Option<Usage> {
        let charges = self.in_window(window, |entry| {
            let is_use = entry.pool == Some(pool) && entry.refusal.is_none();
            is_use.then_some(entry.charged)
        })?;
        let length = nanos(window.end.saturating_sub(window.start));
        let sum =
            |part: fn(&CallCharge) -> u64| charges.iter().map(part).fold(0, u64::saturating_add);
        let candidates = [
            (Dimension::Requests, limits.requests, sum(|charge| charge.requests)),
            (Dimension::Tokens, limits.tokens, sum(|charge| charge.total())),
            (Dimension::InputTokens, limits.input, sum(|charge| charge.input)),
            (Dimension::OutputTokens, limits.output, sum(|charge| charge.output)),
        ];
        let usages = candidates.into_iter().filter_map(|(dimension, limit, used)| {
            let allowed = u128::from(limit?) * u128::from(length) / u128::from(MINUTE);
            let allowed = u64::try_from(allowed).unwrap_or(u64::MAX);
            Some(Usage { dimension, used, allowed })
        });
        // Compare products instead of quotients, to avoid rounding.
        usages.reduce(|busiest, next| {
            let above = u128::from(next.used) * u128::from(busiest.allowed)
                > u128::from(busiest.used) * u128::from(next.allowed);
            if above { next } else { busiest }
        })
    }

    /// Maps the entries that arrived in a window; `None` if some were evicted.
    fn in_window<T>(
        &self,
        window: &Range<Duration>,
        part: impl Fn(&LedgerEntry) -> Option<T>,
    ) -> Option<Vec<T>> {
        let state = self.lock();
        let oldest = state.entries.front();
        if oldest.is_some_and(|entry| entry.number > 1 && entry.at >= window.start) {
            return None;
        }
        let inside = state.entries.iter().filter(|entry| window.contains(&entry.at));
        Some(inside.filter_map(part).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{CallEnding, entry};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn binding_limit_is_the_most_used_one() {
        let ledger = Ledger::new(100);
        for second in 0..120 {
            let number = ledger.open(entry(SECOND * second, 0));
            ledger.update(number, |entry| {
                entry.charged = CallCharge { requests: 1, input: 60, output: 30 };
            });
        }
        let limits = Limits::new().requests_per_minute(120).tokens_per_minute(6_000);
        // Entries of the first twenty seconds were evicted.
        assert_eq!(ledger.usage(0, &limits, &(Duration::ZERO..SECOND * 60)), None);
        let usage = ledger.usage(0, &limits, &(SECOND * 60..SECOND * 120)).unwrap();
        let expected = Usage { dimension: Dimension::Tokens, used: 5_400, allowed: 6_000 };
        assert_eq!(usage, expected);
        assert!((usage.ratio() - 0.9).abs() < 1e-9);
        assert_eq!(ledger.usage(0, &Limits::new(), &(SECOND * 60..SECOND * 120)), None);
        let elsewhere = ledger.usage(1, &limits, &(SECOND * 60..SECOND * 120)).unwrap();
        assert_eq!(elsewhere.used, 0);
    }

    #[test]
    fn retry_storm_is_dense() {
        let ledger = Ledger::new(100);
        for fingerprint in 0..4 {
            let number = ledger.open(entry(Duration::ZERO, fingerprint));
            ledger.close(number, Duration::ZERO, CallEnding::Refused);
        }
        let window = SECOND..SECOND * 100;
        assert_eq!(ledger.retry_distribution("main", window.clone()), None);
        for (fingerprint, millis) in [(0, 60_000), (1, 60_040), (2, 60_099), (3, 61_000)] {
            ledger.open(entry(Duration::from_millis(millis), fingerprint));
        }
        let spread = ledger.retry_distribution("main", window.clone()).unwrap();
        assert_eq!((spread.retries, spread.densest), (4, 3));
        assert_eq!(spread.closest, Duration::from_millis(40));
        assert_eq!(spread.last - spread.first, SECOND);
        assert_eq!(ledger.retry_distribution("other", window), None);
    }
}
