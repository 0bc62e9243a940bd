//! Retry budgets.
//!
//! If every call to a failing provider is retried several times, its load multiplies just when it
//! can bear the least. All callers of a provider share a budget: calls fill it and retries drain
//! it, so that retries stay a fraction of the calls.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_providers::Provider;
use tokio::time::Instant;

use crate::recent::Recent;

/// Default capacity, in retries.
const DEFAULT_CAPACITY: u32 = 100;
/// Cost of a retry. One unit is credited per millisecond.
const RETRY_COST: u64 = 1_000;
/// Credit per call: a fifth of a retry.
const CALL_CREDIT: u64 = 200;
/// Minimum number of providers whose budgets are remembered.
const REMEMBERED_PROVIDERS: usize = 1_024;

/// Number of retries that all callers of a provider share. Clones share it.
///
/// It starts full. Each retry takes one; each call adds a fifth, and each second adds one.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<Mutex<Balance>>);

#[derive(Debug)]
struct Balance {
    capacity: u64,
    amount: u64,
    /// Instant up to which elapsed time has been credited.
    refilled_until: Option<Instant>,
}

impl Default for Budget {
    /// Creates a budget of 100 retries.
    fn default() -> Self {
        Self::new(DEFAULT_CAPACITY)
    }
}

impl Budget {
    /// Creates a budget of this many retries at once; with 0, nothing is ever retried.
    pub(crate) fn new(retries: u32) -> Self {
        let capacity = u64::from(retries) * RETRY_COST;
        Self(Arc::new(Mutex::new(Balance { capacity, amount: capacity, refilled_until: None })))
    }

    /// Returns the number of retries available now.
    pub(crate) fn remaining(&self) -> u64 {
        self.refilled(Instant::now()).amount / RETRY_COST
    }

    /// Credits a call.
    pub(super) fn earn(&self, now: Instant) {
        self.refilled(now).add(CALL_CREDIT);
    }

    /// Takes a retry. Returns whether one was available.
    pub(super) fn spend(&self, now: Instant) -> bool {
        let mut balance = self.refilled(now);
        let left = balance.amount.checked_sub(RETRY_COST);
        balance.amount = left.unwrap_or(balance.amount);
        left.is_some()
    }

    /// Returns the balance after crediting the elapsed time.
    fn refilled(&self, now: Instant) -> MutexGuard<'_, Balance> {
        let mut balance = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let refilled_until = *balance.refilled_until.get_or_insert(now);
        let elapsed = now.saturating_duration_since(refilled_until);
        // Fractions of a millisecond are credited later, so that frequent queries lose nothing.
        let parts = elapsed.subsec_nanos() % 1_000_000;
        balance.add(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX));
        if let Some(refilled_until) = now.checked_sub(Duration::from_nanos(parts.into())) {
            balance.refilled_until = balance.refilled_until.max(Some(refilled_until));
        }
        balance
    }
}

impl Balance {
    fn add(&mut self, amount: u64) {
        self.amount = self.amount.saturating_add(amount).min(self.capacity);
    }
}

/// One budget per provider, for programs that load several of its models. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Budgets(Arc<Mutex<Recent<Provider, Budget>>>);

impl Default for Budgets {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Recent::new(REMEMBERED_PROVIDERS))))
    }
}

impl Budgets {
    /// Returns the budget of a provider, and creates it if necessary.
    pub(crate) fn get(&self, provider: &Provider) -> Budget {
        let mut budgets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        budgets.get(provider, Budget::default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(budget: &Budget, now: Instant) -> usize {
        (0..1_000).take_while(|_| budget.spend(now)).count()
    }

    #[test]
    fn retries_drain_it_and_calls_and_time_refill_it() {
        let (budget, now) = (Budget::default(), Instant::now());
        assert_eq!(spent(&budget, now), 100);
        (0..5).for_each(|_| budget.earn(now));
        assert_eq!(spent(&budget, now), 1);
        let later = now + Duration::from_millis(2_999);
        assert_eq!(spent(&budget, later), 2);
        assert_eq!(spent(&budget, later + Duration::from_millis(1)), 1);
        assert_eq!(
            spent(&budget, later + Duration::from_secs(3_600)),
            100,
            "not above its capacity"
        );
        assert_eq!(spent(&Budget::new(0), now), 0);
    }

    #[test]
    fn frequent_queries_lose_no_fraction_of_a_second() {
        let (budget, start) = (Budget::default(), Instant::now());
        assert_eq!(spent(&budget, start), 100);
        let step = Duration::from_micros(700);
        let granted = (1..=10_000_u32).filter(|&i| budget.spend(start + step * i)).count();
        assert_eq!(granted, 7);
        assert!(!budget.spend(start), "a clock that goes back adds no credit");
    }

    #[test]
    fn provider_has_one_budget() {
        let budgets = Budgets::default();
        let openai = budgets.get(&"openai".into());
        assert!(openai.spend(Instant::now()));
        assert_eq!(budgets.clone().get(&"OpenAI".into()).remaining(), 99);
        assert_eq!(budgets.get(&"groq".into()).remaining(), 100);
    }
}
