//! The buckets that belong to one connection alone, forgotten with it.
//!
//! Nobody waits for it. In process it is done where the connection is dropped; on a shared store a
//! task does it, if there is a tokio runtime. A process that crashes and a store that is away leave
//! buckets behind: those of tokens are forgotten once they are full, those of allowances stay until
//! somebody resets them.
//!
//! Slots are not forgotten here. They belong to messages, which may still be handled.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use tidegate::Batch;

use crate::connection::charges::MessageCharges;
use crate::connection::slots::{Limiters, counts_slots};

/// How many buckets of its own a connection remembers, over all its limiters. It is a bound on
/// memory: buckets beyond it are not forgotten with the connection.
pub const MAX_CONNECTION_KEYS: usize = 1_024;

/// How many buckets are forgotten in one call to a shared store, which answers each call in a time
/// of its own.
const AT_ONCE: usize = 64;

/// What a connection shares with the tasks that ask the store for it: the last of them forgets the
/// buckets, so that none is made after that.
pub(crate) struct ConnectionKeys {
    limiters: Limiters,
    keys: Mutex<Keys>,
}

struct Keys {
    /// By the seat of their limiter.
    by_seat: Vec<HashSet<Box<str>>>,
    /// How many more there may be.
    room: usize,
}

impl ConnectionKeys {
    pub(crate) fn new(limiters: Limiters) -> Self {
        let by_seat = limiters.iter().map(|_| HashSet::new()).collect();
        Self { limiters, keys: Mutex::new(Keys { by_seat, room: MAX_CONNECTION_KEYS }) }
    }

    /// Remembers what a message is going to charge: before the store is asked, since whoever asks
    /// may not live to see the answer.
    pub(crate) fn note(&self, charges: &MessageCharges) {
        let mut own = charges.list().iter().filter(|charge| charge.of_connection).peekable();
        if own.peek().is_none() {
            return;
        }
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let Keys { by_seat, room } = &mut *keys;
        for charge in own {
            let known = &mut by_seat[charge.seat];
            let is_new = *room > 0 && !known.contains(&*charge.key);
            if is_new && !counts_slots(&self.limiters[charge.seat]) {
                known.insert(charge.key.as_str().into());
                *room -= 1;
            }
        }
    }
}

impl Drop for ConnectionKeys {
    fn drop(&mut self) {
        let keys = self.keys.get_mut().unwrap_or_else(PoisonError::into_inner);
        let by_seat = std::mem::take(&mut keys.by_seat).into_iter().enumerate();
        // A limit may have come to count slots since.
        let own = by_seat.filter(|(seat, _)| !counts_slots(&self.limiters[*seat]));
        let keys: Vec<_> =
            own.flat_map(|(seat, keys)| keys.into_iter().map(move |key| (seat, key))).collect();
        let Some((first, _)) = keys.first() else { return };
        let (limiters, store) = (self.limiters.clone(), self.limiters[*first].engine().store());
        store.detach(async move {
            for some in keys.chunks(AT_ONCE) {
                let resets = some.iter().map(|(seat, key)| limiters[*seat].reset(&**key));
                // If the store is away the buckets stay; see the top of this file.
                let _ = Batch::from_iter(resets).await;
            }
        });
    }
}
