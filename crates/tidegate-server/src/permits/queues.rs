//! The queues in which acquires wait: one pacer per bucket.
//!
//! A list waits in the queue of its first slot (limit and key), or of its first charge if it has no
//! slot. So all acquires of the same slot share one queue. A charge on another key, such as a
//! per-caller rate, only delays acquires that use that key too. A queue exists as long as it has
//! waiters or granted permits.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tidegate::pacer::Pacer;
use tidegate::{Charge, Engine, Key, KeyBuf, Limiter, Policy};
use tidegate_core::Target;

/// A requested charge.
#[derive(Clone, Copy)]
pub(crate) struct RequestedCharge<'a> {
    pub(crate) limiter: &'a Limiter,
    pub(crate) key: Key<'a>,
    pub(crate) cost: u64,
}

impl RequestedCharge<'_> {
    pub(crate) fn is_slot(&self) -> bool {
        matches!(self.limiter.limit().policy(), Policy::Concurrency(_))
    }
}

/// Where and how to wait: the queue, the charges, and the tenant.
pub(crate) struct QueueEntry {
    /// Keeps the queue alive as long as the permit.
    pub(crate) queue: Arc<Pacer>,
    pub(crate) charges: Vec<Charge<'static>>,
    pub(crate) tenant: String,
    /// Index of the charge whose bucket the queue belongs to.
    pub(crate) charge_index: usize,
}

/// All queues in use, and the limiters of inline policies.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    pacers: WeakCache<(Arc<str>, KeyBuf), Pacer>,
    /// Shared while in use, so that tokens given back through one wake all waiters.
    inline: WeakCache<Arc<str>, Limiter>,
}

impl Queues {
    /// Returns the limiter of an unnamed policy, shared by all its current users.
    pub(crate) fn inline<E>(
        &self,
        identity: Arc<str>,
        make: impl FnOnce() -> Result<Limiter, E>,
    ) -> Result<Arc<Limiter>, E> {
        self.inline.get(identity, make)
    }

    /// Returns where a list waits; `None` if it is empty. If a tenant is given, charges on the key
    /// with its name are its own. Otherwise the tenant is derived from the keys other than the
    /// queue's.
    pub(crate) fn entry(
        &self,
        engine: &Engine,
        list: &[RequestedCharge<'_>],
        tenant: Option<&str>,
    ) -> Option<QueueEntry> {
        let charge_index = list.iter().position(RequestedCharge::is_slot).unwrap_or(0);
        let first = list.get(charge_index)?;
        let bucket = (first.limiter.limit().shared_identity(), KeyBuf::from(first.key));
        let created =
            self.pacers.get(bucket, || Ok::<_, std::convert::Infallible>(Pacer::new(engine)));
        let Ok(queue) = created;
        let mut derived = String::new();
        let charge = |requested: &RequestedCharge<'_>| {
            let charge = requested.limiter.charge(requested.key, requested.cost).into_owned();
            let is_own = match tenant {
                Some(tenant) => requested.key.name() == tenant,
                None => true,
            };
            if !is_own || requested.key.name() == first.key.name() {
                return charge;
            }
            if tenant.is_none() {
                let limit = requested.limiter.limit();
                derived.extend([limit.identity(), "\0", requested.key.name(), "\0"]);
            }
            charge.per_tenant()
        };
        let charges = list.iter().map(charge).collect();
        let tenant = tenant.map_or(derived, ToOwned::to_owned);
        Some(QueueEntry { queue, charges, tenant, charge_index })
    }

    /// Wakes the queues of these buckets: tokens may have been given back other than by a permit.
    pub(crate) fn nudge(&self, buckets: &[Target<'_>]) {
        for target in buckets {
            let bucket = (target.limit.shared_identity(), KeyBuf::from(target.key));
            if let Some(queue) = self.pacers.find(&bucket) {
                queue.nudge();
            }
        }
    }

    /// Returns the number of queues in use.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.pacers.in_use()
    }
}

/// Shared values that exist as long as they are in use.
struct WeakCache<K, V>(Mutex<WeakCacheState<K, V>>);

