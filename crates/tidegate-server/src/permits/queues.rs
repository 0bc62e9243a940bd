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
pub(crate) struct Wanted<'a> {
    pub(crate) limiter: &'a Limiter,
    pub(crate) key: Key<'a>,
    pub(crate) cost: u64,
}

impl Wanted<'_> {
    pub(crate) fn is_slot(&self) -> bool {
        matches!(self.limiter.limit().policy(), Policy::Concurrency(_))
    }
}

/// Where and how to wait: the queue, the charges, and the tenant.
pub(crate) struct Line {
    /// Keeps the queue alive as long as the permit.
    pub(crate) queue: Arc<Pacer>,
    pub(crate) charges: Vec<Charge<'static>>,
    pub(crate) tenant: String,
    /// Index of the charge whose bucket the queue belongs to.
    pub(crate) of: usize,
}

/// All queues in use, and the limiters of inline policies.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    pacers: Shelf<(Arc<str>, KeyBuf), Pacer>,
    /// Shared while in use, so that tokens given back through one wake all waiters.
    inline: Shelf<Arc<str>, Limiter>,
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
    pub(crate) fn line(
        &self,
        engine: &Engine,
        list: &[Wanted<'_>],
        tenant: Option<&str>,
    ) -> Option<Line> {
        let of = list.iter().position(Wanted::is_slot).unwrap_or(0);
        let first = list.get(of)?;
        let bucket = (first.limiter.limit().shared_identity(), KeyBuf::from(first.key));
        let made =
            self.pacers.get(bucket, || Ok::<_, std::convert::Infallible>(Pacer::new(engine)));
        let Ok(queue) = made;
        let mut derived = String::new();
        let charge = |wanted: &Wanted<'_>| {
            let charge = wanted.limiter.charge(wanted.key, wanted.cost).into_owned();
            let own = match tenant {
                Some(tenant) => wanted.key.name() == tenant,
                None => true,
            };
            if !own || wanted.key.name() == first.key.name() {
                return charge;
            }
            if tenant.is_none() {
                let limit = wanted.limiter.limit();
                derived.extend([limit.identity(), "\0", wanted.key.name(), "\0"]);
            }
            charge.own()
        };
        let charges = list.iter().map(charge).collect();
        let tenant = tenant.map_or(derived, ToOwned::to_owned);
        Some(Line { queue, charges, tenant, of })
    }

    /// Wakes the queues of these buckets: tokens may have been given back other than by a permit.
    pub(crate) fn nudge(&self, opened: &[Target<'_>]) {
        for target in opened {
            let bucket = (target.limit.shared_identity(), KeyBuf::from(target.key));
            if let Some(queue) = self.pacers.find(&bucket) {
                queue.nudge();
            }
        }
    }

    /// Returns the number of queues in use.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.pacers.live()
    }
}

/// Shared values that exist as long as they are in use.
struct Shelf<K, V>(Mutex<Shelved<K, V>>);

struct Shelved<K, V> {
    things: HashMap<K, Weak<V>>,
    /// Number of entries at which unused ones are removed.
    sweep_at: usize,
}

/// Below this number of entries nothing is removed.
const FEW: usize = 64;

impl<K: Eq + Hash, V> Shelf<K, V> {
    fn get<E>(&self, key: K, make: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E> {
        let mut shelved = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = shelved.things.get(&key).and_then(Weak::upgrade) {
            return Ok(found);
        }
        if shelved.things.len() >= shelved.sweep_at.max(FEW) {
            shelved.things.retain(|_, thing| thing.strong_count() > 0);
            shelved.sweep_at = 2 * shelved.things.len();
        }
        let made = Arc::new(make()?);
        shelved.things.insert(key, Arc::downgrade(&made));
        Ok(made)
    }

    fn find(&self, key: &K) -> Option<Arc<V>> {
        let shelved = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shelved.things.get(key).and_then(Weak::upgrade)
    }

    #[cfg(test)]
    fn live(&self) -> usize {
        let shelved = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shelved.things.values().filter(|thing| thing.strong_count() > 0).count()
    }
}

impl<K, V> Default for Shelf<K, V> {
    fn default() -> Self {
        Self(Mutex::new(Shelved { things: HashMap::new(), sweep_at: 0 }))
    }
}

impl<K, V> fmt::Debug for Shelf<K, V> {
    /// Keys may identify people and are not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shelf").finish_non_exhaustive()
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
    fn a_queue_is_of_a_slot_and_its_key_and_goes_with_its_last_user() {
        let (engine, slots, rate) = limiters();
        let queues = Queues::default();
        let slot = |key| Wanted { limiter: &slots, key: Key::new(key), cost: 1 };
        let token = |key| Wanted { limiter: &rate, key: Key::new(key), cost: 1 };
        let one = queues.line(&engine, &[slot("a")], None).unwrap();
        let same = queues.line(&engine, &[token("a"), slot("a")], None).unwrap();
        let other = queues.line(&engine, &[slot("b")], None).unwrap();
        assert!(Arc::ptr_eq(&one.queue, &same.queue));
        assert!(!Arc::ptr_eq(&one.queue, &other.queue));
        assert_eq!((one.of, same.of, queues.len()), (0, 1, 2));
        drop((one, same, other));
        assert_eq!(queues.len(), 0);
        for n in 0..1_000 {
            let key = n.to_string();
            let wanted = Wanted { limiter: &slots, key: Key::new(&key), cost: 1 };
            queues.line(&engine, &[wanted], None).unwrap();
        }
        assert!(queues.pacers.0.lock().unwrap().things.len() <= FEW, "what is not used is dropped");
        assert!(queues.line(&engine, &[], None).is_none());
    }

    #[test]
    fn whoever_waits_for_a_key_of_its_own_keeps_nobody_else_waiting() {
        let (engine, slots, rate) = limiters();
        let queues = Queues::default();
        let list = |key: &'static str| {
            [("pool", &slots), (key, &rate)].map(|(key, limiter)| Wanted {
                limiter,
                key: Key::new(key),
                cost: 1,
            })
        };
        let (alice, bob) = (list("alice"), list("bob"));
        let [first, second] = [&alice, &bob].map(|it| queues.line(&engine, it, None).unwrap());
        assert_ne!(first.tenant, second.tenant);
        let again = queues.line(&engine, &alice, None).unwrap();
        assert_eq!(first.tenant, again.tenant);
        let named = queues.line(&engine, &alice, Some("alice")).unwrap();
        assert_eq!(named.tenant, "alice");
        // Acquires with the same keys share one queue.
        let account = queues.line(&engine, &list("pool"), None).unwrap();
        assert_eq!(account.tenant, "");
    }
}
