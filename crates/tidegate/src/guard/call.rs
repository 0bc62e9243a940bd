//! One call through a guard: calls the store, and decides by the failure rules what the store does
//! not answer in time.

use std::error::Error;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{
    FailureRule, Operation, Store, StoreError, StoreResponse, StoreResponses, Time,
};
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::breaker::{Breaker, Epoch, ProberId};
use super::fallback::{Fallback, FallbackContext};
use super::holds::{self, PendingHolds};
use super::nodes::Nodes;
use super::stats::Counters;
use super::{NotCalled, deadline, prober};
use crate::store_handle::missing_response;

/// State shared by the clones of a guard.
pub(super) struct Inner {
    pub(super) timeout: Duration,
    pub(super) breaker: Breaker,
    pub(super) fallback: Fallback,
    nodes: Nodes,
    pub(super) holds: PendingHolds,
    /// When [`GuardedStore::check`](super::GuardedStore::check) last probed the store.
    pub(super) checked: Mutex<Option<Instant>>,
    pub(super) counters: Counters,
    /// Degraded decisions before the store last went down.
    degraded_before: AtomicU64,
    /// Whether the warning about a missing runtime has been logged.
    no_runtime_logged: Once,
    /// Whether the warning about a rejected operation has been logged since the store came up.
    rejection_logged: AtomicBool,
    pub(super) store: Arc<dyn Store>,
}

