//! One call through a guard: calls the store, and decides by the failure rules what the store does
//! not answer in time.

use std::error::Error;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{Answer, Answers, FailureRule, Operation, Store, StoreError, Time};
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::breaker::{Breaker, Number, Turn};
use super::fallback::{Case, Fallback};
use super::holds::{self, Holds};
use super::nodes::Nodes;
use super::stats::Counters;
use super::{NotAsked, deadline, prober};
use crate::store_handle::no_answer;

/// State shared by the clones of a guard.
pub(super) struct Inner {
    pub(super) timeout: Duration,
    pub(super) breaker: Breaker,
    pub(super) fallback: Fallback,
    nodes: Nodes,
    pub(super) holds: Holds,
    /// When [`Guarded::check`](super::Guarded::check) last probed the store.
    pub(super) checked: Mutex<Option<Instant>>,
    pub(super) counters: Counters,
    /// Degraded decisions before the store last went down.
    degraded_before: AtomicU64,
    /// Whether the warning about a missing runtime has been logged.
    told: Once,
    /// Whether the warning about a rejected operation has been logged since the store came up.
    told_rejection: AtomicBool,
    pub(super) store: Arc<dyn Store>,
}

/// Calls the store, and answers by the failure rules what it does not answer in time.
pub(super) async fn ask(guard: &Arc<Inner>, operations: &[Operation<'_>], answers: &mut Answers) {
    // Checked here and not when the future was created: it may be awaited much later.
    let (turn, span) = match guard.may_ask() {
        Ok(granted) => granted,
        Err(reason) => {
            return guard.answer_all(operations, answers, reason.most_lenient(), || reason);
        }
    };
    let is_ours = |operation: &&Operation<'_>| guard.fallback.book.knows(operation);
    let asked: SmallVec<[Operation<'_>; 1]> =
        operations.iter().filter(|operation| !is_ours(operation)).copied().collect();
    let mut given = Answers::new();
    let pace = if span < guard.timeout { Pace::Hurried } else { Pace::Full };
    if !asked.is_empty() {
        let in_time = timeout(span, guard.store.submit(&asked, &mut given)).await.is_ok();
        given.truncate(asked.len());
        while given.len() < asked.len() {
            given.push(Err(if in_time { no_answer() } else { StoreError::TimedOut }));
        }
        note(guard, turn, &given, if in_time { None } else { Some(pace) });
    }
    let mut given = given.into_iter();
    for operation in operations {
        answers.push(if is_ours(&operation) {
            guard.fallback.book.answer(operation, guard.nodes_now())
        } else {
            guard.confirm(operation, given.next().unwrap_or_else(|| Err(no_answer())), pace)
        });
    }
}

/// How long a caller waits for the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// The timeout of the guard.
    Full,
    /// Less, because of the caller's own deadline.
    Hurried,
}

/// Records the result of a call; `cut_off` is set if the call did not complete in time.
fn note(guard: &Arc<Inner>, turn: Turn, given: &Answers, cut_off: Option<Pace>) {
    let failed = |answer: &Result<_, StoreError>| answer.as_ref().err().is_some_and(is_failure);
    if cut_off.is_some() {
        guard.counters.timed_out();
    } else if given.iter().any(failed) {
        guard.counters.failed();
    }
    // A store that answers part of the call is up.
    if !given.iter().all(failed) {
        guard.breaker.answered();
        guard.nodes.answered();
        return holds::tell(guard);
    }
    let now = Instant::now();
    if cut_off == Some(Pace::Hurried) {
        // A shortened timeout says nothing about the store. A probe with the full timeout does.
        prober::doubt(guard, turn, now);
    } else if guard.breaker.failed(turn, now, prober::jitter()) {
        went_down(guard, given.iter().find_map(|answer| answer.as_ref().err()), now);
    }
}

/// Marks the store as down.
pub(super) fn went_down(guard: &Arc<Inner>, error: Option<&StoreError>, now: Instant) {
    guard.nodes.lost();
    guard.counters.went_down();
    guard.degraded_before.store(guard.counters.read().degraded(), Ordering::Relaxed);
    let error = error.map(|error| error as &(dyn Error + 'static));
    tracing::warn!(error, "the store does not answer: failure rules decide until it does");
    prober::attend(guard, now);
}

/// Marks the store as up after a successful probe.
pub(super) fn recovered(guard: &Arc<Inner>, prober: Number) {
    if let Some(down) = guard.breaker.recovered(prober, Instant::now()) {
        let before = guard.degraded_before.load(Ordering::Relaxed);
        let degraded = guard.counters.read().degraded().saturating_sub(before);
        tracing::info!(?down, degraded, "the store answers again and decides");
        guard.told_rejection.store(false, Ordering::Relaxed);
        guard.nodes.answered();
        guard.holds.hurry();
        holds::tell(guard);
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
            holds: Holds::default(),
            checked: Mutex::const_new(None),
            counters: Counters::default(),
            degraded_before: AtomicU64::new(0),
            told: Once::new(),
            told_rejection: AtomicBool::new(false),
            store,
        }
    }

    /// The current epoch and the timeout, if the store can be called.
    fn may_ask(&self) -> Result<(Turn, Duration), NotAsked> {
        let turn = self.breaker.begin().ok_or_else(|| self.down())?;
        if Handle::try_current().is_err() {
            self.told.call_once(|| {
                tracing::warn!("a store is asked outside of any tokio runtime: rules decide there");
            });
            return Err(NotAsked::NoRuntime);
        }
        let span = deadline::time_for(self.timeout);
        if span.is_zero() { Err(NotAsked::TooLate) } else { Ok((turn, span)) }
    }

    /// Why a store that is down is not called.
    pub(super) fn down(&self) -> NotAsked {
        NotAsked::Down { retry_after: self.hint() }
    }

    /// Time until a retry makes sense.
    fn hint(&self) -> Duration {
        self.breaker.hint(Instant::now())
    }

    /// Current time by the clock of the guard's own store.
    pub(super) fn time(&self) -> Time {
        self.fallback.book.store().now()
    }

    fn rejected(&self, error: &StoreError) {
        self.counters.rejected();
        if !self.told_rejection.swap(true, Ordering::Relaxed) {
            let error = error as &(dyn Error + 'static);
            tracing::warn!(
                error,
                "the store works, but cannot carry something out; others like it are only counted"
            );
        }
    }
}

impl Inner {
    /// Answers all operations without the store, by no rule more lenient than `most_lenient`.
    pub(super) fn answer_all(
        &self,
        operations: &[Operation<'_>],
        answers: &mut Answers,
        least: FailureRule,
        reason: impl Fn() -> NotAsked,
    ) {
        answers.extend(operations.iter().map(|operation| {
            if self.fallback.book.knows(operation) {
                return self.fallback.book.answer(operation, self.nodes_now());
            }
            self.instead(operation, least, || StoreError::Unavailable(reason().into()))
        }));
    }

    /// Returns the store's answer, or decides by the failure rules if there is none.
    fn confirm(
        &self,
        operation: &Operation<'_>,
        answer: Result<Answer, StoreError>,
        pace: Pace,
    ) -> Result<Answer, StoreError> {
        let error = match answer {
            Ok(answer) => {
                self.follow(operation, &answer);
                return Ok(answer);
            }
            Err(error) => error,
        };
        let least = match &error {
            // Neither a working store nor a short deadline is a reason to allow everything.
            StoreError::Rejected(_) => {
                self.rejected(&error);
                FailureRule::Local
            }
            StoreError::TimedOut if pace == Pace::Hurried => FailureRule::Local,
            error if is_failure(error) => FailureRule::Open,
            _ => return Err(error),
        };
        self.instead(operation, least, || error)
    }

    /// Repeats locally what the store has done, where the effect has to outlast an outage.
    fn follow(&self, operation: &Operation<'_>, answer: &Answer) {
        match (operation, answer) {
            (Operation::Hold { target, .. }, Answer::Held(span)) => {
                // If there is no space for it here, the store's own hold still applies.
                let _ = self.fallback.hold(target, *span, self.case(FailureRule::Local));
            }
            (Operation::Reset { target }, _) => {
                self.fallback.forget(target, self.nodes_now());
                self.holds.forget(target);
            }
            _ => {}
        }
    }

    fn instead(
        &self,
        operation: &Operation<'_>,
        least: FailureRule,
        error: impl FnOnce() -> StoreError,
    ) -> Result<Answer, StoreError> {
        let answer = self.fallback.answer(operation, self.case(least), || self.hint(), error);
        match (operation, &answer) {
            (_, Ok(Answer::Decision(decision))) => {
                decision.degraded().into_iter().for_each(|rule| self.counters.degraded(rule));
            }
            (Operation::Hold { target, .. }, Ok(Answer::Held(span))) => {
                let now = self.time();
                self.holds.keep(target, now.after(*span), now);
            }
            (Operation::Reset { target }, _) => self.holds.forget(target),
            _ => {}
        }
        answer
    }

    fn case(&self, least: FailureRule) -> Case {
        Case { nodes: self.nodes_now(), least }
    }

    fn nodes_now(&self) -> NonZeroU32 {
        self.nodes.number(self.store.nodes())
    }
}

/// Whether the store did not answer. An error that the caller caused, that one operation caused, or
/// that means missing space is an answer.
pub(super) const fn is_failure(error: &StoreError) -> bool {
    matches!(error, StoreError::TimedOut | StoreError::Unavailable(_))
}
