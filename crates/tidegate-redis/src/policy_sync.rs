//! How nodes agree on policies: what a limit allows is in a record that all of them read.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tidegate_core::{Limit, Policy, StoreError};
use tokio::sync::Mutex;

use crate::error::Fault;
use crate::format::number::{moment, put, put_text};
use crate::format::script_args::entry_ttl;
use crate::job::{Code, Item, Job};
use crate::plan::Plan;
use crate::plan::list_entry::Found;
use crate::policy_history::{Enrolment, Roll, revisions};
use crate::store::RedisStore;

/// The rolls that this node has read.
#[derive(Debug, Default)]
pub(crate) struct Rolls {
    known: RwLock<HashMap<Arc<str>, Arc<Roll>>>,
    /// Limits are enrolled one at a time: many first callers ask once.
    enrolling: Mutex<()>,
}

impl Rolls {
    fn get(&self, limit: &Limit) -> Option<Arc<Roll>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(limit.identity()).cloned()
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<Roll>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.values().cloned().collect()
    }

    fn insert(&self, limit: &Limit, roll: Arc<Roll>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(limit.shared_identity(), roll);
    }
}

impl RedisStore {
    /// The policies of a limit as all nodes know them. A limit that is new here, or that its owner
    /// has revised, is enrolled first.
    pub(crate) async fn roll(&self, limit: &Limit) -> Result<Arc<Roll>, StoreError> {
        if limit.is_inline() {
            return Ok(Arc::new(Roll::inline(limit)));
        }
        let up_to_date = |roll: &Arc<Roll>| roll.enrolled() >= limit.generation();
        if let Some(roll) = self.rolls().get(limit).filter(up_to_date) {
            return Ok(roll);
        }
        let _one_at_a_time = self.rolls().enrolling.lock().await;
        let known = self.rolls().get(limit);
        if let Some(roll) = known.clone().filter(up_to_date) {
            return Ok(roll);
        }
        self.warn_of(limit);
        let new = revisions(limit, known.as_ref().map(|roll| roll.enrolled()));
        self.enrol(limit, limit.generation(), &new).await
    }

    /// Says what its owner may not know of a limit, once for each of its revisions.
    fn warn_of(&self, limit: &Limit) {
        match (limit.policy(), self.desk().ttl) {
            (Policy::Bucket(bucket), Some(ttl))
                if ttl < Duration::from_nanos(bucket.time_to_full().ceil()) =>
            {
                tracing::warn!(
                    limit = limit.name(),
                    "the time to live is shorter than the time to full; buckets are kept until \
                     they are full"
                );
            }
            (Policy::Concurrency(slots), _) if slots.lease().is_none() => tracing::warn!(
                limit = limit.name(),
                "slots without a lease stay taken for ever if their holder dies or its call is \
                 lost; give the limit a lease"
            ),
            _ => {}
        }
    }

    /// Adds revisions to the record of a limit, and reads it.
    async fn enrol(
        &self,
        limit: &Limit,
        enrolled: u32,
        new: &[Enrolment],
    ) -> Result<Arc<Roll>, StoreError> {
        let policies = self.desk().names.policies(limit.identity());
        let mut item = Item { other: Some(policies), ..Item::default() };
        item.tail.extend(u16::try_from(new.len()).unwrap_or(u16::MAX).to_le_bytes());
        for Enrolment { text, again } in new {
            item.tail.push(u8::from(*again));
            put_text(text, &mut item.tail);
        }
        let replies = self.send(vec![Job::new(Code::Enrol).with(item)]).await?;
        let record = replies.each.first().ok_or(Fault::Nonsense)?;
        let before = self.rolls().get(limit);
        let roll = Roll::read(limit.identity(), enrolled, record, before.as_deref())?;
        let roll = Arc::new(roll);
        self.rolls().insert(limit, roll.clone());
        Ok(roll)
    }

    /// Learns the policy that another node has given to a limit, by its number.
    pub(crate) async fn learn(
        &self,
        plan: &Plan<'_>,
        index: usize,
        number: u64,
    ) -> Result<(), StoreError> {
        let seat = &plan.seats().ok_or(Fault::Nonsense)?.list[index];
        self.learn_of(seat.roll.limit(), number).await
    }

    /// Learns the policy of a limit that has this number. A record that does not have it has lost
    /// it; its node will write it down again, and until then what is under it counts as empty.
    pub(crate) async fn learn_of(&self, limit: &Limit, number: u64) -> Result<(), StoreError> {
        let _one_at_a_time = self.rolls().enrolling.lock().await;
        let before = self.rolls().get(limit).ok_or(Fault::Nonsense)?;
        if number <= before.generation() {
            return Ok(());
        }
        let roll = self.enrol(limit, before.enrolled(), &[]).await?;
        if roll.is_behind(number) {
            self.rolls().insert(limit, Arc::new(Roll::clone(&roll).without(number)));
        } else {
            tracing::warn!(
                limit = limit.name(),
                capacity_before = before.limit().policy().capacity(),
                capacity = roll.limit().policy().capacity(),
                "another node has given this limit a newer policy; it decides from now on"
            );
        }
        Ok(())
    }

    /// Brings entries under the policies that decide. If somebody else was faster, nothing is
    /// changed; the operation is sent again either way.
    pub(crate) async fn convert(
        &self,
        plan: &Plan<'_>,
        found: &[Found],
        now_us: u64,
    ) -> Result<(), StoreError> {
        let now = moment(now_us);
        let seats = plan.seats().ok_or(Fault::Nonsense)?;
        let mut job = Job::new(Code::Swap);
        for (seat, found) in seats.list.iter().zip(found) {
            let asked = seat.amount != 0 && found.entry.standing(&seat.roll, now.time).converted;
            let lost = found.entry.newest() > seat.roll.generation();
            if !asked && !lost {
                continue;
            }
            let (policy, after) = (
                seat.policy(),
                found.entry.converted(&seat.roll, seat.target.windows.as_ref(), now),
            );
            let mut item = Item { entry: Some(seat.name.clone()), ..Item::default() };
            let needed = after.lasts_until(policy).since(now.time).as_millis();
            let ttl = match entry_ttl(policy, self.desk().ttl) {
                0 => 0,
                ttl => ttl.max(u64::try_from(needed).unwrap_or(u64::MAX).saturating_add(1)),
            };
            put(ttl, &mut item.tail);
            for value in [found.entry.stored(), after.stored()] {
                item.tail.push(u8::try_from(value.len()).unwrap_or(u8::MAX));
                item.tail.extend_from_slice(&value);
            }
            job.push(item);
        }
        self.send(vec![job]).await?;
        Ok(())
    }
}
