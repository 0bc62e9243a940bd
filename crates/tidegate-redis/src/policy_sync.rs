//! Synchronization of policies between nodes, through a record of each limit on the server.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tidegate_core::{Limit, Policy, StoreError};
use tokio::sync::Mutex;

use crate::error::RedisStoreError;
use crate::format::number::{put, put_text, server_time};
use crate::format::script_args::entry_ttl;
use crate::job::{Code, Item, Job};
use crate::operation::PreparedOperation;
use crate::operation::list_entry::Found;
use crate::policy_history::{PolicyHistory, PolicyRecord, revisions};
use crate::store::RedisStore;

/// The policy histories that this node has read.
#[derive(Debug, Default)]
pub(crate) struct PolicyHistories {
    known: RwLock<HashMap<Arc<str>, Arc<PolicyHistory>>>,
    /// Limits are synced one at a time, so that concurrent first callers send one request.
    syncing: Mutex<()>,
}

impl PolicyHistories {
    fn get(&self, limit: &Limit) -> Option<Arc<PolicyHistory>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(limit.identity()).cloned()
    }

    /// Returns all known histories.
    pub(crate) fn all(&self) -> Vec<Arc<PolicyHistory>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.values().cloned().collect()
    }

    fn insert(&self, limit: &Limit, history: Arc<PolicyHistory>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(limit.shared_identity(), history);
    }
}

impl RedisStore {
    /// Returns the shared policy history of a limit. A limit that is new here, or that its owner
    /// has revised, is synced first.
    pub(crate) async fn history(&self, limit: &Limit) -> Result<Arc<PolicyHistory>, StoreError> {
        if limit.is_inline() {
            return Ok(Arc::new(PolicyHistory::inline(limit)));
        }
        let up_to_date = |history: &Arc<PolicyHistory>| history.synced() >= limit.generation();
        if let Some(history) = self.histories().get(limit).filter(up_to_date) {
            return Ok(history);
        }
        let _guard = self.histories().syncing.lock().await;
        let known = self.histories().get(limit);
        if let Some(history) = known.clone().filter(up_to_date) {
            return Ok(history);
        }
        self.warn_about(limit);
        let new = revisions(limit, known.as_ref().map(|history| history.synced()));
        self.sync_policies(limit, limit.generation(), &new).await
    }

    /// Logs pitfalls of a limit, once per revision.
    fn warn_about(&self, limit: &Limit) {
        match (limit.policy(), self.context().ttl) {
            (Policy::Bucket(bucket), Some(ttl))
                if ttl < Duration::from_nanos(bucket.time_to_full().ceil()) =>
            {
                tracing::warn!(
                    limit = limit.name(),
                    "time to live is shorter than the time to full; keeping buckets until they are \
                     full"
                );
            }
            (Policy::Concurrency(slots), _) if slots.lease().is_none() => tracing::warn!(
                limit = limit.name(),
                "concurrency limit has no lease: slots stay taken if their holder crashes; set a lease"
            ),
            _ => {}
        }
    }

    /// Adds revisions to the record of a limit, and reads it.
    async fn sync_policies(
        &self,
        limit: &Limit,
        synced: u32,
        new: &[PolicyRecord],
    ) -> Result<Arc<PolicyHistory>, StoreError> {
        let policies = self.context().names.policies(limit.identity());
        let mut item = Item { other: Some(policies), ..Item::default() };
        item.tail.extend(u16::try_from(new.len()).unwrap_or(u16::MAX).to_le_bytes());
        for PolicyRecord { text, repeated } in new {
            item.tail.push(u8::from(*repeated));
            put_text(text, &mut item.tail);
        }
        let replies = self.send(vec![Job::new(Code::SyncPolicies).with(item)]).await?;
        let record = replies.each.first().ok_or(RedisStoreError::InvalidReply)?;
        let before = self.histories().get(limit);
        let history = PolicyHistory::read(limit.identity(), synced, record, before.as_deref())?;
        let history = Arc::new(history);
        self.histories().insert(limit, history.clone());
        Ok(history)
    }

    /// Learns the policy with this number that another node has set for a limit.
    pub(crate) async fn learn(
        &self,
        operation: &PreparedOperation<'_>,
        index: usize,
        number: u64,
    ) -> Result<(), StoreError> {
        let listed = &operation.list().ok_or(RedisStoreError::InvalidReply)?[index];
        self.learn_policy(listed.history.limit(), number).await
    }

    /// Learns the policy of a limit with this number. If the record does not have it, it is lost;
    /// its node will write it again, and until then entries under it count as empty.
    pub(crate) async fn learn_policy(&self, limit: &Limit, number: u64) -> Result<(), StoreError> {
        let _guard = self.histories().syncing.lock().await;
        let before = self.histories().get(limit).ok_or(RedisStoreError::InvalidReply)?;
        if number <= before.generation() {
            return Ok(());
        }
        let history = self.sync_policies(limit, before.synced(), &[]).await?;
        if history.is_behind(number) {
            self.histories()
                .insert(limit, Arc::new(PolicyHistory::clone(&history).with_lost(number)));
        } else {
            tracing::warn!(
                limit = limit.name(),
                capacity_before = before.limit().policy().capacity(),
                capacity = history.limit().policy().capacity(),
                "adopted a newer policy from another node"
            );
        }
        Ok(())
    }

    /// Converts entries to the current policies. If another node was faster, nothing changes; the
    /// operation is sent again either way.
    pub(crate) async fn convert(
        &self,
        operation: &PreparedOperation<'_>,
        found: &[Found],
        now_us: u64,
    ) -> Result<(), StoreError> {
        let now = server_time(now_us);
        let list = operation.list().ok_or(RedisStoreError::InvalidReply)?;
        let mut job = Job::new(Code::Swap);
        for (listed, found) in list.iter().zip(found) {
            let needs_conversion = listed.amount != 0
                && found.entry.effective_state(&listed.history, now.time).converted;
            let is_newer = found.entry.newest() > listed.history.generation();
            if !needs_conversion && !is_newer {
                continue;
            }
            let (policy, converted) = (
                listed.policy(),
                found.entry.converted(&listed.history, listed.target.windows.as_ref(), now),
            );
            let mut item = Item { entry: Some(listed.name.clone()), ..Item::default() };
            let needed = converted.lasts_until(policy).since(now.time).as_millis();
            let ttl = match entry_ttl(policy, self.context().ttl) {
                0 => 0,
                ttl => ttl.max(u64::try_from(needed).unwrap_or(u64::MAX).saturating_add(1)),
            };
            put(ttl, &mut item.tail);
            for value in [found.entry.stored(), converted.stored()] {
                item.tail.push(u8::try_from(value.len()).unwrap_or(u8::MAX));
                item.tail.extend_from_slice(&value);
            }
            job.push(item);
        }
        self.send(vec![job]).await?;
        Ok(())
    }
}
