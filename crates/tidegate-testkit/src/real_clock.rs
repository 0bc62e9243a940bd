//! Checks of a store on a clock that a test cannot set: a database, or a remote service.
//!
//! They take only from token buckets, so they apply to every contract. Most use a rate of one token
//! a day, so that the time that a test takes does not matter; one compares the refill with the clock
//! of this process for a fifth of a second. Errors of rounding that are smaller than a token show
//! only on a clock that the [conformance suite](crate::conformance) sets.
//!
//! Each check uses limits of its own, and keys that end in a number of the run, so that a check can
//! be repeated on a server that keeps its state.

use std::time::Duration;

use tidegate_core::{Charge, Decision, Limit, Operation, Policy, Retry, Store};
use tokio::time::Instant;

use crate::subject::{block_on, decision, together};

/// How long the refill is compared.
const SPAN: Duration = Duration::from_millis(200);
/// Tokens per second in that comparison.
const RATE: u64 = 1_000;
const DAY: Duration = Duration::from_secs(86_400);

/// Runs every check on one store. `run` makes the keys unique: a number that no earlier run on the
/// same state has used.
///
/// # Panics
/// If the store fails a check.
pub fn check_all(store: &dyn Store, run: u64) {
    block_on(async {
        let checked = Checked { store, run };
        checked.a_bucket_admits_its_capacity().await;
        checked.a_denial_spends_nothing().await;
        checked.keys_and_limits_are_independent().await;
        checked.ten_tokens_admit_ten_of_fifteen_concurrent_takes().await;
        checked.refill_is_time_by_rate().await;
    });
}

/// The store under test.
struct Checked<'s> {
    store: &'s dyn Store,
    run: u64,
}

impl Checked<'_> {
    async fn take(&self, limit: &Limit, key: &str, cost: u64) -> Decision {
        let key = format!("{key}:{}", self.run);
        decision(self.store, Operation::Take(&[Charge::new(limit, &key, cost)])).await
    }

    async fn a_bucket_admits_its_capacity(&self) {
        let limit = daily("real-clock-capacity", 10);
        let never = self.take(&limit, "a", 11).await;
        assert_eq!((never.remaining(), never.retry()), (10, Some(Retry::Never)), "a cost of 11");
        for left in (0..10).rev() {
            let decision = self.take(&limit, "a", 1).await;
            assert_eq!((decision.remaining(), decision.retry()), (left, None));
        }
        let denied = self.take(&limit, "a", 1).await;
        let Some(Retry::After(wait)) = denied.retry() else {
            panic!("{denied:?} has no wait");
        };
        assert!(wait <= DAY && wait > DAY / 2, "a token takes a day, not {wait:?}");
    }

    async fn a_denial_spends_nothing(&self) {
        let limit = daily("real-clock-denial", 10);
        assert!(self.take(&limit, "a", 7).await.is_allowed());
        for _ in 0..5 {
            let decision = self.take(&limit, "a", 4).await;
            assert!(!decision.is_allowed());
            assert_eq!(decision.remaining(), 3);
        }
        assert!(self.take(&limit, "a", 3).await.is_allowed());
    }

    async fn keys_and_limits_are_independent(&self) {
        let (limit, other) = (daily("real-clock-keys", 10), daily("real-clock-limits", 5));
        assert!(self.take(&limit, "a", 10).await.is_allowed());
        assert_eq!(self.take(&limit, "b", 1).await.remaining(), 9);
        assert_eq!(self.take(&other, "a", 1).await.remaining(), 4);
        assert!(!self.take(&limit, "a", 1).await.is_allowed());
    }

    /// R285.
    async fn ten_tokens_admit_ten_of_fifteen_concurrent_takes(&self) {
        let limit = daily("real-clock-concurrent", 10);
        let takes = (0..15).map(|_| self.take(&limit, "a", 1)).collect();
        let decisions = together(takes).await;
        let allowed = decisions.iter().filter(|decision| decision.is_allowed()).count();
        assert_eq!(allowed, 10);
    }

    /// Polls a bucket as fast as possible. Its capacity is so large that it is never full again, so
    /// that exactly the refilled tokens are granted.
    async fn refill_is_time_by_rate(&self) {
        let policy = Policy::per_second(RATE).capacity(60 * RATE).build();
        let limit = named("real-clock-refill", policy.expect("a valid policy"));
        let before = Instant::now();
        assert!(self.take(&limit, "a", 60 * RATE).await.is_allowed());
        let after = Instant::now();
        let mut granted = 0;
        while after.elapsed() < SPAN {
            granted += u64::from(self.take(&limit, "a", 1).await.is_allowed());
        }
        let shortest = after.elapsed();
        while self.take(&limit, "a", 1).await.is_allowed() {
            granted += 1;
        }
        let longest = before.elapsed();
        // Clocks may differ by a hundredth, and show milliseconds only.
        let (least, most) = (refilled(shortest) * 99 / 100 - 2, refilled(longest) * 101 / 100 + 2);
        assert!(
            (least..=most).contains(&granted),
            "{granted} tokens were granted in {longest:?}, expected {least} to {most}"
        );
    }
}

fn refilled(span: Duration) -> u64 {
    u64::try_from(span.as_nanos() * u128::from(RATE) / 1_000_000_000).unwrap_or(u64::MAX)
}

fn daily(name: &str, capacity: u64) -> Limit {
    named(name, Policy::per_day(1).capacity(capacity).build().expect("a valid policy"))
}

fn named(name: &str, policy: Policy) -> Limit {
    Limit::named(name, policy).expect("a valid name")
}
