//! The store: operations in, one request per shard out.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use http::HeaderValue;
use tidegate_core::{
    Key, Limit, Operation, Probe, Store, StoreError, StoreResponse, StoreResponses, Submission,
    Target, decide,
};
use tidegate_shard::message::{
    Batch, FORMAT, MAX_BATCH_BYTES, MAX_OPERATIONS, OperationMessage, PolicySync, Replies,
    ReplyMessage,
};
use tidegate_shard::route::shard_of;
use tokio::time::Instant;

use crate::builder::DurableBuilder;
use crate::client::HttpClient;
use crate::error::DurableStoreError;
use crate::known_policies::KnownPolicies;
use crate::request_plan::{Chain, RequestPlan};

/// Result of one operation.
type OperationResult = Result<StoreResponse, StoreError>;

/// Maximum number of requests of one call that are sent at the same time.
const MAX_CONCURRENT: usize = 16;

/// Rate limits in the objects of a Worker. See the [crate] documentation.
///
/// Nothing is sent twice: an operation that failed or timed out may have been executed. Connections
/// are kept open and shared by all callers.
#[derive(Debug)]
pub struct DurableStore {
    client: HttpClient,
    shards: u32,
    /// Id under which the shards know this client's policies.
    node: u64,
    known: KnownPolicies,
    /// When this store was created.
    created: Instant,
    /// The time sent with every request, in nanoseconds; zero for none.
    manual_time: AtomicU64,
    /// The first manual time: on that clock, this store was created then.
    manual_start: AtomicU64,
}

impl DurableStore {
    /// Configures a store on the Worker at this address: `durable://host` with TLS, or
    /// `durable+http://host:port` without.
    pub fn builder(address: &str) -> DurableBuilder {
        DurableBuilder::new(address)
    }

    pub(crate) fn new(client: HttpClient, shards: u32, node: u64) -> Self {
        Self {
            client,
            shards,
            node,
            known: KnownPolicies::default(),
            created: Instant::now(),
            manual_time: AtomicU64::new(0),
            manual_start: AtomicU64::new(0),
        }
    }

    /// Sets the time of the objects, in nanoseconds since the Unix epoch. Only a Worker with a
    /// manual clock uses it.
    #[cfg(feature = "manual-clock")]
    pub fn set_manual_time(&self, nanos: u64) {
        let start = &self.manual_start;
        // Fails for all times but the first.
        let _ = start.compare_exchange(0, nanos, Ordering::SeqCst, Ordering::SeqCst);
        self.manual_time.store(nanos, Ordering::SeqCst);
    }

    /// Returns the shard of all keys of an operation; `None` if they are in several.
    fn shard_of_all(&self, operation: &Operation<'_>) -> Option<u32> {
        let mut shards = targets(operation).into_iter().map(|target| self.shard_of(&target));
        let first = shards.next()?;
        shards.all(|shard| shard == first).then_some(first)
    }

    fn shard_of(&self, target: &Target<'_>) -> u32 {
        shard_of(target.key, self.shards)
    }

