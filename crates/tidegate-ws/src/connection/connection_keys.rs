//! Buckets that belong to a single connection, reset when it is dropped.
//!
//! They are always in this process, so the reset is immediate and a crash leaves none behind.
//!
//! Slots are not reset here. They belong to messages that may still be in progress.

use std::collections::HashSet;
use std::sync::Arc;

use crate::connection::charges::MessageCharge;
use crate::gate::limiters::Limiters;

/// Maximum number of own buckets that a connection tracks, over all its limiters. It bounds memory:
/// buckets beyond it are not reset with the connection.
pub const MAX_CONNECTION_KEYS: usize = 1_024;

/// Keys of a connection.
pub(crate) struct ConnectionKeys {
    limiters: Arc<Limiters>,
    /// Keys by limiter index.
    by_limiter: Vec<HashSet<Box<str>>>,
    /// How many more keys may be tracked.
    capacity_left: usize,
}

impl ConnectionKeys {
    pub(crate) fn new(limiters: Arc<Limiters>) -> Self {
        let by_limiter = std::iter::repeat_with(HashSet::new).take(limiters.len()).collect();
        Self { limiters, by_limiter, capacity_left: MAX_CONNECTION_KEYS }
    }

    /// Tracks the keys that a message was charged to.
    pub(crate) fn track(&mut self, charges: &[MessageCharge]) {
        for charge in charges.iter().filter(|charge| charge.is_connection_key) {
            let known = &mut self.by_limiter[charge.limiter_index];
            let is_new = self.capacity_left > 0 && !known.contains(&*charge.key);
            if is_new && !self.limiters.counts_slots(charge.limiter_index) {
                known.insert(charge.key.as_str().into());
                self.capacity_left -= 1;
            }
        }
    }
}

impl Drop for ConnectionKeys {
    fn drop(&mut self) {
        for (limiter_index, keys) in self.by_limiter.iter().enumerate() {
            // The policy may have changed to one that counts slots.
            if !keys.is_empty() && !self.limiters.counts_slots(limiter_index) {
                keys.iter().for_each(|key| self.limiters.reset(limiter_index, key));
            }
        }
    }
}
