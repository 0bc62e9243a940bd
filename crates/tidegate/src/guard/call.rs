//! One call through a guard: the store is asked, and what it does not answer in time is answered
//! in its place.

use std::error::Error;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{Answer, Answers, Operation, Store, StoreError};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use super::breaker::{Breaker, Number, Turn};
use super::fallback::Fallback;
use super::stats::Counters;
use super::{NotAsked, deadline, prober};

/// What clones of a guard share.
pub(super) struct Inner<S: ?Sized> {
    pub(super) timeout: Duration,
    pub(super) breaker: Breaker,
    fallback: Fallback,
    pub(super) counters: Counters,
    /// Degraded decisions before the store went down last.
    degraded_before: AtomicU64,
    /// That the store was not asked for want of a runtime has been told.
    told: Once,
    pub(super) store: Arc<S>,
}

/// Asks the store, and answers in its place what it does not answer in time.
pub(super) async fn ask<S: Store + ?Sized + 'static>(
    guard: &Arc<Inner<S>>,
    operations: &[Operation<'_>],
    answers: &mut Answers,
) {
    // Now and not when the call was made: it may be awaited much later.
    let (turn, span) = match guard.may_ask() {
        Ok(granted) => granted,
        Err(reason) => return guard.answer_all(operations, answers, reason),
    };
    let is_ours = |operation: &&Operation<'_>| guard.fallback.book.knows(operation);
    let asked: SmallVec<[Operation<'_>; 1]> =
        operations.iter().filter(|operation| !is_ours(operation)).copied().collect();
    let mut given = Answers::new();
    if !asked.is_empty() {
        let in_time = timeout(span, guard.store.submit(&asked, &mut given)).await.is_ok();
        given.truncate(asked.len());
        while given.len() < asked.len() {
            given.push(Err(if in_time { no_answer() } else { StoreError::TimedOut }));
        }
        note(guard, turn, &given, if in_time { None } else { Some(span) });
    }
    let mut given = given.into_iter();
    for operation in operations {
        answers.push(if is_ours(&operation) {
            guard.fallback.book.answer(operation)
        } else {
            guard.confirm(operation, given.next().unwrap_or_else(|| Err(no_answer())))
        });
    }
}

/// Notes how a call went; `cut_off` is the time that one had which was not answered in it.
fn note<S: Store + ?Sized + 'static>(
    guard: &Arc<Inner<S>>,
    turn: Turn,
    given: &Answers,
    cut_off: Option<Duration>,
) {
    let failure = |answer: &Result<_, StoreError>| answer.as_ref().err().is_some_and(is_failure);
    if let Some(span) = cut_off {
        guard.counters.timed_out();
        // Somebody in a great hurry learns nothing about the store.
        if span < guard.timeout / 4 {
            return;
        }
    } else if given.iter().any(failure) {
        guard.counters.failed();
        // A store that answers some of it is there.
        if !given.iter().all(failure) {
            return guard.breaker.answered();
        }
    } else {
        guard.fallback.see(guard.store.nodes());
        return guard.breaker.answered();
    }
    let now = Instant::now();
    if guard.breaker.failed(turn, now, prober::jitter()) {
        guard.went_down(given.iter().find_map(|answer| answer.as_ref().err()));
        prober::attend(guard, now);
    }
}

impl<S: ?Sized> Inner<S> {
    pub(super) fn new(timeout: Duration, fallback: Fallback, store: Arc<S>) -> Self {
        Self {
            timeout,
            breaker: Breaker::default(),
            fallback,
            counters: Counters::default(),
            degraded_before: AtomicU64::new(0),
            told: Once::new(),
            store,
        }
    }

    /// Whether the store is to be asked, and how long it may be waited for.
    fn may_ask(&self) -> Result<(Turn, Duration), NotAsked> {
        let turn = self.breaker.begin().ok_or(NotAsked::Down)?;
        if Handle::try_current().is_err() {
            self.told.call_once(|| {
                tracing::warn!("a store is asked outside of any tokio runtime: rules decide there");
            });
            return Err(NotAsked::NoRuntime);
        }
        let span = deadline::time_for(self.timeout);
        if span.is_zero() { Err(NotAsked::TooLate) } else { Ok((turn, span)) }
    }

    fn went_down(&self, error: Option<&StoreError>) {
        self.counters.went_down();
        self.degraded_before.store(self.counters.read().degraded(), Ordering::Relaxed);
        let error = error.map(|error| error as &(dyn Error + 'static));
        tracing::warn!(error, "the store does not answer: failure rules decide until it does");
    }

    pub(super) fn recovered(&self, prober: Number) {
        if let Some(down) = self.breaker.recovered(prober, Instant::now()) {
            let before = self.degraded_before.load(Ordering::Relaxed);
            let degraded = self.counters.read().degraded().saturating_sub(before);
            tracing::info!(?down, degraded, "the store answers again and decides");
        }
    }
}

impl<S: Store + ?Sized> Inner<S> {
    /// Answers everything without the store.
    pub(super) fn answer_all(
        &self,
        operations: &[Operation<'_>],
        answers: &mut Answers,
        reason: NotAsked,
    ) {
        answers.extend(operations.iter().map(|operation| {
            if self.fallback.book.knows(operation) {
                return self.fallback.book.answer(operation);
            }
            self.instead(operation, || StoreError::Unavailable(reason.into()))
        }));
    }

    /// The store's answer, or one in its place if it has failed.
    fn confirm(
        &self,
        operation: &Operation<'_>,
        answer: Result<Answer, StoreError>,
    ) -> Result<Answer, StoreError> {
        match (operation, answer) {
            (_, Err(error)) if is_failure(&error) => self.instead(operation, || error),
            (Operation::Reset { target }, Ok(answer)) => {
                self.fallback.forget(target, self.nodes_now());
                Ok(answer)
            }
            (_, answer) => answer,
        }
    }

    fn instead(
        &self,
        operation: &Operation<'_>,
        error: impl FnOnce() -> StoreError,
    ) -> Result<Answer, StoreError> {
        let hint = || self.breaker.hint(Instant::now());
        let answer = self.fallback.answer(operation, self.nodes_now(), hint, error);
        if let Ok(Answer::Decision(decision)) = &answer {
            decision.degraded().into_iter().for_each(|rule| self.counters.degraded(rule));
        }
        answer
    }

    fn nodes_now(&self) -> NonZeroU32 {
        self.fallback.nodes(self.store.nodes())
    }
}

/// Whether the store did not answer. What is the caller's fault, or for want of room, is an
/// answer.
const fn is_failure(error: &StoreError) -> bool {
    matches!(error, StoreError::TimedOut | StoreError::Unavailable(_))
}

fn no_answer() -> StoreError {
    StoreError::Unavailable("the store gave no answer".into())
}
