//! Limits of one model: reported limits, usage estimates, and whether it is closed.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use smallvec::SmallVec;
use tidegate::clock::TokioClock;
use tidegate::{Engine, LimitError};
use tidegate_core::Time;
use tidegate_providers::{Dimension, Failure};

use super::call_queue::INLINE;
use super::charge_inference::{ChargeInference, SentCall, TokenCharge};
use super::estimate::Estimator;
use super::limit_tracker::limit_record::LimitRecord;
use super::limit_tracker::{LimitKind, LimitTracker, TrackerSpec};
use super::recent_rate::{RecentRate, SPAN};
use super::send_rate::{Allowed, Burst, MARGIN, Ramp, SendRate};
use super::token_accounting::OutputCharge;
use crate::memory::{EvictionCost, MemoryCharge};

/// Number of responses after which earlier throttles are forgotten.
const SAMPLE: u32 = 100;
/// Number of throttles per sample above which a known limit is slowed down.
const MAX_THROTTLES: u32 = 3;
/// Pause after a throttle without `Retry-After`; doubles with each consecutive one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Maximum pause. Without `Retry-After` the end of a lock-out is found by trying, so this keeps it
/// within a minute.
const LONGEST_PAUSE: Duration = Duration::from_secs(16);
/// How long an exhausted quota without a known reset closes a model.
const DEFAULT_CLOSED_TIME: Duration = Duration::from_secs(60);

/// Limits and learned state of one model.
#[derive(Debug)]
pub(super) struct ModelLimits {
    params: ModelParams,
    scope: String,
    /// Name of the model in its queue.
    pub(super) model: Arc<str>,
    gate: Arc<LimitTracker>,
    /// Whether a task probes while calls wait for tokens.
    pub(super) has_probe_task: AtomicBool,
    /// Reports about requests per day, which have no bucket here.
    pub(super) day_reports: LimitRecord,
    state: Mutex<State>,
    _memory: MemoryCharge,
}

#[derive(Debug)]
struct State {
    trackers: Vec<Arc<LimitTracker>>,
    estimator: Estimator,
    inference: ChargeInference,
    recent: RecentRate,
    /// Incremented with every slow-down. Calls sent before it say nothing about the new rate.
    epoch: u64,
    /// Consecutive throttles and the time of the last. Throttles shortly after another one count as
    /// the same.
    throttles_in_a_row: u32,
    last_throttle_at: Option<Time>,
    responses: u32,
    throttles: u32,
    closed: Option<(Time, Box<Failure>)>,
}

/// Parameters shared by the models of an account.
#[derive(Clone, Debug)]
pub(super) struct ModelParams {
    pub(super) engine: Engine,
    /// Token limits that the provider is known to have.
    pub(super) tokens: &'static [Dimension],
    /// Rule for charging output before anything is learned.
    pub(super) initial_rule: OutputCharge,
    pub(super) clock: TokioClock,
}

/// Expected usage of a call, and how the provider charges it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expectation {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) rule: OutputCharge,
    /// Whether it may cost less than it reserves.
    pub(super) expects_refund: bool,
}

/// Whether the limit that refused a call is known, by report or configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitKnowledge {
    Known,
    Unknown,
    /// Unknown, while the provider serves other calls.
    UnknownButServing,
}

/// Reaction to a throttle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Throttled {
    /// How long the model is closed.
    pub(super) pause: Duration,
    /// Whether the rate is lowered.
    pub(super) is_slower: bool,
}

/// Identifies calls sent under the same rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Epoch(u64);

impl ModelLimits {
    /// Expected limits exist from the start, unlimited until known, so that calls already waiting
    /// when a limit is first reported follow it too. Not on a shared store: another process may
    /// know the limit, and the last update wins.
    pub(super) fn new(
        params: ModelParams,
        scope: String,
        model: Arc<str>,
        memory: MemoryCharge,
    ) -> Result<Self, LimitError> {
        let spec = TrackerSpec::Paced(LimitKind::Gate, SendRate::unlimited());
        let gate = Arc::new(LimitTracker::new(&params.engine, &scope, spec, params.clock)?);
        let state = State {
            trackers: Vec::new(),
            estimator: Estimator::default(),
            inference: ChargeInference::new(params.initial_rule),
            recent: RecentRate::default(),
            epoch: 0,
            throttles_in_a_row: 0,
            last_throttle_at: None,
            responses: 0,
            throttles: 0,
            closed: None,
        };
        let has_probe_task = AtomicBool::new(false);
        let (day_reports, state) = (LimitRecord::default(), Mutex::new(state));
        let _memory = memory;
        let model_limits =
            Self { params, scope, model, gate, has_probe_task, day_reports, state, _memory };
        if model_limits.params.engine.store().local().is_some() {
            for dimension in [Dimension::Requests].iter().chain(model_limits.params.tokens) {
                model_limits.tracker(*dimension)?;
            }
        }
        Ok(model_limits)
    }

