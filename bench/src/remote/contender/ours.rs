//! Tidegate's shared store, through the `Store` trait.

use anyhow::{Context as _, Result, bail};
use tidegate_core::{Charge, Limit, Operation, Policy, Store, StoreResponse, StoreResponses};
use tidegate_redis::RedisStore;

use super::{BURST, INTERVAL_US};
use crate::remote::axes::{Charges, Key};

/// One store with one connection, and the limits of a decision.
#[derive(Debug)]
pub(in crate::remote) struct Ours {
    store: RedisStore,
    limits: [Limit; 3],
}

/// The policy of all contenders.
pub(in crate::remote) fn policy() -> Result<Policy> {
    const { assert!(INTERVAL_US == 1_000_000, "one token per second") };
    Ok(Policy::per_second(1).capacity(BURST.into()).build()?)
}

impl Ours {
    pub(super) async fn open(address: &str) -> Result<Self> {
        let store = RedisStore::builder(address).open()?;
        store.connected().await?;
        let limit = |name| -> Result<Limit> { Ok(Limit::named(name, policy()?)?) };
        Ok(Self { store, limits: [limit("client")?, limit("tenant")?, limit("route")?] })
    }

    pub(super) async fn decide(&self, key: &Key, charges: Charges) -> Result<bool> {
        let [first, second, third] = &self.limits;
        let charge = |limit| Charge::new(limit, key.name(), 1);
        let charged = [charge(first), charge(second), charge(third)];
        take(&self.store, &charged[..charges.count()]).await
    }
}

/// Takes from a store and returns whether that was allowed.
async fn take(store: &impl Store, charges: &[Charge<'_>]) -> Result<bool> {
    let mut answers = StoreResponses::new();
    store.submit(&[Operation::Take(charges)], &mut answers).await;
    match answers.pop().context("the store returned no answer")?? {
        StoreResponse::Decision(decision) => Ok(decision.is_allowed()),
        other => bail!("not a decision: {other:?}"),
    }
}
