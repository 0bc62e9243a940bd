//! Tidegate: each API of its in-process store, and its direct limiter.

use anyhow::Result;
use tidegate::{Decision, Engine, Limiter};
use tidegate_core::{Charge, Key, Limit};
use tidegate_memory::clock::Clock;
use tidegate_memory::{DirectLimiter, MemoryStore, MemoryStoreBuilder};

use crate::contender::{Contender, decide_in_batches};
use crate::core::BATCH;
use crate::core::contenders::gate::{KeyedLimiter, UnkeyedLimiter};
use crate::core::contenders::policy::BenchPolicy;

/// The default memory of a store, enough for about 1.5 million keys.
const MEMORY: usize = 64 << 20;
/// More than a key takes, so that the bound has no effect.
const BYTES_PER_KEY: usize = 64;

/// A store with capacity for `keys`.
pub(in crate::core) fn store(keys: usize) -> MemoryStoreBuilder {
    MemoryStore::builder().max_memory(MEMORY.max(keys * BYTES_PER_KEY))
}

/// A store and a limit to spend from.
#[derive(Debug)]
pub(in crate::core) struct StoreContender {
    pub(in crate::core) store: MemoryStore,
    pub(in crate::core) limit: Limit,
}

impl StoreContender {
    pub(in crate::core) fn new(keys: usize, policy: BenchPolicy) -> Result<Self> {
        Self::on(store(keys), policy)
    }

    pub(in crate::core) fn on(store: MemoryStoreBuilder, policy: BenchPolicy) -> Result<Self> {
        Ok(Self { store: store.build()?, limit: Limit::named("client", policy.policy()?)? })
    }
}

/// Decides without a receipt.
impl KeyedLimiter for StoreContender {
    #[inline]
    fn allow(&self, key: &String) -> bool {
        self.store.spend_one(&self.limit, Key::new(key), 1).is_allowed()
    }
}

/// Decides with a receipt.
#[derive(Debug)]
pub(in crate::core) struct Receipts(pub(in crate::core) StoreContender);

impl KeyedLimiter for Receipts {
    #[inline]
    fn allow(&self, key: &String) -> bool {
        let StoreContender { store, limit } = &self.0;
        store.take_one(limit, Key::new(key), 1).is_allowed()
    }
}

/// Decides through `Limiter`, the usual API.
#[derive(Debug)]
pub(in crate::core) struct LimiterContender(Limiter);

impl LimiterContender {
    pub(in crate::core) fn new(keys: usize, policy: BenchPolicy) -> Result<Self> {
        let engine = Engine::on(store(keys).build()?);
        Ok(Self(engine.limiter("client", policy.policy()?)?))
    }
}

impl KeyedLimiter for LimiterContender {
    #[inline]
    fn allow(&self, key: &String) -> bool {
        self.0.take(key).now().as_ref().is_ok_and(Decision::is_allowed)
    }
}

/// Decides in batches.
#[derive(Debug)]
pub(in crate::core) struct Many(pub(in crate::core) StoreContender);

impl Contender for Many {
    fn decide(&self, keys: &[String], requests: u64) -> u64 {
        let StoreContender { store, limit } = &self.0;
        decide_in_batches(keys, requests, BATCH, |batch| {
            let mut allowed = 0;
            let charges = batch.iter().map(|key| Charge::new(limit, key, 1));
            store.take_many(charges, |_, decision| allowed += u64::from(decision.is_allowed()));
            allowed
        })
    }
}

/// One bucket without a key, on the default clock.
pub(in crate::core) fn valve(policy: BenchPolicy) -> Result<DirectLimiter> {
    Ok(DirectLimiter::new(policy.policy()?)?)
}

/// One bucket without a key, on the given clock.
pub(in crate::core) fn valve_on(
    policy: BenchPolicy,
    clock: impl Clock + 'static,
) -> Result<DirectLimiter> {
    Ok(DirectLimiter::with_clock(policy.policy()?, clock)?)
}

impl UnkeyedLimiter for DirectLimiter {
    #[inline]
    fn allow(&self) -> bool {
        self.take(1).is_allowed()
    }
}