    /// Gate that is held while the model is closed.
    pub(super) const fn gate(&self) -> &Arc<LimitTracker> {
        &self.gate
    }

    /// Reported and expected limits.
    pub(super) fn trackers(&self) -> SmallVec<[Arc<LimitTracker>; INLINE]> {
        self.lock().trackers.iter().cloned().collect()
    }

    /// Names of all limits.
    pub(super) fn limit_names(&self) -> Vec<String> {
        self.trackers().iter().chain([&self.gate]).map(|tracker| tracker.name()).collect()
    }

    /// Net charges to each limit.
    pub(super) fn charged(&self) -> Vec<(Dimension, u64)> {
        self.trackers().iter().filter_map(|tracker| tracker.charged()).collect()
    }

    /// Returns whether a limit on `dimension` is known.
    pub(super) fn is_known(&self, dimension: Dimension) -> bool {
        let kind = LimitKind::Dimension(dimension);
        let state = self.lock();
        let mut same = state.trackers.iter().filter(|tracker| tracker.kind() == kind);
        same.any(|tracker| tracker.allowed().is_some())
    }

    /// Returns the tracker of `dimension`, created when first needed.
    pub(super) fn tracker(&self, dimension: Dimension) -> Result<Arc<LimitTracker>, LimitError> {
        let kind = LimitKind::Dimension(dimension);
        let mut state = self.lock();
        if let Some(known) = state.trackers.iter().find(|tracker| tracker.kind() == kind) {
            return Ok(known.clone());
        }
        let burst = if dimension.counts_tokens() { Burst::Window } else { Burst::Amount(1) };
        let spec = TrackerSpec::Paced(kind, SendRate::new(None, burst, MARGIN));
        // Part of the limit's name in the store.
        let scope = format!("{} told", self.scope);
        let tracker =
            Arc::new(LimitTracker::new(&self.params.engine, &scope, spec, self.params.clock)?);
        state.trackers.push(tracker.clone());
        Ok(tracker)
    }

    /// Changes the rate of a dimension.
    fn with_send_rate(&self, dimension: Dimension, now: Time, change: impl FnOnce(&mut SendRate)) {
        match self.tracker(dimension) {
            Ok(tracker) => tracker.with_send_rate(now, change),
            Err(error) => {
                tracing::warn!(
                    scope = self.scope,
                    %error,
                    "rate update failed; keeping the previous rate"
                );
            }
        }
    }

    /// Returns the expected usage of a call whose input we counted.
    pub(super) fn expect(&self, counted: u64) -> Expectation {
        let State { estimator, inference, .. } = &*self.lock();
        Expectation {
            input: estimator.input(counted),
            output: estimator.output(),
            rule: inference.rule(),
            expects_refund: inference.expects_refunds(),
        }
    }

    /// Returns the current rule for charging output.
    pub(super) fn rule(&self) -> OutputCharge {
        self.lock().inference.rule()
    }

    pub(super) fn learn(&self, counted: u64, input: u64, output: u64) {
        self.lock().estimator.learn(counted, input, output);
    }

    /// Runs `infer` on the inference of the charging rule.
    pub(super) fn infer<T>(&self, infer: impl FnOnce(&mut ChargeInference) -> T) -> T {
        infer(&mut self.lock().inference)
    }

    /// Starts a ramp for the first call and after a pause: the rate grows to the configured or
    /// reported limit.
    pub(super) fn ramp_up(&self, ramp: (Ramp, Option<Allowed>), now: Time) {
        if self.lock().recent.is_idle(now) {
            self.with_send_rate(Dimension::Requests, now, |send_rate| {
                send_rate.ramp_up(ramp, SPAN, now);
            });
        }
    }

    /// Changes a ramp in progress; `None` ends it.
    pub(super) fn change_ramp(&self, ramp: Option<Ramp>, now: Time) {
        self.with_send_rate(Dimension::Requests, now, |send_rate| send_rate.change_ramp(ramp));
    }

    /// Records a sent call.
    pub(super) fn call_sent(
        &self,
        limit: Option<Allowed>,
        charge: TokenCharge,
        now: Time,
    ) -> (Epoch, SentCall) {
        let mut state = self.lock();
        state.recent.call_sent(now);
        let epoch = Epoch(state.epoch);
        let sent_call = state.inference.call_sent(limit, charge, now);
        (epoch, sent_call)
    }

    /// Records a response: the model is not locked out.
    pub(super) fn response_received(&self) {
        let mut state = self.lock();
        state.count(0);
        state.throttles_in_a_row = 0;
    }

