//! The in-process store of Tidegate.

use anyhow::Result;
use tidegate_core::{Key, Limit, Policy};
use tidegate_memory::MemoryStore;

use super::{BURST, Contender, RATE, go_round};

/// Far above what a million keys take, so that the bound plays no part.
const MAX_MEMORY: usize = 256 << 20;

#[derive(Debug)]
pub(super) struct Ours {
    store: MemoryStore,
    limit: Limit,
}

impl Ours {
    pub(super) fn new() -> Result<Self> {
        let policy = Policy::per_second(RATE.into()).capacity(BURST.into()).build()?;
        let store = MemoryStore::builder().max_memory(MAX_MEMORY).build()?;
        Ok(Self { store, limit: Limit::named("client", policy)? })
    }
}

impl Contender for Ours {
    fn decide(&self, keys: &[String], requests: u64) -> u64 {
        go_round(keys, requests, |key| {
            self.store.take_one(&self.limit, Key::new(key), 1).is_allowed()
        })
    }
}
