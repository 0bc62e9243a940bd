//! Which revisions of its limits this client has told to which shard.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use tidegate_core::Limit;

/// Maximum number of remembered pairs of shard and limit. If there are more, all are forgotten:
/// revisions are then sent again, which changes nothing.
const MAX_ENTRIES: usize = 65_536;

/// The newest revision of each limit that each shard has confirmed.
#[derive(Debug, Default)]
pub(crate) struct KnownRevisions {
    confirmed: RwLock<HashMap<(u32, Arc<str>), u32>>,
}

impl KnownRevisions {
    /// Returns the newest confirmed revision.
    pub(crate) fn get(&self, shard: u32, limit: &Limit) -> Option<u32> {
        if limit.is_inline() || limit.generation() == 0 {
            // There is nothing older to leave out.
            return None;
        }
        let confirmed = self.confirmed.read().unwrap_or_else(PoisonError::into_inner);
        confirmed.get(&(shard, limit.shared_identity())).copied()
    }

    /// Remembers that a shard has confirmed the revision of a limit.
    pub(crate) fn confirm(&self, shard: u32, limit: &Limit) {
        if limit.is_inline() || limit.generation() == 0 {
            return;
        }
        if self.get(shard, limit).is_some_and(|known| known >= limit.generation()) {
            return;
        }
        let mut confirmed = self.confirmed.write().unwrap_or_else(PoisonError::into_inner);
        if confirmed.len() >= MAX_ENTRIES {
            confirmed.clear();
        }
        confirmed.insert((shard, limit.shared_identity()), limit.generation());
    }
}
