//! How nodes agree on policies: what a limit allows is in a record that all of them read.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use tidegate_core::{Limit, StoreError};
use tokio::sync::Mutex;

use crate::error::Fault;
use crate::job::{Code, Item, Job};
use crate::number::{moment, put};
use crate::plan::Plan;
use crate::roll::{Enrolment, Roll, revisions};
use crate::seats::Found;
use crate::store::RedisStore;
use crate::tariff::entry_ttl;

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
        let new = revisions(limit, known.as_ref().map(|roll| roll.enrolled()));
        self.enrol(limit, limit.generation(), &new).await
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
        item.tail.push(u8::try_from(new.len()).unwrap_or(u8::MAX));
        for Enrolment { text, again } in new.iter().take(usize::from(u8::MAX)) {
            item.tail.push(u8::from(*again));
            item.tail.extend(u16::try_from(text.len()).unwrap_or(u16::MAX).to_le_bytes());
            item.tail.extend_from_slice(text.as_bytes());
        }
        let replies = self.send(vec![Job::new(Code::Enrol).with(item)]).await?;
        let record = replies.each.first().ok_or(Fault::Nonsense)?;
        let roll = Arc::new(Roll::read(limit, enrolled, record)?);
        self.rolls().insert(limit, roll.clone());
        Ok(roll)
    }

    /// Learns the policy that another node has given to a limit.
    pub(crate) async fn learn(&self, plan: &Plan<'_>, index: usize) -> Result<(), StoreError> {
        let seat = &plan.seats().ok_or(Fault::Nonsense)?.list[index];
        let _one_at_a_time = self.rolls().enrolling.lock().await;
        let limit = seat.roll.limit();
        let before = limit.policy().capacity();
        let roll = self.enrol(limit, seat.roll.enrolled(), &[]).await?;
        tracing::warn!(
            limit = limit.name(),
            capacity_before = before,
            capacity = roll.limit().policy().capacity(),
            "another node has given this limit a newer policy; it decides from now on"
        );
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
            if seat.amount == 0 || !found.entry.standing(&seat.roll, now.time).converted {
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
