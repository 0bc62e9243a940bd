//! The store: operations in, one request per shard out.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use http::HeaderValue;
use tidegate_core::{
    Key, Limit, Operation, Probe, Store, StoreError, StoreResponse, StoreResponses, Submission,
    decide,
};
use tidegate_shard::message::{Batch, FORMAT, MAX_OPERATIONS, OperationMessage, Replies};
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
        }
    }

    /// Sets the time of the objects, in nanoseconds since the Unix epoch. Only a Worker with a
    /// manual clock uses it.
    #[cfg(feature = "manual-clock")]
    pub fn set_manual_time(&self, nanos: u64) {
        self.manual_time.store(nanos, Ordering::SeqCst);
    }

    /// Returns the shard of all keys of an operation; `None` if they are in several.
    fn shard_of_all(&self, operation: &Operation<'_>) -> Option<u32> {
        let mut shards = keys(operation).into_iter().map(|key| shard_of(key, self.shards));
        let first = shards.next()?;
        shards.all(|shard| shard == first).then_some(first)
    }

    /// Executes operations on one shard, or on several for `None`.
    async fn execute(
        &self,
        shard: Option<u32>,
        operations: &[&Operation<'_>],
    ) -> Vec<OperationResult> {
        let now = self.now();
        let sync = |limit: &Limit| self.known.sync(shard, limit, now);
        let messages: Option<Vec<_>> =
            operations.iter().map(|operation| OperationMessage::new(operation, sync)).collect();
        let Some(messages) = messages else {
            return all_failed(operations.len(), || {
                DurableStoreError::Unsupported.into_store_error()
            });
        };
        let result = self.exchange(shard, messages).await;
        let replies = match result {
            Ok(replies) if replies.replies.len() == operations.len() => replies,
            Ok(_) => {
                let reason = "it has another number of replies than there were operations";
                let error = DurableStoreError::Malformed(reason.to_owned());
                return all_failed(operations.len(), || error.clone().into_store_error());
            }
            Err(error) => return repeat(error, operations.len()),
        };
        if let Some(shard) = shard {
            for limit in operations.iter().flat_map(|operation| limits(operation)) {
                self.known.confirm(shard, limit);
            }
        }
        replies.replies.iter().map(tidegate_shard::message::ReplyMessage::to_response).collect()
    }

    async fn exchange(
        &self,
        shard: Option<u32>,
        operations: Vec<OperationMessage>,
    ) -> Result<Replies, StoreError> {
        let batch = Batch { format: FORMAT, node: Some(self.node), operations };
        let malformed = |reason: String| DurableStoreError::Malformed(reason).into_store_error();
        let body = serde_json::to_vec(&batch).map_err(|error| malformed(error.to_string()))?;
        let path = match shard {
            Some(shard) => format!("/shards/{shard}/operations?shards={}", self.shards),
            None => format!("/operations?shards={}", self.shards),
        };
        let response = self.client.post(&path, body, self.headers()).await?;
        Replies::parse(&response).map_err(malformed)
    }

    /// The time of this client, with which it measures the age of its policies.
    fn now(&self) -> Duration {
        match self.manual_time.load(Ordering::SeqCst) {
            0 => self.created.elapsed(),
            nanos => Duration::from_nanos(nanos),
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
            let keys = keys(operation);
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

    /// Sends the requests of a chain one after the other.
    async fn execute_chain(
        &self,
        Chain { shard, members }: Chain,
        operations: &[Operation<'_>],
    ) -> Vec<(usize, OperationResult)> {
        let mut done = Vec::with_capacity(members.len());
        for batch in members.chunks(MAX_OPERATIONS) {
            let batch_operations: Vec<_> = batch.iter().map(|&index| &operations[index]).collect();
            let results = self.execute(shard, &batch_operations).await;
            done.extend(batch.iter().copied().zip(results));
        }
        done
    }
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
        Box::pin(async { self.exchange(Some(0), Vec::new()).await.map(drop) })
    }
}

fn keys<'a>(operation: &Operation<'a>) -> Vec<Key<'a>> {
    match *operation {
        Operation::Take(charges)
        | Operation::Peek(charges)
        | Operation::Reserve { charges, .. } => {
            charges.iter().map(|charge| charge.target.key).collect()
        }
        Operation::Settle { corrections, .. } => corrections.iter().map(|c| c.target.key).collect(),
        Operation::Release { targets, .. } | Operation::Renew { targets, .. } => {
            targets.iter().map(|target| target.key).collect()
        }
        Operation::Hold { target, .. } | Operation::Reset { target } => vec![target.key],
        _ => Vec::new(),
    }
}

fn limits<'a>(operation: &Operation<'a>) -> Vec<&'a Limit> {
    match *operation {
        Operation::Take(charges)
        | Operation::Peek(charges)
        | Operation::Reserve { charges, .. } => {
            charges.iter().map(|charge| charge.target.limit).collect()
        }
        Operation::Settle { corrections, .. } => {
            corrections.iter().map(|c| c.target.limit).collect()
        }
        Operation::Release { targets, .. } | Operation::Renew { targets, .. } => {
            targets.iter().map(|target| target.limit).collect()
        }
        Operation::Hold { target, .. } | Operation::Reset { target } => vec![target.limit],
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
