//! Buckets that belong to a single connection, reset when it is dropped.
//!
//! No caller waits for the reset. On a local store it happens where the connection is dropped; on a
//! shared store in a task, if there is a tokio runtime. A crash or an unavailable store leaves
//! buckets behind: the store drops token buckets once they are full, those of allowances stay until
//! they are reset.
//!
//! Slots are not reset here. They belong to messages that may still be in progress.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use tidegate::Batch;

use crate::connection::charges::MessageCharges;
use crate::connection::slots::{Limiters, counts_slots};

/// Maximum number of own buckets that a connection tracks, over all its limiters. It bounds memory:
/// buckets beyond it are not reset with the connection.
pub const MAX_CONNECTION_KEYS: usize = 1_024;

/// Number of resets per call to a shared store, so that each call finishes within the store's
/// timeout.
const RESETS_PER_CALL: usize = 64;

/// Keys of a connection, shared with its store tasks: the last owner resets the buckets, so that
/// none is created afterwards.
pub(crate) struct ConnectionKeys {
    limiters: Limiters,
    keys: Mutex<Keys>,
}

struct Keys {
    /// Keys by limiter index.
    by_limiter: Vec<HashSet<Box<str>>>,
    /// How many more keys may be tracked.
    capacity_left: usize,
}

impl ConnectionKeys {
    pub(crate) fn new(limiters: Limiters) -> Self {
        let by_limiter = limiters.iter().map(|_| HashSet::new()).collect();
        Self { limiters, keys: Mutex::new(Keys { by_limiter, capacity_left: MAX_CONNECTION_KEYS }) }
    }

    /// Tracks the keys that a message is about to charge. Called before the store call, because its
    /// caller may be dropped before the decision.
    pub(crate) fn track(&self, charges: &MessageCharges) {
        let mut own = charges.list().iter().filter(|charge| charge.is_connection_key).peekable();
        if own.peek().is_none() {
            return;
        }
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let Keys { by_limiter, capacity_left } = &mut *keys;
        for charge in own {
            let known = &mut by_limiter[charge.limiter_index];
            let is_new = *capacity_left > 0 && !known.contains(&*charge.key);
            if is_new && !counts_slots(&self.limiters[charge.limiter_index]) {
                known.insert(charge.key.as_str().into());
                *capacity_left -= 1;
            }
        }
    }
}

impl Drop for ConnectionKeys {
    fn drop(&mut self) {
        let keys = self.keys.get_mut().unwrap_or_else(PoisonError::into_inner);
        let by_limiter = std::mem::take(&mut keys.by_limiter).into_iter().enumerate();
        // The policy may have changed to one that counts slots.
        let own =
            by_limiter.filter(|(limiter_index, _)| !counts_slots(&self.limiters[*limiter_index]));
        let keys: Vec<_> = own
            .flat_map(|(limiter_index, keys)| keys.into_iter().map(move |key| (limiter_index, key)))
            .collect();
        let Some((first, _)) = keys.first() else { return };
        let (limiters, store) = (self.limiters.clone(), self.limiters[*first].engine().store());
        store.detach(async move {
            for chunk in keys.chunks(RESETS_PER_CALL) {
                let resets =
                    chunk.iter().map(|(limiter_index, key)| limiters[*limiter_index].reset(&**key));
                // If the store is unavailable the buckets stay; see the module documentation.
                let _ = Batch::from_iter(resets).await;
            }
        });
    }
}
