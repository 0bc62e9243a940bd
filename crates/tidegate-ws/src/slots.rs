//! What is given back to the store: the slots of a message, the buckets of a connection.
//!
//! Nobody waits for it. In process it is done where it is dropped; on a shared store a task does
//! it, if there is a tokio runtime. If there is none, leases and expiry do it later.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;
use tidegate::{Limiter, Policy, Receipt, Snapshot, Store, Target};
use tokio::runtime::Handle;

use crate::bill::{Bill, Line};

/// The limiters of a gate, by seat.
pub(crate) type Limiters = Arc<[Limiter<dyn Store>]>;

/// The slots that a message holds under limits that count concurrency.
pub(crate) struct Slots(Option<Held>);

struct Held {
    limiters: Limiters,
    lines: Vec<Line>,
    receipt: Receipt,
}

impl Slots {
    /// The slots of a grant, if any of its limits counts concurrency.
    pub(crate) fn of(
        limiters: &Limiters,
        bill: &Bill,
        snapshots: &[Snapshot],
        receipt: Receipt,
    ) -> Option<Self> {
        let counts = |terms: &Snapshot| matches!(terms.limit().policy(), Policy::Concurrency(_));
        if !snapshots.iter().any(counts) {
            return None;
        }
        let lines = bill.lines().to_vec();
        Some(Self(Some(Held { limiters: limiters.clone(), lines, receipt })))
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let Some(held) = self.0.take() else { return };
        let released = {
            let terms = held.terms();
            let targets = held.targets(&terms);
            held.limiters[0].engine().release(&targets, &held.receipt).at_once()
        };
        if released.is_none()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(async move {
                let terms = held.terms();
                let targets = held.targets(&terms);
                // If the store is away the lease of the slots runs out.
                let _ = held.limiters[0].engine().release(&targets, &held.receipt).await;
            });
        }
    }
}

impl Held {
    fn terms(&self) -> SmallVec<[Snapshot; 2]> {
        self.lines.iter().map(|line| self.limiters[line.seat].snapshot()).collect()
    }

    fn targets<'a>(&'a self, terms: &'a [Snapshot]) -> SmallVec<[Target<'a>; 2]> {
        self.lines.iter().zip(terms).map(|(line, terms)| terms.target(&line.key)).collect()
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots").finish_non_exhaustive()
    }
}

/// How many buckets of one limiter are remembered when clients invent types.
const MAX_REMEMBERED: usize = 256;

/// The buckets that belong to one connection alone, forgotten with it.
pub(crate) struct Belongings {
    limiters: Limiters,
    /// Keys by the seat of their limiter. There are as many as there are types, or few.
    keys: Vec<HashSet<Box<str>>>,
    most: usize,
}

impl Belongings {
    pub(crate) fn new(limiters: Limiters, types: Option<usize>) -> Self {
        let keys = limiters.iter().map(|_| HashSet::new()).collect();
        Self { limiters, keys, most: types.unwrap_or(MAX_REMEMBERED) }
    }

    /// Remembers what a message has charged.
    pub(crate) fn add(&mut self, bill: &Bill) {
        for line in bill.lines().iter().filter(|line| line.of_connection) {
            let keys = &mut self.keys[line.seat];
            if keys.len() < self.most && !keys.contains(&*line.key) {
                keys.insert(line.key.as_str().into());
            }
        }
    }
}

impl Drop for Belongings {
    fn drop(&mut self) {
        let keys = std::mem::take(&mut self.keys);
        let mut later = Vec::new();
        for (seat, keys) in keys.into_iter().enumerate() {
            for key in keys {
                if self.limiters[seat].reset(&*key).at_once().is_none() {
                    later.push((seat, key));
                }
            }
        }
        if !later.is_empty()
            && let Ok(runtime) = Handle::try_current()
        {
            let limiters = self.limiters.clone();
            runtime.spawn(async move {
                for (seat, key) in later {
                    // If the store is away the bucket expires by itself.
                    let _ = limiters[seat].reset(&*key).await;
                }
            });
        }
    }
}
