//! Checks that a limit is exact across two nodes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tidegate::guard::GuardedStore;
use tidegate::{Policy, Store as _};
use tidegate_core::{Charge, Limit, Operation, StoreResponse, StoreResponses};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Number of tokens; the refill is so slow that none is added during the check.
pub(in crate::remote) const CAPACITY: usize = 10;
/// Number of concurrent takes.
pub(in crate::remote) const TAKES: usize = 15;
/// Pause before a repetition.
const PAUSE: Duration = Duration::from_millis(100);

/// Takes tokens through two nodes concurrently, and repeats that until all decisions are shared.
/// Returns whether exactly as many were allowed as there are tokens.
pub(super) async fn is_exact(one: &GuardedStore, other: &GuardedStore) -> Result<bool> {
    loop {
        if let Some(allowed) = allowed(one, other).await? {
            return Ok(allowed == CAPACITY);
        }
        // The failure rule decided.
        sleep(PAUSE).await;
    }
}

/// Number of allowed takes; `None` if a decision was not shared.
async fn allowed(one: &GuardedStore, other: &GuardedStore) -> Result<Option<usize>> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let key = format!("check-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let policy = Policy::rate("1/day".parse()?).capacity(CAPACITY as u64).build()?;
    let limit = Limit::named("exact", policy)?;
    let mut takes = JoinSet::new();
    for take in 0..TAKES {
        let node = if take % 2 == 0 { one.clone() } else { other.clone() };
        let (limit, key) = (limit.clone(), key.clone());
        takes.spawn(async move {
            let (charges, mut answers) =
                ([Charge::new(&limit, key.as_str(), 1)], StoreResponses::new());
            node.submit(&[Operation::Take(&charges)], &mut answers).await;
            match answers.pop().context("the store returned no answer")?? {
                StoreResponse::Decision(decision) if decision.degraded().is_none() => {
                    anyhow::Ok(Some(decision.is_allowed()))
                }
                _ => Ok(None),
            }
        });
    }
    let mut allowed = Some(0);
    while let Some(take) = takes.join_next().await {
        let take = take??;
        allowed = allowed.zip(take).map(|(allowed, yes)| allowed + usize::from(yes));
    }
    Ok(allowed)
}
