//! The store: executes operations over one connection.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::decide::{self, DecisionMode};
use tidegate_core::hash::mix;
use tidegate_core::{
    BucketLocation, ChargeError, ChargeRecord, MAX_SPAN, Operation, Policy, Probe, Receipt, Store,
    StoreError, StoreResponse, StoreResponses, Submission, Target,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::batcher::QueuedCall;
use crate::builder::RedisBuilder;
use crate::connection::Connection;
use crate::error::{CallError, RedisStoreError};
use crate::format::script_args::{is_countable, script_args};
use crate::job::{Code, Job, MAX_JOBS, MAX_KEYS, Replies, ScriptKind};
use crate::operation::list_entry::List;
use crate::operation::{Context, PreparedOperation, ReplyOutcome, lease_job};
use crate::policy_history::PolicyHistory;
use crate::policy_sync::PolicyHistories;

/// Maximum number of retries of an operation because of a concurrent policy change.
const MAX_RETRIES: usize = 8;

/// Buckets in Redis or Valkey, shared by all processes that use the same server and prefix.
///
/// Cheap to clone; clones share one connection.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use tidegate_redis::RedisStore;
/// let store = RedisStore::builder("redis://127.0.0.1:6379").open()?;
/// store.connected().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisStore(Arc<Inner>);

pub(crate) struct Inner {
    connection: Arc<Connection>,
    outbox: mpsc::UnboundedSender<QueuedCall>,
    /// Background tasks, aborted with the store.
    tasks: OnceLock<[AbortHandle; 3]>,
    ttl: Option<Duration>,
    issuer: u64,
    lease_counter: AtomicU64,
    histories: PolicyHistories,
}

impl Drop for Inner {
    fn drop(&mut self) {
        for task in self.tasks.get().into_iter().flatten() {
            task.abort();
        }
    }
}

impl RedisStore {
    /// Configures a store at an address such as `redis://user:password@host:6379/0`, or `rediss://`
    /// with the feature `tls`.
    pub fn builder(address: &str) -> RedisBuilder {
        RedisBuilder::new(address)
    }

    pub(crate) fn new(
        connection: Arc<Connection>,
        outbox: mpsc::UnboundedSender<QueuedCall>,
        ttl: Option<Duration>,
        lease_counter: u64,
    ) -> Self {
        let issuer = connection.names.issuer();
        Self(Arc::new(Inner {
            connection,
            outbox,
            tasks: OnceLock::new(),
            ttl,
            issuer,
            lease_counter: AtomicU64::new(lease_counter),
            histories: PolicyHistories::default(),
        }))
    }

    /// Registers the background tasks, to be aborted with the store.
    pub(crate) fn set_tasks(&self, tasks: [AbortHandle; 3]) {
        let _ = self.0.tasks.set(tasks);
    }

    pub(crate) fn downgrade(&self) -> Weak<Inner> {
        Arc::downgrade(&self.0)
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.0.connection
    }

    /// Waits for the first connection attempt.
    ///
    /// # Errors
    /// Returns the error of a failed attempt. The store keeps trying.
    pub async fn connected(&self) -> Result<(), RedisStoreError> {
        self.0.connection.first_attempt().await
    }

    pub(crate) fn histories(&self) -> &PolicyHistories {
        &self.0.histories
    }

    pub(crate) fn context(&self) -> Context<'_> {
        Context { names: &self.0.connection.names, issuer: self.0.issuer, ttl: self.0.ttl }
    }

    /// Returns a lease number that is unique across processes.
    fn next_lease(&self) -> u64 {
        mix(self.0.lease_counter.fetch_add(1, Ordering::Relaxed))
    }

    /// Executes operations in order.
    async fn execute(&self, operations: &[Operation<'_>], answers: &mut StoreResponses) {
        let (mut done, mut retries) = (0, 0);
        while let Some(rest) = operations.get(done..).filter(|rest| !rest.is_empty()) {
            let before = answers.len();
            // Retries use the long script.
            let kind = if retries == 0 { ScriptKind::Short } else { ScriptKind::Long };
            let result = self.send_round(rest, kind, answers).await;
            done += answers.len() - before;
            retries = if answers.len() > before { 0 } else { retries + 1 };
            match result {
                Ok(()) if retries < MAX_RETRIES => {}
                Ok(()) => {
                    answers.push(Err(RedisStoreError::PolicyContention.into()));
                    (done, retries) = (done + 1, 0);
                }
                Err(error) => {
                    // The first remaining operation gets the error; the others are tried
                    // separately.
                    answers.push(Err(error));
                    (done, retries) = (done + 1, 0);
                }
            }
        }
    }

    /// Sends as many operations as fit into one call and pushes their answers, up to the first one
    /// that must be sent again.
    async fn send_round(
        &self,
        operations: &[Operation<'_>],
        kind: ScriptKind,
        answers: &mut StoreResponses,
    ) -> Result<(), StoreError> {
        let mut prepared_operations: SmallVec<
            [Result<(PreparedOperation<'_>, ReplySource), StoreError>; 1],
        > = SmallVec::new();
        let (mut jobs, mut keys) = (Vec::new(), 0);
        for operation in operations.iter().take(MAX_JOBS) {
            let prepared = self.prepare(operation).await;
            prepared_operations.push(prepared.and_then(|prepared| {
                let Some(job) = prepared.job(self.context())? else {
                    return Ok((prepared, ReplySource::Known));
                };
                keys += job.keys();
                jobs.push(job);
                Ok((prepared, ReplySource::Server))
            }));
            if keys > MAX_KEYS {
                break;
            }
        }
        let mut replies =
            if jobs.is_empty() { Ok(Replies::default()) } else { self.send_as(kind, jobs).await };
        let now_us = replies.as_ref().map_or(0, |replies| replies.now_us);
        let mut each = replies.as_mut().map(|replies| replies.each.drain(..));
        for prepared in prepared_operations {
            let answer = match (prepared, &mut each) {
                (Err(error), _) => Err(error),
                (Ok((_, ReplySource::Known)), _) => Ok(StoreResponse::Slots(0)),
                (Ok(_), Err(error)) => Err(error.clone().into()),
                (Ok((prepared, ReplySource::Server)), Ok(each)) => {
                    let reply = each.next().ok_or(RedisStoreError::InvalidReply)?;
                    match prepared.interpret(&reply, now_us, self.context()) {
                        Ok(ReplyOutcome::Done(answer)) => Ok(answer),
                        Ok(ReplyOutcome::Retry) => return Ok(()),
                        Ok(ReplyOutcome::Learn(index, number)) => {
                            return self.learn(&prepared, index, number).await;
                        }
                        Ok(ReplyOutcome::Convert(found)) => {
                            return self.convert(&prepared, &found, now_us).await;
                        }
                        Err(error) => Err(error),
                    }
                }
            };
            answers.push(answer);
        }
        Ok(())
    }

    async fn prepare<'o>(
        &self,
        operation: &Operation<'o>,
    ) -> Result<PreparedOperation<'o>, StoreError> {
        let decision = |list, mode| PreparedOperation::Decide { list, mode };
        Ok(match *operation {
            Operation::Take(charges) => {
                decision(self.charge_list(charges).await?, DecisionMode::Take)
            }
            Operation::Peek(charges) => {
                decision(self.charge_list(charges).await?, DecisionMode::Peek)
            }
            Operation::Reserve { charges, horizon } => {
                decision(self.charge_list(charges).await?, DecisionMode::Reserve(horizon))
            }
            Operation::Settle { corrections, receipt } => {
                decide::check_list(corrections.iter().map(|correction| correction.target.key))?;
                if let Some(receipt) = receipt {
                    self.check(receipt, corrections.iter().map(|correction| &correction.target))?;
                }
                let targets = corrections.iter().map(|c| (c.target, i128::from(c.delta)));
                let list = self.list(targets).await?;
                list.check_windows()?;
                PreparedOperation::Settle { list, receipt }
            }
            Operation::Release { targets, receipt } => {
                self.check_leases(targets, receipt)?;
                let leases = slots(targets, receipt).map(|(target, lease)| (target, lease, None));
                PreparedOperation::Leases(lease_job(
                    Code::Release,
                    leases,
                    &self.0.connection.names,
                ))
            }
            Operation::Renew { targets, receipt } => {
                self.check_leases(targets, receipt)?;
                let mut leases: SmallVec<[_; 2]> = SmallVec::new();
                let countable =
                    |(target, _): &(&Target<'_>, u64)| is_countable(target.limit.policy());
                for (target, lease) in slots(targets, receipt).filter(countable) {
                    let history = self.history(target.limit).await?;
                    if let Policy::Concurrency(_) = history.limit().policy() {
                        let policy = history.limit().policy();
                        let args = script_args(policy, history.generation(), 0, None, None)?;
                        leases.push((target, lease, Some(args)));
                    }
                }
                PreparedOperation::Leases(lease_job(
                    Code::Renew,
                    leases.into_iter(),
                    &self.0.connection.names,
                ))
            }
            Operation::Hold { target, span } => {
                decide::check_list([target.key])?;
                let list = self.list(std::iter::once((target, 0))).await?;
                PreparedOperation::Hold { list, span: span.min(MAX_SPAN) }
            }
            Operation::Reset { target } => {
                decide::check_list([target.key])?;
                let list = self.list(std::iter::once((target, 0))).await?;
                PreparedOperation::Reset { list }
            }
            _ => return Err(RedisStoreError::InvalidReply.into()),
        })
    }

    async fn charge_list<'o>(
        &self,
        charges: &'o [tidegate_core::Charge<'o>],
    ) -> Result<List<'o>, StoreError> {
        decide::check_list(charges.iter().map(|charge| charge.target.key))?;
        let targets = charges.iter().map(|charge| (charge.target, i128::from(charge.cost)));
        let list = self.list(targets).await?;
        list.check_windows()?;
        Ok(list)
    }

    async fn list<'o>(
        &self,
        targets: impl Iterator<Item = (Target<'o>, i128)> + Clone,
    ) -> Result<List<'o>, StoreError> {
        let mut histories: SmallVec<[Arc<PolicyHistory>; 2]> = SmallVec::new();
        for (index, (target, _)) in targets.clone().enumerate() {
            if !is_countable(target.limit.policy()) {
                return Err(ChargeError::Uncountable(index).into());
            }
            histories.push(self.history(target.limit).await?);
        }
        let items =
            targets.zip(histories).map(|((target, amount), history)| (target, amount, history));
        Ok(List::new(&self.0.connection.names, items, || self.next_lease()))
    }

    fn check_leases(&self, targets: &[Target<'_>], receipt: &Receipt) -> Result<(), StoreError> {
        decide::check_list(targets.iter().map(|target| target.key))?;
        self.check(receipt, targets.iter())
    }

    fn check<'t>(
        &self,
        receipt: &Receipt,
        targets: impl ExactSizeIterator<Item = &'t Target<'t>>,
    ) -> Result<(), StoreError> {
        let number = |target| self.0.connection.names.entry(target).number();
        Ok(receipt.check(self.0.issuer, targets.map(number))?)
    }

    pub(crate) async fn send(&self, jobs: Vec<Job>) -> Result<Replies, CallError> {
        self.send_as(ScriptKind::Long, jobs).await
    }

    /// Sends jobs, with the short script if `kind` permits it and it supports the single operation.
    async fn send_as(&self, kind: ScriptKind, jobs: Vec<Job>) -> Result<Replies, CallError> {
        let short = kind == ScriptKind::Short
            && matches!(jobs.as_slice(), [job] if job.fits_short_script());
        let kind = if short { ScriptKind::Short } else { ScriptKind::Long };
        let (reply, reply_receiver) = oneshot::channel();
        let ended = CallError::Fault(RedisStoreError::RuntimeEnded);
        if self.0.outbox.send(QueuedCall { kind, jobs, reply }).is_err() {
            return Err(ended);
        }
        reply_receiver.await.unwrap_or(Err(ended))
    }
}