    /// Executes operations on one shard, or one on several for `None`.
    async fn execute(
        &self,
        shard: Option<u32>,
        operations: &[&Operation<'_>],
        body: Vec<u8>,
    ) -> Vec<OperationResult> {
        let replies = match self.exchange(shard, body).await {
            Ok(replies) if replies.replies.len() == operations.len() => replies.replies,
            Ok(_) => {
                let reason = "it has another number of replies than there were operations";
                let error = DurableStoreError::Malformed(reason.to_owned());
                return all_failed(operations.len(), || error.clone().into_store_error());
            }
            Err(error) => return repeat(error, operations.len()),
        };
        for (operation, reply) in operations.iter().zip(&replies) {
            // After an error, not all shards may have read all policies.
            if !matches!(reply, ReplyMessage::Error(_)) {
                for target in targets(operation) {
                    self.known.confirm(self.shard_of(&target), target.limit);
                }
            }
        }
        replies.iter().map(ReplyMessage::to_response).collect()
    }

    /// Returns the body of a request with these operations.
    fn encode(
        &self,
        operations: &[&Operation<'_>],
        histories: Histories,
    ) -> Result<Vec<u8>, StoreError> {
        let now = self.now();
        let sent: RefCell<HashSet<(Arc<str>, u32)>> = RefCell::default();
        let message = |operation: &&Operation<'_>| {
            let targets = targets(operation);
            // A shard that refuses the receipt of an operation does not read its histories.
            let has_receipt = matches!(
                operation,
                Operation::Settle { .. } | Operation::Release { .. } | Operation::Renew { .. }
            );
            let sync = |limit: &Limit| {
                let of_limit = |target: &&Target<'_>| target.limit.identity() == limit.identity();
                let shards = targets.iter().filter(of_limit).map(|target| self.shard_of(target));
                let sync = self.known.sync(shards, limit, now);
                let history = (limit.shared_identity(), limit.generation());
                let is_sent = match has_receipt {
                    true => sent.borrow().contains(&history),
                    false => !sent.borrow_mut().insert(history),
                };
                let is_sent = is_sent || histories == Histories::Omitted;
                let confirmed = if is_sent { Some(limit.generation()) } else { sync.confirmed };
                PolicySync { confirmed, ..sync }
            };
            OperationMessage::new(operation, sync)
        };
        let operations: Option<Vec<_>> = operations.iter().map(message).collect();
        let operations =
            operations.ok_or_else(|| DurableStoreError::Unsupported.into_store_error())?;
        let batch = Batch { format: FORMAT, node: Some(self.node), operations };
        serde_json::to_vec(&batch).map_err(|error| malformed(error.to_string()))
    }

    async fn exchange(&self, shard: Option<u32>, body: Vec<u8>) -> Result<Replies, StoreError> {
        let path = match shard {
            Some(shard) => format!("/shards/{shard}/operations?shards={}", self.shards),
            None => format!("/operations?shards={}", self.shards),
        };
        let response = self.client.post(&path, body, self.headers()).await?;
        Replies::parse(&response).map_err(malformed)
    }

    /// The time since this store was created, with which it measures the age of its policies.
    fn now(&self) -> Duration {
        match self.manual_time.load(Ordering::SeqCst) {
            0 => self.created.elapsed(),
            nanos => {
                let start = self.manual_start.load(Ordering::SeqCst);
                Duration::from_nanos(nanos.saturating_sub(start))
            }
        }
    }

    /// Headers that only a Worker with a manual clock reads.
    fn headers(&self) -> Option<(&'static str, HeaderValue)> {
        let time = self.manual_time.load(Ordering::SeqCst);
        (time > 0).then(|| ("x-tidegate-now-ns", HeaderValue::from(time)))
    }

    /// Executes all operations. Those of one shard are sent together and in order. One that spans
    /// shards is a request of its own, and is ordered only with those that have a key of it: the
    /// others do not wait for its round trips.
    async fn execute_all(&self, operations: &[Operation<'_>], responses: &mut StoreResponses) {
        let mut results: Vec<Option<OperationResult>> = Vec::new();
        results.resize_with(operations.len(), || None);
        let mut plan = RequestPlan::default();
        for (index, operation) in operations.iter().enumerate() {
            let keys: Vec<Key<'_>> =
                targets(operation).into_iter().map(|target| target.key).collect();
            match decide::check_list(keys.iter().copied()) {
                Ok(()) => plan.add(index, self.shard_of_all(operation), keys),
                Err(error) => results[index] = Some(Err(error.into())),
            }
        }
        for step in plan.into_steps() {
            let chains = step.into_iter().map(|chain| self.execute_chain(chain, operations));
            let mut chains = stream::iter(chains).buffer_unordered(MAX_CONCURRENT);
            while let Some(done) = chains.next().await {
                for (index, result) in done {
                    results[index] = Some(result);
                }
            }
        }
        let lost = || DurableStoreError::Malformed("a reply is missing".to_owned());
        responses.extend(
            results.into_iter().map(|r| r.unwrap_or_else(|| Err(lost().into_store_error()))),
        );
    }

    /// Sends the requests of a chain one after the other, none longer than the Worker accepts.
    async fn execute_chain(
        &self,
        Chain { shard, members }: Chain,
        operations: &[Operation<'_>],
    ) -> Vec<(usize, OperationResult)> {
        let mut done = Vec::with_capacity(members.len());
        let mut waiting: Vec<&[usize]> = members.chunks(MAX_OPERATIONS).rev().collect();
        while let Some(batch) = waiting.pop() {
            let batch_operations: Vec<_> = batch.iter().map(|&index| &operations[index]).collect();
            let mut body = self.encode(&batch_operations, Histories::Sent);
            if is_too_long(&body) {
                if let (first, second @ [_, ..]) = batch.split_at(batch.len().div_ceil(2)) {
                    waiting.extend([second, first]);
                    continue;
                }
                // Without the policies in between, buckets are converted to the current one at once.
                body = self.encode(&batch_operations, Histories::Omitted);
            }
            let results = match body {
                Ok(body) => self.execute(shard, &batch_operations, body).await,
                Err(error) => repeat(error, batch.len()),
            };
            done.extend(batch.iter().copied().zip(results));
        }
        done
    }
}

/// Whether a request has the earlier policies that its shards may not know.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Histories {
    Sent,
    Omitted,
}

fn is_too_long(body: &Result<Vec<u8>, StoreError>) -> bool {
    body.as_ref().is_ok_and(|body| body.len() > MAX_BATCH_BYTES)
}

fn malformed(reason: String) -> StoreError {
    DurableStoreError::Malformed(reason).into_store_error()
}

impl Store for DurableStore {
    fn submit<'a>(
        &'a self,
        operations: &'a [Operation<'a>],
        responses: &'a mut StoreResponses,
    ) -> Submission<'a> {
        Submission::Pending(Box::pin(self.execute_all(operations, responses)))
    }

    /// Sends an empty batch to one shard. Unlike a request without the secret, it finds out whether
    /// the Worker would execute operations of this client.
    fn probe(&self) -> Probe<'_> {
        Box::pin(async {
            let body = self.encode(&[], Histories::Sent)?;
            self.exchange(Some(0), body).await.map(drop)
        })
    }
}

