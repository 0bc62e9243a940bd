//! Several independent requests in one call.
//!
//! For a batch, an in-process store reads its clock once and prefetches the memory of several keys,
//! and a shared store makes a single round trip. A batch is not all or nothing. For that, pass a
//! list of charges to [`Engine`](crate::Engine); a request of a batch can be such a list.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::ptr;

use tidegate_core::{Operation, StoreError, StoreResponses, WallTime};

use crate::live_limit::LiveLimit;
use crate::request::{
    DeferredOperation, FromAnswer, OperationBuf, PreparedOperation, Request, Snapshots,
};
use crate::store_handle::{StoreHandle, missing_response, now_or_never};

/// Requests that are sent together, decided in order and independently, with one result each.
///
/// Nothing happens until the batch runs: with [`now`](Self::now) on the in-process store, or with
/// `.await` on any store. An invalid request fails by itself and does not affect the others.
///
/// ```
/// use tidegate::{Batch, Limiter, Policy};
/// let limiter = Limiter::new(Policy::per_second(1).capacity(2).build()?);
/// let keys = ["alice", "bob", "alice", "alice"];
/// let batch: Batch<_> = keys.iter().map(|key| limiter.take(*key)).collect();
/// let mut allowed = Vec::new();
/// for decision in batch.now() {
///     allowed.push(decision?.is_allowed());
/// }
/// assert_eq!(allowed, [true, true, true, false]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// To mix requests of different kinds, convert them with [`into_any`](Request::into_any):
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Batch, Limiter, Policy};
/// use tidegate_core::StoreResponse;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::new(Policy::per_second(1).capacity(2).build()?);
/// let answers = Batch::new()
///     .with(limiter.take("alice").into_any())
///     .with(limiter.hold("alice", Duration::from_secs(9)).into_any())
///     .with(limiter.take("alice").into_any())
///     .await;
/// assert!(matches!(&answers[0], Ok(StoreResponse::Decision(decision)) if decision.is_allowed()));
/// assert!(matches!(&answers[1], Ok(StoreResponse::HeldFor(_))));
/// assert!(matches!(&answers[2], Ok(StoreResponse::Decision(decision)) if !decision.is_allowed()));
/// # Ok(())
/// # }
/// ```
///
/// A batch has no size limit of its own. Set one if untrusted clients can fill it.
#[must_use = "nothing happens until the batch is awaited, or run with `now`"]
pub struct Batch<'a, T> {
    requests: Vec<(&'a StoreHandle, DeferredOperation<'a>)>,
    response: PhantomData<fn() -> T>,
}

impl<'a, T> Batch<'a, T> {
    /// Creates an empty batch.
    pub const fn new() -> Self {
        Self { requests: Vec::new(), response: PhantomData }
    }

    /// Adds a request to the end of the batch.
    pub fn with(mut self, request: Request<'a, T>) -> Self {
        self.requests.push(request.into_parts());
        self
    }

    /// Number of requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether the batch has no requests.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Runs of consecutive requests for the same store. Nearly always there is only one run.
    fn runs(
        &self,
    ) -> impl Iterator<Item = (&'a StoreHandle, &[(&'a StoreHandle, DeferredOperation<'a>)])> {
        let runs = self.requests.chunk_by(|(store, _), (next, _)| store.ptr_eq(next));
        runs.filter_map(|run| Some((run.first()?.0, run)))
    }
}

impl<'a, T: FromAnswer + Send + 'a> Batch<'a, T> {
    /// Runs all requests at once, on the in-process store. The results are in the order of the
    /// requests. If a store is shared, nothing is sent and every result is an error.
    pub fn now(self) -> Vec<Result<T, StoreError>> {
        if self.requests.iter().any(|(store, _)| store.local().is_none()) {
            return self.requests.iter().map(|_| Err(StoreError::MustAwait)).collect();
        }
        now_or_never(self.run()).unwrap_or_default()
    }

    async fn run(self) -> Vec<Result<T, StoreError>> {
        let mut results = Vec::with_capacity(self.len());
        for (store, run) in self.runs() {
            let prepared = PreparedBatch::new(run);
            let (buffers, mut responses) = (prepared.buffers(), StoreResponses::new());
            store.submit(&operations(&buffers), &mut responses).await;
            prepared.resolve(responses, &mut results);
        }
        results
    }
}

impl<'a, T: FromAnswer + Send + 'a> IntoFuture for Batch<'a, T> {
    type Output = Vec<Result<T, StoreError>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// Operations to send, with the policies in force when the batch was prepared.
struct PreparedBatch<'c, 'a> {
    /// Policies of the operations; consecutive operations on the same limit share one.
    snapshots: Vec<Snapshots>,
    /// Each operation, and the index of its policies.
    prepared: Vec<(PreparedOperation<'c, 'a>, usize)>,
}

impl<'c, 'a> PreparedBatch<'c, 'a> {
    fn new(requests: &'c [(&'a StoreHandle, DeferredOperation<'a>)]) -> Self {
        let (mut snapshots, mut last) = (Vec::new(), None::<(&LiveLimit, WallTime)>);
        let prepared = requests.iter().map(|(store, operation)| {
            let live_limit = operation.live_limit();
            let is_same = live_limit.zip(last).is_some_and(
                |((live_limit, wall), (last_limit, last_wall))| {
                    ptr::eq(live_limit, last_limit) && wall == last_wall
                },
            );
            if !is_same {
                snapshots.push(operation.snapshots());
                last = live_limit;
            }
            (PreparedOperation::new(operation, store), snapshots.len() - 1)
        });
        let prepared = prepared.collect();
        Self { snapshots, prepared }
    }

    fn iter(&self) -> impl Iterator<Item = (&PreparedOperation<'c, 'a>, &Snapshots)> {
        self.prepared.iter().map(|(prepared, index)| (prepared, &self.snapshots[*index]))
    }

    fn buffers(&self) -> Vec<OperationBuf<'_>> {
        self.iter().map(|(prepared, snapshots)| prepared.operation_buf(snapshots)).collect()
    }

    /// Adds one result per operation. An operation without a response from the store gets an error.
    fn resolve<T: FromAnswer>(
        &self,
        responses: StoreResponses,
        results: &mut Vec<Result<T, StoreError>>,
    ) {
        let mut responses = responses.into_iter();
        results.extend(self.iter().map(|(prepared, snapshots)| {
            let response = responses.next().unwrap_or_else(|| Err(missing_response()));
            prepared.resolve(snapshots, response)
        }));
    }
}

fn operations<'p>(buffers: &'p [OperationBuf<'_>]) -> Vec<Operation<'p>> {
    buffers.iter().map(OperationBuf::operation).collect()
}

impl<T> Default for Batch<'_, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a, T> Extend<Request<'a, T>> for Batch<'a, T> {
    fn extend<I: IntoIterator<Item = Request<'a, T>>>(&mut self, requests: I) {
        self.requests.extend(requests.into_iter().map(Request::into_parts));
    }
}

impl<'a, T> FromIterator<Request<'a, T>> for Batch<'a, T> {
    fn from_iter<I: IntoIterator<Item = Request<'a, T>>>(requests: I) -> Self {
        let mut batch = Self::new();
        batch.extend(requests);
        batch
    }
}

impl<T> fmt::Debug for Batch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.requests.iter().map(|(_, operation)| operation)).finish()
    }
}