struct WeakCacheState<K, V> {
    entries: HashMap<K, Weak<V>>,
    /// Number of entries at which unused ones are removed.
    sweep_at: usize,
}

/// Below this number of entries nothing is removed.
const MIN_SWEEP_LEN: usize = 64;

impl<K: Eq + Hash, V> WeakCache<K, V> {
    fn get<E>(&self, key: K, make: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = state.entries.get(&key).and_then(Weak::upgrade) {
            return Ok(found);
        }
        if state.entries.len() >= state.sweep_at.max(MIN_SWEEP_LEN) {
            state.entries.retain(|_, value| value.strong_count() > 0);
            state.sweep_at = 2 * state.entries.len();
        }
        let created = Arc::new(make()?);
        state.entries.insert(key, Arc::downgrade(&created));
        Ok(created)
    }

    fn find(&self, key: &K) -> Option<Arc<V>> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.entries.get(key).and_then(Weak::upgrade)
    }

    #[cfg(test)]
    fn in_use(&self) -> usize {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.entries.values().filter(|value| value.strong_count() > 0).count()
    }
}

impl<K, V> Default for WeakCache<K, V> {
    fn default() -> Self {
        Self(Mutex::new(WeakCacheState { entries: HashMap::new(), sweep_at: 0 }))
    }
}

impl<K, V> fmt::Debug for WeakCache<K, V> {
    /// Keys may identify people and are not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakCache").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn limiters() -> (Engine, Limiter, Limiter) {
        let engine = Engine::new();
        let lease = Some(Duration::from_secs(30));
        let slots = engine.limiter("slots", Policy::concurrency(1, lease).unwrap()).unwrap();
        let rate = Policy::per_minute(1).capacity(1).build().unwrap();
        let rate = engine.limiter("rate", rate).unwrap();
        (engine, slots, rate)
    }

    #[test]
    fn a_queue_belongs_to_a_slot_and_key_and_ends_with_its_last_user() {
        let (engine, slots, rate) = limiters();
        let queues = Queues::default();
        let slot = |key| RequestedCharge { limiter: &slots, key: Key::new(key), cost: 1 };
        let token = |key| RequestedCharge { limiter: &rate, key: Key::new(key), cost: 1 };
        let one = queues.entry(&engine, &[slot("a")], None).unwrap();
        let same = queues.entry(&engine, &[token("a"), slot("a")], None).unwrap();
        let other = queues.entry(&engine, &[slot("b")], None).unwrap();
        assert!(Arc::ptr_eq(&one.queue, &same.queue));
        assert!(!Arc::ptr_eq(&one.queue, &other.queue));
        assert_eq!((one.charge_index, same.charge_index, queues.len()), (0, 1, 2));
        drop((one, same, other));
        assert_eq!(queues.len(), 0);
        for n in 0..1_000 {
            let key = n.to_string();
            let requested = RequestedCharge { limiter: &slots, key: Key::new(&key), cost: 1 };
            queues.entry(&engine, &[requested], None).unwrap();
        }
        assert!(
            queues.pacers.0.lock().unwrap().entries.len() <= MIN_SWEEP_LEN,
            "unused entries are removed"
        );
        assert!(queues.entry(&engine, &[], None).is_none());
    }

    #[test]
    fn waiting_for_a_private_key_does_not_block_others() {
        let (engine, slots, rate) = limiters();
        let queues = Queues::default();
        let list = |key: &'static str| {
            [("pool", &slots), (key, &rate)].map(|(key, limiter)| RequestedCharge {
                limiter,
                key: Key::new(key),
                cost: 1,
            })
        };
        let (alice, bob) = (list("alice"), list("bob"));
        let [first, second] = [&alice, &bob].map(|it| queues.entry(&engine, it, None).unwrap());
        assert_ne!(first.tenant, second.tenant);
        let again = queues.entry(&engine, &alice, None).unwrap();
        assert_eq!(first.tenant, again.tenant);
        let named = queues.entry(&engine, &alice, Some("alice")).unwrap();
        assert_eq!(named.tenant, "alice");
        // Acquires with the same keys share one queue.
        let account = queues.entry(&engine, &list("pool"), None).unwrap();
        assert_eq!(account.tenant, "");
    }
}
