//! Where acquires wait: one pacer for each bucket that somebody waits for.
//!
//! A list waits in the queue of its first slot (limit and key), or of its first charge if it has no
//! slot, so that everybody who wants the same slot stands in one line and nobody else does. A charge
//! on another key, such as a rate of the caller's own, keeps only those waiting who want that key
//! too. A queue lives as long as somebody waits in it or holds a permit of it.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tidegate::pacer::Pacer;
use tidegate::{Charge, Engine, Key, KeyBuf, Limiter, Policy};
use tidegate_core::Target;

/// One charge of a list, as far as queues are concerned.
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

/// A place to wait: the queue, what is wanted there, and on whose behalf.
pub(crate) struct Line {
    /// Keeps the queue for as long as the permit lives.
    pub(crate) queue: Arc<Pacer>,
    pub(crate) charges: Vec<Charge<'static>>,
    pub(crate) tenant: String,
    /// The charge that the queue is of.
    pub(crate) of: usize,
}

/// The queues that there are, and the limiters of policies that stand in requests.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    pacers: Shelf<(Arc<str>, KeyBuf), Pacer>,
    /// Shared while in use: what is given back on one wakes those who wait for the same.
    inline: Shelf<Arc<str>, Limiter>,
}

impl Queues {
    /// The limiter of a policy without a name, the same for everybody who uses it at the time.
    pub(crate) fn inline<E>(
        &self,
        identity: Arc<str>,
        make: impl FnOnce() -> Result<Limiter, E>,
    ) -> Result<Arc<Limiter>, E> {
        self.inline.get(identity, make)
    }

    /// Where a list waits; `None` if it is empty. With a tenant, charges on the key of that name are
    /// the tenant's own; without one, whoever wants other keys besides the queue's is a tenant by
    /// those keys.
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

    /// Lets those look again who wait for one of these buckets: something may have been given back
    /// in another way than by a permit.
    pub(crate) fn nudge(&self, opened: &[Target<'_>]) {
        for target in opened {
            let bucket = (target.limit.shared_identity(), KeyBuf::from(target.key));
            if let Some(queue) = self.pacers.find(&bucket) {
                queue.nudge();
            }
        }
    }

    /// How many queues there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.pacers.live()
    }
}

/// Things that are there as long as somebody uses them.
struct Shelf<K, V>(Mutex<Shelved<K, V>>);

struct Shelved<K, V> {
    things: HashMap<K, Weak<V>>,
    /// When so many are there, those that nobody uses are looked for.
    sweep_at: usize,
}

/// So few things are not worth looking through.
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
    /// Keys name people: none is shown.
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
        // With the keys of one account for all there is one line.
        let account = queues.line(&engine, &list("pool"), None).unwrap();
        assert_eq!(account.tenant, "");
    }
}
