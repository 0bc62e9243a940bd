//! Limits the number of event watchers, in all and per network.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_http::identity::{ClientNetwork, TrustedProxies};

use crate::listener::connections::network_of;

/// One network may have one in this many slots.
const NETWORK_SHARE: usize = 4;

/// The slots. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct WatcherSlots(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    total: usize,
    trusted: TrustedProxies,
    taken: Mutex<HashMap<ClientNetwork, usize>>,
}

impl WatcherSlots {
    /// Creates `total` slots. Trusted proxies may take all of them.
    pub(super) fn new(total: usize, trusted: TrustedProxies) -> Self {
        Self(Arc::new(Inner { total, trusted, taken: Mutex::default() }))
    }

    /// Takes a slot for this peer, if one is free.
    pub(super) fn take(&self, peer: IpAddr) -> Option<WatcherSlot> {
        let Inner { total, trusted, .. } = &*self.0;
        let network = network_of(peer);
        let mut taken = self.0.taken();
        let own = taken.get(&network).copied().unwrap_or(0);
        let max = if trusted.contains(peer) { *total } else { total.div_ceil(NETWORK_SHARE) };
        if own >= max || taken.values().sum::<usize>() >= *total {
            return None;
        }
        taken.insert(network, own + 1);
        Some(WatcherSlot { slots: self.clone(), network })
    }

    /// Returns the number of free slots.
    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.0.total - self.0.taken().values().sum::<usize>()
    }
}

impl Inner {
    fn taken(&self) -> MutexGuard<'_, HashMap<ClientNetwork, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A slot, freed on drop.
#[derive(Debug)]
pub(super) struct WatcherSlot {
    slots: WatcherSlots,
    network: ClientNetwork,
}

impl Drop for WatcherSlot {
    fn drop(&mut self) {
        let mut taken = self.slots.0.taken();
        if let Some(own) = taken.get_mut(&self.network) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.network);
            }
        }
    }
}