    /// Handles a throttled call that was sent in `epoch`. Only the first one of an epoch lowers the
    /// rate; the others were sent before that.
    ///
    /// Without a known limit and a `Retry-After`, a single throttle concerns adaptive concurrency,
    /// and so do all of them while other calls succeed. Consecutive throttles without a response in
    /// between are a lock-out.
    pub(super) fn throttled(
        &self,
        epoch: Epoch,
        (after, dimension): (Option<Duration>, Option<Dimension>),
        known: LimitKnowledge,
        now: Time,
    ) -> Throttled {
        let dimension = dimension.unwrap_or(Dimension::Requests);
        let mut state = self.lock();
        state.count(1);
        let is_first = epoch == Epoch(state.epoch) && state.is_new_throttle(now);
        if is_first {
            state.epoch += 1;
            state.throttles_in_a_row += 1;
            state.last_throttle_at = Some(now);
        }
        let in_a_row = match known {
            LimitKnowledge::Known => state.throttles_in_a_row,
            LimitKnowledge::Unknown => state.throttles_in_a_row.saturating_sub(1),
            LimitKnowledge::UnknownButServing => 0,
        };
        let known = known == LimitKnowledge::Known;
        let is_too_many = state.throttles >= MAX_THROTTLES;
        let recent = state.recent.rate(now);
        if is_too_many {
            (state.responses, state.throttles) = (0, 0);
        }
        drop(state);
        let is_slower = is_first && (known || in_a_row > 0 || after.is_some());
        if is_slower && known {
            self.with_send_rate(dimension, now, |send_rate| {
                if dimension == Dimension::Requests {
                    send_rate.smooth();
                }
                // The observed rate counts calls and says nothing about tokens.
                if is_too_many
                    && (dimension == Dimension::Requests || send_rate.allowed().is_some())
                {
                    send_rate.slow_down(recent, now);
                }
            });
        } else if is_slower {
            self.with_send_rate(Dimension::Requests, now, |send_rate| {
                send_rate.slow_down(recent, now);
            });
        }
        Throttled { pause: after.unwrap_or_else(|| backoff(in_a_row)), is_slower }
    }

    /// Handles a request of the provider to slow down. Returns whether the rate was lowered.
    pub(super) fn slow_down(&self, epoch: Epoch, now: Time) -> bool {
        let mut state = self.lock();
        if epoch != Epoch(state.epoch) {
            return false;
        }
        state.epoch += 1;
        let recent = state.recent.rate(now);
        drop(state);
        self.with_send_rate(Dimension::Requests, now, |send_rate| send_rate.slow_down(recent, now));
        true
    }

    /// Closes the model because a long-term quota is exhausted. Other callers receive this failure,
    /// so details of the call are removed.
    pub(super) fn close(&self, failure: &Failure, now: Time) {
        let after = failure.class.after().unwrap_or(DEFAULT_CLOSED_TIME);
        let mut failure = Box::new(failure.clone());
        (failure.message, failure.request_id) = (None, None);
        self.lock().closed = Some((now.after(after), failure));
    }

    /// Returns for how much longer the model is closed, and why.
    pub(super) fn closed(&self, now: Time) -> Option<(Duration, Box<Failure>)> {
        let mut state = self.lock();
        let (until, failure) = state.closed.as_ref()?;
        let left = until.since(now);
        if left.is_zero() {
            state.closed = None;
            return None;
        }
        Some((left, failure.clone()))
    }

    /// Returns the cost of evicting this model.
    pub(super) fn eviction_cost(&self, now: Time) -> EvictionCost {
        if self.closed(now).is_some() {
            return EvictionCost::MustKeep;
        }
        let trackers = self.trackers();
        let costs = trackers.iter().chain([&self.gate]).map(|tracker| tracker.eviction_cost(now));
        costs.max().unwrap_or(EvictionCost::None)
    }

    pub(super) fn scope(&self) -> &str {
        &self.scope
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pause that doubles with each consecutive throttle.
fn backoff(in_a_row: u32) -> Duration {
    match in_a_row.checked_sub(1) {
        Some(doublings) => FIRST_PAUSE.saturating_mul(1 << doublings.min(6)).min(LONGEST_PAUSE),
        None => Duration::ZERO,
    }
}

impl State {
    /// Returns whether another throttle counts as a new one.
    fn is_new_throttle(&self, now: Time) -> bool {
        self.last_throttle_at
            .is_none_or(|last_throttle_at| now.since(last_throttle_at) >= FIRST_PAUSE)
    }

    fn count(&mut self, throttles: u32) {
        if self.responses >= SAMPLE {
            (self.responses, self.throttles) = (0, 0);
        }
        self.responses += 1;
        self.throttles += throttles;
    }
}