/// Calls the store, and answers by the failure rules what it does not answer in time.
pub(super) async fn call_store(
    guard: &Arc<Inner>,
    operations: &[Operation<'_>],
    answers: &mut StoreResponses,
) {
    // Checked here and not when the future was created: it may be awaited much later.
    let (epoch, span) = match guard.begin_call() {
        Ok(granted) => granted,
        Err(reason) => {
            return guard
                .answer_without_store(operations, answers, reason.most_lenient(), || reason);
        }
    };
    let is_own_receipt = |operation: &&Operation<'_>| guard.fallback.local.has_issued(operation);
    let forwarded: SmallVec<[Operation<'_>; 1]> =
        operations.iter().filter(|operation| !is_own_receipt(operation)).copied().collect();
    let mut received = StoreResponses::new();
    let timeout_kind =
        if span < guard.timeout { TimeoutKind::Shortened } else { TimeoutKind::Full };
    if !forwarded.is_empty() {
        let in_time = timeout(span, guard.store.submit(&forwarded, &mut received)).await.is_ok();
        received.truncate(forwarded.len());
        while received.len() < forwarded.len() {
            received.push(Err(if in_time { missing_response() } else { StoreError::TimedOut }));
        }
        record_result(guard, epoch, &received, if in_time { None } else { Some(timeout_kind) });
    }
    let mut received = received.into_iter();
    for operation in operations {
        answers.push(if is_own_receipt(&operation) {
            guard.fallback.local.answer(operation, guard.node_count())
        } else {
            guard.answer_or_fall_back(
                operation,
                received.next().unwrap_or_else(|| Err(missing_response())),
                timeout_kind,
            )
        });
    }
}

/// How long a caller waits for the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeoutKind {
    /// The timeout of the guard.
    Full,
    /// Less, because of the caller's own deadline.
    Shortened,
}

/// Records the result of a call; `cut_off` is set if the call did not complete in time.
fn record_result(
    guard: &Arc<Inner>,
    epoch: Epoch,
    received: &StoreResponses,
    cut_off: Option<TimeoutKind>,
) {
    let failed = |answer: &Result<_, StoreError>| answer.as_ref().err().is_some_and(is_failure);
    if cut_off.is_some() {
        guard.counters.timed_out();
    } else if received.iter().any(failed) {
        guard.counters.failed();
    }
    // A store that answers part of the call is up.
    if !received.iter().all(failed) {
        guard.breaker.call_succeeded();
        guard.nodes.store_answered();
        return holds::spawn_delivery(guard);
    }
    let now = Instant::now();
    if cut_off == Some(TimeoutKind::Shortened) {
        // A shortened timeout says nothing about the store. A probe with the full timeout does.
        prober::verify_store(guard, epoch, now);
    } else if guard.breaker.call_failed(epoch, now, prober::jitter()) {
        mark_down(guard, received.iter().find_map(|answer| answer.as_ref().err()), now);
    }
}

/// Marks the store as down.
pub(super) fn mark_down(guard: &Arc<Inner>, error: Option<&StoreError>, now: Instant) {
    guard.nodes.store_went_down();
    guard.counters.went_down();
    guard.degraded_before.store(guard.counters.read().degraded(), Ordering::Relaxed);
    let error = error.map(|error| error as &(dyn Error + 'static));
    tracing::warn!(error, "store is down; deciding by failure rules");
    prober::ensure_probing(guard, now);
}

/// Marks the store as up after a successful probe.
pub(super) fn mark_up(guard: &Arc<Inner>, prober: ProberId) {
    if let Some(down) = guard.breaker.probe_succeeded(prober, Instant::now()) {
        let before = guard.degraded_before.load(Ordering::Relaxed);
        let degraded = guard.counters.read().degraded().saturating_sub(before);
        tracing::info!(down_for = ?down, degraded_decisions = degraded, "store is up again");
        guard.rejection_logged.store(false, Ordering::Relaxed);
        guard.nodes.store_answered();
        guard.holds.retry_now();
        holds::spawn_delivery(guard);
    }
}

impl Inner {
    pub(super) fn new(
        timeout: Duration,
        fallback: Fallback,
        nodes: Nodes,
        store: Arc<dyn Store>,
    ) -> Self {
        Self {
            timeout,
            breaker: Breaker::default(),
            fallback,
            nodes,
            holds: PendingHolds::default(),
            checked: Mutex::const_new(None),
            counters: Counters::default(),
            degraded_before: AtomicU64::new(0),
            no_runtime_logged: Once::new(),
            rejection_logged: AtomicBool::new(false),
            store,
        }
    }

    /// The current epoch and the timeout, if the store can be called.
    fn begin_call(&self) -> Result<(Epoch, Duration), NotCalled> {
        let epoch = self.breaker.current_epoch().ok_or_else(|| self.down())?;
        if Handle::try_current().is_err() {
            self.no_runtime_logged.call_once(|| {
                tracing::warn!("store called outside a tokio runtime; deciding by failure rules");
            });
            return Err(NotCalled::NoRuntime);
        }
        let span = deadline::effective_timeout(self.timeout);
        if span.is_zero() { Err(NotCalled::DeadlinePassed) } else { Ok((epoch, span)) }
    }

    /// Why a store that is down is not called.
    pub(super) fn down(&self) -> NotCalled {
        NotCalled::Down { retry_after: self.retry_after() }
    }

    /// Time until a retry makes sense.
    fn retry_after(&self) -> Duration {
        self.breaker.retry_after(Instant::now())
    }

    /// Current time by the clock of the guard's own store.
    pub(super) fn time(&self) -> Time {
        self.fallback.local.store().now()
    }

    fn log_rejection(&self, error: &StoreError) {
        self.counters.rejected();
        if !self.rejection_logged.swap(true, Ordering::Relaxed) {
            let error = error as &(dyn Error + 'static);
            tracing::warn!(
                error,
                "store rejected an operation; further rejections are counted, not logged"
            );
        }
    }
}

impl Inner {
    /// Answers all operations without the store, by no rule more lenient than `most_lenient`.
    pub(super) fn answer_without_store(
        &self,
        operations: &[Operation<'_>],
        answers: &mut StoreResponses,
        most_lenient: FailureRule,
        reason: impl Fn() -> NotCalled,
    ) {
        answers.extend(operations.iter().map(|operation| {
            if self.fallback.local.has_issued(operation) {
                return self.fallback.local.answer(operation, self.node_count());
            }
            self.fall_back(operation, most_lenient, || StoreError::Unavailable(reason().into()))
        }));
    }

    /// Returns the store's answer, or decides by the failure rules if there is none.
    fn answer_or_fall_back(
        &self,
        operation: &Operation<'_>,
        answer: Result<StoreResponse, StoreError>,
        timeout_kind: TimeoutKind,
    ) -> Result<StoreResponse, StoreError> {
        let error = match answer {
            Ok(answer) => {
                self.mirror_locally(operation, &answer);
                return Ok(answer);
            }
            Err(error) => error,
        };
        let most_lenient = match &error {
            // Neither a working store nor a short deadline is a reason to allow everything.
            StoreError::Rejected(_) => {
                self.log_rejection(&error);
                FailureRule::Local
            }
            StoreError::TimedOut if timeout_kind == TimeoutKind::Shortened => FailureRule::Local,
            error if is_failure(error) => FailureRule::Open,
            _ => return Err(error),
        };
        self.fall_back(operation, most_lenient, || error)
    }

    /// Repeats locally what the store has done, where the effect has to outlast an outage.
    fn mirror_locally(&self, operation: &Operation<'_>, answer: &StoreResponse) {
        match (operation, answer) {
            (Operation::Hold { target, .. }, StoreResponse::HeldFor(span)) => {
                // If there is no space for it here, the store's own hold still applies.
                let _ = self.fallback.hold(target, *span, self.context(FailureRule::Local));
            }
            (Operation::Reset { target }, _) => {
                self.fallback.forget(target, self.node_count());
                self.holds.remove(target);
            }
            _ => {}
        }
    }

    fn fall_back(
        &self,
        operation: &Operation<'_>,
        most_lenient: FailureRule,
        error: impl FnOnce() -> StoreError,
    ) -> Result<StoreResponse, StoreError> {
        let answer = self.fallback.answer(
            operation,
            self.context(most_lenient),
            || self.retry_after(),
            error,
        );
        match (operation, &answer) {
            (_, Ok(StoreResponse::Decision(decision))) => {
                decision.degraded().into_iter().for_each(|rule| self.counters.degraded(rule));
            }
            (Operation::Hold { target, .. }, Ok(StoreResponse::HeldFor(span))) => {
                let now = self.time();
                self.holds.add(target, now.after(*span), now);
            }
            (Operation::Reset { target }, _) => self.holds.remove(target),
            _ => {}
        }
        answer
    }

    fn context(&self, most_lenient: FailureRule) -> FallbackContext {
        FallbackContext { nodes: self.node_count(), most_lenient }
    }

    fn node_count(&self) -> NonZeroU32 {
        self.nodes.count(self.store.nodes())
    }
}

/// Whether the store did not answer. An error that the caller caused, that one operation caused, or
/// that means missing space is an answer.
pub(super) const fn is_failure(error: &StoreError) -> bool {
    matches!(error, StoreError::TimedOut | StoreError::Unavailable(_))
}
