//! Queued calls by tenant. A tenant is forgotten with its last waiting call, which bounds memory.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::state::queue_limits::QueueCounts;

/// Arrival time of a call, and a number that distinguishes calls of the same instant.
pub(crate) type Arrival = (Instant, u64);

/// Waiting calls of one tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantQueue {
    /// The tenant, as named by the caller, or its address and a hash of its key.
    pub tenant: Arc<str>,
    /// Number of waiting calls.
    pub waiting: usize,
    /// Wait of the oldest call.
    pub oldest_wait: Duration,
}

/// The tenants with the most waiting calls, and totals of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantQueues {
    /// The longest queues, longest first.
    pub longest: Vec<TenantQueue>,
    /// Number of tenants with waiting calls.
    pub tenants: usize,
    /// Number of waiting calls of tenants that are not in `longest`.
    pub waiting_of_other_tenants: usize,
}

/// All waiting calls of a provider.
#[derive(Debug, Default)]
pub(crate) struct QueuedCalls {
    all: BTreeSet<Arrival>,
    by_tenant: HashMap<Arc<str>, BTreeSet<Arrival>>,
    /// Counts that are limited.
    pub(crate) counts: QueueCounts,
}

impl QueuedCalls {
    pub(crate) fn add(&mut self, tenant: &Arc<str>, arrival: Arrival) {
        self.all.insert(arrival);
        self.by_tenant.entry(tenant.clone()).or_default().insert(arrival);
    }

    pub(crate) fn remove(&mut self, tenant: &Arc<str>, arrival: Arrival) {
        self.all.remove(&arrival);
        let Some(calls) = self.by_tenant.get_mut(tenant) else { return };
        calls.remove(&arrival);
        if calls.is_empty() {
            self.by_tenant.remove(tenant);
        }
    }

    /// Returns the number of waiting calls and the wait of the oldest.
    pub(crate) fn total(&self) -> (usize, Duration) {
        (self.all.len(), oldest_wait_of(&self.all))
    }

    /// Returns the tenants with the most waiting calls, at most `max`.
    pub(crate) fn longest(&self, max: usize) -> TenantQueues {
        let mut ranked: Vec<_> = self.by_tenant.iter().collect();
        ranked
            .sort_by_key(|(tenant, calls)| (Reverse(calls.len()), calls.first().copied(), *tenant));
        let view = |(tenant, calls): &(&Arc<str>, &BTreeSet<Arrival>)| TenantQueue {
            tenant: (*tenant).clone(),
            waiting: calls.len(),
            oldest_wait: oldest_wait_of(calls),
        };
        let longest: Vec<_> = ranked.iter().take(max).map(view).collect();
        let shown: usize = longest.iter().map(|queue| queue.waiting).sum();
        TenantQueues {
            longest,
            tenants: ranked.len(),
            waiting_of_other_tenants: self.all.len().saturating_sub(shown),
        }
    }
}

fn oldest_wait_of(calls: &BTreeSet<Arrival>) -> Duration {
    calls.first().map_or(Duration::ZERO, |(since, _)| since.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn longest_queues_are_listed_and_others_are_summed() {
        let mut calls = QueuedCalls::default();
        let start = Instant::now();
        let names: Vec<Arc<str>> = (0..100).map(|n| format!("tenant-{n:02}").into()).collect();
        let mut number = 0;
        for (index, name) in names.iter().enumerate() {
            for _ in 0..if index < 3 { 5 - index } else { 1 } {
                calls.add(name, (start + Duration::from_millis(number), number));
                number += 1;
            }
        }
        tokio::time::advance(Duration::from_secs(2)).await;
        let shown = calls.longest(2);
        assert_eq!((shown.tenants, shown.waiting_of_other_tenants), (100, 3 + 97));
        let longest: Vec<_> =
            shown.longest.iter().map(|queue| (&*queue.tenant, queue.waiting)).collect();
        assert_eq!(longest, [("tenant-00", 5), ("tenant-01", 4)]);
        assert_eq!(shown.longest[1].oldest_wait, Duration::from_millis(1_995));
        assert_eq!(calls.total(), (109, Duration::from_secs(2)));
    }

    #[test]
    fn tenant_is_removed_with_its_last_call() {
        let mut calls = QueuedCalls::default();
        let (tenant, now): (Arc<str>, _) = ("a".into(), Instant::now());
        for number in 0..1_000 {
            let tenant: Arc<str> = format!("invented-{number}").into();
            calls.add(&tenant, (now, number));
            calls.remove(&tenant, (now, number));
        }
        calls.add(&tenant, (now, 1));
        calls.add(&tenant, (now, 2));
        calls.remove(&tenant, (now, 1));
        assert_eq!((calls.by_tenant.len(), calls.all.len()), (1, 1));
        calls.remove(&tenant, (now, 2));
        assert!(calls.by_tenant.is_empty() && calls.all.is_empty());
    }
}