/// What an operation needs for its answer.
#[derive(Clone, Copy, Debug)]
enum ReplySource {
    /// Nothing: the receipt has no slots to release.
    Known,
    Server,
}

/// Returns the leases of a receipt.
fn slots<'o>(
    targets: &'o [Target<'o>],
    receipt: &'o Receipt,
) -> impl Iterator<Item = (&'o Target<'o>, u64)> {
    let lease = |record: &ChargeRecord| match record.location {
        BucketLocation::Slot(lease) => Some(lease),
        _ => None,
    };
    let pairs = targets.iter().zip(receipt.charges());
    pairs.filter_map(move |(target, record)| Some((target, lease(record)?)))
}

impl Store for RedisStore {
    fn submit<'a>(
        &'a self,
        operations: &'a [Operation<'a>],
        answers: &'a mut StoreResponses,
    ) -> Submission<'a> {
        Submission::Pending(Box::pin(self.execute(operations, answers)))
    }

    fn nodes(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.0.connection.nodes())
    }

    fn probe(&self) -> Probe<'_> {
        // An empty call takes the whole path and touches nothing.
        Box::pin(async { self.send(Vec::new()).await.map(|_| ()).map_err(StoreError::from) })
    }
}

impl From<Arc<Inner>> for RedisStore {
    fn from(inner: Arc<Inner>) -> Self {
        Self(inner)
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.0.connection.names.prefix())
            .finish_non_exhaustive()
    }
}