fn targets<'a>(operation: &Operation<'a>) -> Vec<Target<'a>> {
    match *operation {
        Operation::Take(charges)
        | Operation::Peek(charges)
        | Operation::Reserve { charges, .. } => {
            charges.iter().map(|charge| charge.target).collect()
        }
        Operation::Settle { corrections, .. } => corrections.iter().map(|c| c.target).collect(),
        Operation::Release { targets, .. } | Operation::Renew { targets, .. } => targets.to_vec(),
        Operation::Hold { target, .. } | Operation::Reset { target } => vec![target],
        _ => Vec::new(),
    }
}

fn all_failed(count: usize, error: impl Fn() -> StoreError) -> Vec<OperationResult> {
    (0..count).map(|_| Err(error())).collect()
}

/// Returns one error for every operation of a request. Only the first one has the cause.
fn repeat(error: StoreError, count: usize) -> Vec<OperationResult> {
    let text = error.to_string();
    let again = |error: &StoreError| match error {
        StoreError::TimedOut => StoreError::TimedOut,
        StoreError::Rejected(_) => StoreError::Rejected(text.clone().into()),
        _ => StoreError::Unavailable(text.clone().into()),
    };
    let mut results: Vec<OperationResult> = (1..count).map(|_| Err(again(&error))).collect();
    results.insert(0, Err(error));
    results
}

#[cfg(test)]
mod tests {
    use tidegate_core::{Charge, Policy, PolicyChange};

    use super::*;

    /// Returns how many times a request with these lists has earlier policies.
    fn histories(store: &DurableStore, lists: &[&[Charge<'_>]]) -> usize {
        let operations: Vec<_> = lists.iter().map(|list| Operation::Take(list)).collect();
        let operations: Vec<_> = operations.iter().collect();
        let body = store.encode(&operations, Histories::Sent).unwrap();
        String::from_utf8(body).unwrap().matches("\"past\"").count()
    }

    #[test]
    fn history_is_sent_once_per_request_until_all_shards_of_the_limit_have_confirmed_it() {
        let store = DurableStore::builder("durable+http://127.0.0.1:1").build().unwrap();
        let policy = |capacity| Policy::per_second(1).capacity(capacity).build().unwrap();
        let revised = |name| {
            let first = Limit::named(name, policy(10)).unwrap();
            first.revise(policy(4), PolicyChange::KeepTokens).unwrap()
        };
        let (a, b) = (revised("a"), revised("b"));
        let list = [&a, &b, &a].map(|limit| Charge::new(limit, "user:1", 1));
        let across = ["user:1", "user:2"].map(|key| Charge::new(&a, key, 1));
        assert_eq!(histories(&store, &[&list, &list]), 2, "one per limit");
        assert_eq!(histories(&store, &[&across]), 1);
        store.known.confirm(75, &a);
        assert_eq!(histories(&store, &[&list, &list]), 1, "the shard of user:1 knows a");
        assert_eq!(histories(&store, &[&across]), 1, "that of user:2 does not");
        store.known.confirm(94, &a);
        assert_eq!(histories(&store, &[&across]), 0);
    }
}
