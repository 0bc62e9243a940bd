//! The figures of one run.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use tidegate_sim::{Limits, Simulator};

use super::scenario::Tenant;
use crate::measure::as_float;

/// What the agents saw, as their script prints it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Seen {
    /// Until the tenants with work had their last answer.
    pub(super) seconds: f64,
    /// Responses with status 429, including those that the SDK retried.
    throttled: u64,
    /// Calls whose retries were used up.
    failed: u64,
    /// Tenant and time of each answer.
    answers: Vec<(String, f64)>,
    /// Seconds that the calls of the quiet tenant took, failures included.
    quiet: Vec<f64>,
}

/// The figures of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Figures {
    pub(super) throttled: u64,
    pub(super) throttled_upstream: u64,
    pub(super) failed: u64,
    /// Share of the work that was done.
    pub(super) done: f64,
    pub(super) quota_used: f64,
    pub(super) seconds: f64,
    /// Time by the shortest time for what was answered.
    pub(super) ratio: f64,
    /// Jain's index of the tenants with work, while all had work.
    pub(super) fairness: f64,
    /// Median time of a call of the quiet tenant, by that when it is alone.
    pub(super) slowdown: f64,
    /// The slowest of these calls, by the same.
    pub(super) worst_slowdown: f64,
}

impl Figures {
    pub(super) fn new(
        seen: &Seen,
        simulator: &Simulator,
        limits: &Limits,
        tenants: &[Tenant],
        alone: f64,
    ) -> Self {
        let ledger = simulator.ledger();
        let answered = ledger.answered();
        let took = Duration::from_secs_f64(seen.seconds);
        let work: u32 = tenants.iter().map(|tenant| tenant.calls).sum();
        Self {
            throttled: seen.throttled,
            throttled_upstream: ledger.throttled(),
            failed: seen.failed,
            done: as_float(seen.answers.len() as u64) / f64::from(work),
            quota_used: limits.used_share(answered, took),
            seconds: seen.seconds,
            ratio: seen.seconds / limits.shortest_time(answered).as_secs_f64(),
            fairness: seen.fairness(tenants),
            slowdown: seen.quiet_median() / alone,
            worst_slowdown: seen.quiet.iter().copied().fold(f64::NAN, f64::max) / alone,
        }
    }
}

impl Seen {
    /// Median time of the quiet tenant's calls; not a number if there were none.
    pub(super) fn quiet_median(&self) -> f64 {
        let mut times = self.quiet.clone();
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// Jain's index of the answers per tenant, until the first tenant has all of its answers.
    fn fairness(&self, tenants: &[Tenant]) -> f64 {
        let mut counts: BTreeMap<&str, u32> =
            tenants.iter().map(|tenant| (tenant.name, 0)).collect();
        for (tenant, _) in &self.answers {
            let Some(count) = counts.get_mut(tenant.as_str()) else { continue };
            *count += 1;
            if tenants.iter().any(|it| it.name == tenant && it.calls == *count) {
                break;
            }
        }
        jain(&counts.into_values().map(f64::from).collect::<Vec<_>>())
    }
}

/// Jain's index: 1 if all shares are equal, 1/n if one has everything.
fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (as_float(shares.len() as u64) * squares)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::scenario::{Plan, QUICK};

    #[test]
    fn the_index_is_one_for_equal_shares() {
        assert!((jain(&[5.0, 5.0, 5.0]) - 1.0).abs() < 1e-9);
        assert!((jain(&[9.0, 0.0, 0.0]) - 1.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn fairness_counts_only_while_all_have_work() {
        let tenants = Plan::new(QUICK, 1, String::new()).tenants;
        let [large, medium, small] = [60, 30, 30];
        let mut answers = Vec::new();
        for (tenant, count) in tenants.iter().rev().zip([small, medium, large]) {
            answers.extend((0..count).map(|_| (tenant.name.to_owned(), 0.0)));
        }
        // What comes after the last call of the largest does not count.
        answers.extend((0..30).map(|_| ("small".to_owned(), 1.0)));
        let seen =
            Seen { seconds: 1.0, throttled: 0, failed: 0, answers, quiet: vec![3.0, 1.0, 2.0] };
        let expected = 120.0 * 120.0 / (3.0 * (3_600.0 + 900.0 + 900.0));
        assert!((seen.fairness(&tenants) - expected).abs() < 1e-9);
        assert_eq!(seen.quiet_median(), 2.0);
    }
}
