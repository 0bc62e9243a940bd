//! How providers stand, for metrics and people.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidegate_llm::Scope;
use tidegate_llm::breaker::BreakerStatus;
use tidegate_llm::rate_limit::Standing;
use tidegate_providers::{Dimension, Provider};
use tokio::time::Instant;

use crate::state::provider_state::ProviderState;

/// How one provider stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The provider.
    pub provider: Provider,
    /// Calls that are held.
    pub queued: usize,
    /// For how long the first of them is.
    pub oldest_wait: Duration,
    /// Calls that are at the provider, until the ends of their answers.
    pub in_flight: u64,
    /// How many may be, in the busiest queue; `None` if there is no bound.
    pub concurrency: Option<u64>,
    /// What calls of the last minute waited for, if they did: a dimension, `concurrency`,
    /// `throttled` or `min_interval`.
    pub binding: Option<&'static str>,
    /// How much of each quota is used.
    pub quotas: Vec<QuotaUse>,
    /// How many keys are known.
    pub accounts: usize,
    /// Whether the provider is left alone.
    pub breaker: BreakerStatus,
}

/// How much of a quota is used, by the account that uses most of it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct QuotaUse {
    /// What it counts.
    pub dimension: Dimension,
    /// The part of what was allowed since it was looked at before, or in the last minute: 1 is all
    /// of it. Zero when it is looked at for the first time.
    pub ratio: f64,
    /// What was charged so far, of all accounts together, less what was given back.
    pub charged: u64,
}

/// How long a sample is compared with.
const WINDOW: Duration = Duration::from_secs(60);
/// Samples are at least so far apart.
const STEP: Duration = Duration::from_secs(5);
/// Limits of one account that are followed.
const MAX_FOLLOWED: usize = 256;

/// What was charged to a limit, and when it was looked at.
type Looks = VecDeque<(Instant, u64)>;

/// What was charged to an account when it was looked at.
#[derive(Debug, Default)]
pub(crate) struct Samples(Mutex<HashMap<(Scope, Dimension), Looks>>);

impl Samples {
    /// The use of each limit since the oldest sample of the last minute.
    fn look(&self, standings: &[Standing], now: Instant) -> Vec<QuotaUse> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut uses = Vec::new();
        for standing in standings {
            for dimension in Dimension::ALL {
                let same = standing.charged.iter().filter(|one| one.dimension == dimension);
                let most = same.filter_map(|one| Some((one.charged, one.per_minute?))).max();
                let Some((charged, per_minute)) = most else { continue };
                let key = (standing.scope.clone(), dimension);
                if known.len() >= MAX_FOLLOWED && !known.contains_key(&key) {
                    continue;
                }
                let samples = known.entry(key).or_default();
                let ratio = used(samples, charged, per_minute, now).unwrap_or(0.0);
                uses.push(QuotaUse { dimension, ratio, charged });
            }
        }
        uses
    }
}

/// Adds a sample, and compares it with the oldest.
fn used(samples: &mut Looks, charged: u64, per_minute: u64, now: Instant) -> Option<f64> {
    while samples.front().is_some_and(|(when, _)| now - *when > WINDOW) && samples.len() > 1 {
        samples.pop_front();
    }
    let first = samples.front().copied();
    if samples.back().is_none_or(|(when, _)| now - *when >= STEP) {
        samples.push_back((now, charged));
    }
    let (when, before) = first?;
    let (span, gone) = (now - when, charged.saturating_sub(before));
    let allowed = to_f64(per_minute) * span.as_secs_f64() / 60.0;
    (allowed > 0.0).then(|| to_f64(gone) / allowed)
}

#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
fn to_f64(number: u64) -> f64 {
    number as f64
}

/// How a provider stands now.
pub(crate) fn of(provider_state: &ProviderState) -> Status {
    let (queued, oldest_wait) = provider_state.queued();
    let entries = provider_state.accounts().entries();
    let (mut in_flight, mut busiest) = (0, None);
    let mut quotas: Vec<QuotaUse> = Vec::new();
    let now = Instant::now();
    for entry in &entries {
        let standings = entry.account.standings();
        for standing in &standings {
            in_flight += standing.gauges.in_flight;
            let load = (standing.gauges.in_flight, standing.gauges.concurrency);
            busiest = busiest.max(Some(load));
        }
        for used in entry.samples.look(&standings, now) {
            match quotas.iter_mut().find(|known| known.dimension == used.dimension) {
                Some(known) => {
                    known.ratio = known.ratio.max(used.ratio);
                    known.charged = known.charged.saturating_add(used.charged);
                }
                None => quotas.push(used),
            }
        }
    }
    Status {
        provider: provider_state.provider().clone(),
        queued,
        oldest_wait,
        in_flight,
        concurrency: busiest.and_then(|(_, limit)| limit),
        binding: provider_state.binding(),
        quotas,
        accounts: entries.len(),
        breaker: provider_state.breaker().status(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_is_of_the_last_minute_or_since_the_first_look() {
        let (mut samples, start) = (VecDeque::new(), Instant::now());
        let mut look = |seconds, charged| {
            used(&mut samples, charged, 600, start + Duration::from_secs(seconds))
        };
        assert_eq!(look(0, 1_000), None, "nothing to compare with");
        assert_eq!(look(6, 1_030), Some(0.5));
        assert_eq!(look(60, 1_600), Some(1.0));
        // The first look is too long ago now; the second is not.
        assert_eq!(look(66, 1_630), Some(1.0));
        assert_eq!(look(66, 0), Some(0.0), "what was given back is no use");
    }
}
