//! One queue of calls, its configured limits, and the reported limits of its models.
//!
//! A queue serves the models that share a limit: all models of an account with configured limits,
//! else a single model, since providers count by model. In a queue of several models, a limit
//! reported for one of them, or configured for some models or an endpoint, delays only the calls it
//! applies to.

mod acquire;
mod charge_probe;
mod configured;
mod eviction;
mod view;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::StatusCode;
use smallvec::SmallVec;
use tidegate::LimitError;
use tidegate::clock::{Clock as _, TokioClock};
use tidegate::pacer::{Pacer, Permit};
use tidegate_core::Time;
use tidegate_providers::{Class, Dimension, Endpoint, Failure, ReportedLimits};
use tokio::sync::Notify;

use super::account::{OTHER, Settings};
use super::all_keys::AllKeys;
use super::charge_inference::TokenCharge;
use super::footprint;
use super::limit_tracker::LimitTracker;
use super::limit_view::{HoldCause, ReportOrigin};
use super::limits::AccountLimits;
use super::model_limits::{ModelLimits, Throttled};
use super::reservation::{
    CallGrant, DailyLimits, Estimate, LimitCharge, ObservedDimension, Reservation,
};
use super::token_accounting::{Amounts, OutputCharge, TokenAccounting};
use crate::call::{CallError, LimitScope, OutgoingCall, PermitWait};
use crate::memory::{MemoryCharge, SecondChanceMap};
use crate::telemetry::{Acquired, Stage, StageGuard};
use acquire::Admitted;
use configured::{Configured, LimitSet};

/// Maximum number of models tracked separately per queue; further models share one entry.
const MAX_MODELS: usize = 256;
/// Weight of the latest call in the moving average: one in this many.
const MEAN_WEIGHT: u64 = 8;
/// Number of limits per call without an allocation: two configured, two reported, and the gate.
pub(super) const INLINE: usize = 5;

/// A queue of calls and its limits.
#[derive(Debug)]
pub(super) struct CallQueue {
    scope: LimitScope,
    /// The scope as text, for observers.
    key: String,
    settings: Arc<Settings>,
    pacer: Pacer,
    configured: ArcSwap<Configured>,
    known_models: Mutex<SecondChanceMap<Arc<str>, Arc<ModelLimits>>>,
    /// Whether there were ever several models, even if they have been evicted.
    had_several_models: AtomicBool,
    /// Moving average of call durations in milliseconds; zero before the first call ended.
    mean_call_time: AtomicU64,
    /// Notifies waiting calls that the charging rule changed.
    rule_changes: Notify,
    clock: TokioClock,
    memory: Mutex<MemoryCharge>,
}

impl CallQueue {
    pub(super) fn new(
        scope: LimitScope,
        settings: Arc<Settings>,
        limits: &AccountLimits,
        pacer: Pacer,
        clock: TokioClock,
    ) -> Result<Self, LimitError> {
        let memory = settings.memory.charge(footprint::of_queue(limits));
        let queue = Self {
            key: scope.to_string(),
            scope,
            settings,
            pacer,
            configured: ArcSwap::default(),
            known_models: Mutex::default(),
            had_several_models: AtomicBool::new(false),
            mean_call_time: AtomicU64::new(0),
            rule_changes: Notify::new(),
            clock,
            memory: Mutex::new(memory),
        };
        if !limits.is_empty() {
            queue.configure(limits)?;
        }
        Ok(queue)
    }

    pub(super) const fn scope(&self) -> &LimitScope {
        &self.scope
    }

    /// Notifies the observer of a throttle.
    pub(super) fn notify_throttled(&self, Throttled { pause, is_slower }: Throttled) {
        self.settings.observer.throttled(self.scope.provider(), &self.key, pause);
        if is_slower {
            self.notify_slowed_down();
        }
    }

    pub(super) fn notify_slowed_down(&self) {
        self.settings.observer.slowed_down(self.scope.provider(), &self.key);
    }

    /// Notifies the observer that a call entered `stage`, and that it left when the result is
    /// dropped.
    pub(super) fn enter_stage(&self, stage: Stage) -> StageGuard {
        StageGuard::new(self.settings.observer.clone(), self.scope.provider().clone(), stage)
    }

    pub(super) const fn pacer(&self) -> &Pacer {
        &self.pacer
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Waits until a call may be sent, and notifies the observer.
    pub(super) async fn reserve(
        self: &Arc<Self>,
        model: &str,
        call: &impl OutgoingCall,
    ) -> Result<Reservation, CallError> {
        let _waiting = call.options().permit_wait.as_ref().map(PermitWait::start);
        let reserved = self.wait_for_reservation(model, call).await;
        match &reserved {
            Ok(reservation) => self.notify_reserved(reservation),
            Err(error) if error.is_refusal() => {
                self.settings.observer.refused(self.scope.provider(), error.refused_by());
            }
            Err(_) => {}
        }
        reserved
    }

    async fn wait_for_reservation(
        self: &Arc<Self>,
        model: &str,
        call: &impl OutgoingCall,
    ) -> Result<Reservation, CallError> {
        let model_limits = self.model_limits(model).map_err(|error| self.limit_error(error))?;
        if let Some(failure) = self.closed(&model_limits) {
            return Err(failure);
        }
        if let Some(ramp) = self.settings.ramp.load_full() {
            let requests = self.configured.load().requests(model);
            model_limits.ramp_up((*ramp, requests), self.now());
        }
        let counted = if call.has_estimated_input() { 0 } else { call.input_tokens() };
        let Admitted { mut permit, trackers, costs, demand } =
            self.acquire(&model_limits, model, call).await?;
        // A long-term quota may have run out during the wait.
        let charged = match self.closed(&model_limits) {
            Some(failure) => Err(failure),
            None => self.charge_daily_limits(model, &call.options().endpoint).await,
        };
        let daily_limits = match charged {
            Ok(daily_limits) => daily_limits,
            Err(failure) => {
                self.refund_permit(permit, trackers.len());
                return Err(failure);
            }
        };
        let rule = model_limits.rule();
        let reserved = demand.reserved(rule);
        let accounting = self.settings.accounting;
        let costs_now = costs_of(&trackers, accounting, reserved);
        if costs_now != costs {
            // Apply what was learned during the wait.
            if let Err(error) = permit.settle(&costs_now).await {
                tracing::warn!(%error, "settlement failed; keeping the reserved charge");
            }
        }
        let now = self.now();
        let (limit, observed) = self.observed(&trackers);
        let strict = demand.reserved(OutputCharge::MaxTokens);
        // While no limit is known, one reported later may count all of it.
        let input = observed.map_or(strict.input, |ObservedDimension(dimension)| {
            accounting.cost(dimension, Amounts { output: 0, ..strict })
        });
        let token_charge = TokenCharge { input, reserve: strict.output };
        let (epoch, sent_call) = model_limits.call_sent(limit, token_charge, now);
        let charges: SmallVec<[LimitCharge; INLINE]> = trackers
            .into_iter()
            .zip(costs_now)
            .map(|(tracker, cost)| {
                let input = tracker.reserve(accounting, Amounts { output: 0, ..reserved });
                LimitCharge { mark: tracker.charge(cost, now), tracker, cost, input }
            })
            .collect();
        let grant =
            CallGrant { permit, charges, daily_limits, sent_at: now, epoch, sent_call, observed };
        let estimate = Estimate {
            counted,
            expected: reserved,
            minimum: TokenAccounting::minimum(rule, demand.expectation.input, demand.max_output),
        };
        let extra_input = call.extra_input();
        Ok(Reservation::new(self.clone(), model_limits, grant, estimate, extra_input))
    }

    /// Records the end of a call sent at `sent_at`.
    pub(super) fn call_ended(&self, sent_at: Time) {
        let took = u64::try_from(self.now().since(sent_at).as_millis()).unwrap_or(u64::MAX).max(1);
        let mean = self.mean_call_time.load(Ordering::Relaxed);
        let mean = if mean == 0 { took } else { mean - mean / MEAN_WEIGHT + took / MEAN_WEIGHT };
        self.mean_call_time.store(mean, Ordering::Relaxed);
    }

    /// Charges one request to each daily limit, or to none if one is exhausted.
    async fn charge_daily_limits(
        &self,
        model: &str,
        endpoint: &Endpoint,
    ) -> Result<DailyLimits, CallError> {
        let configured = self.configured.load();
        let mut limits: DailyLimits =
            configured.of(model, endpoint).filter_map(|set| set.daily.clone()).collect();
        drop(configured);
        limits.extend(self.settings.all_keys.as_ref().and_then(AllKeys::daily));
        let provider = || self.scope.provider().clone();
        let mut taken = DailyLimits::new();
        for limit in limits {
            let error = match limit.take().await {
                Ok(None) => {
                    taken.push(limit);
                    continue;
                }
                Ok(Some(retry)) => {
                    let class = Class::ExhaustedQuota { after: retry.after() };
                    let status = StatusCode::TOO_MANY_REQUESTS;
                    let mut failure = Failure::new(provider(), class, status);
                    failure.kind = Some(Dimension::RequestsPerDay.name().to_owned());
                    CallError::QuotaExhausted(Box::new(failure))
                }
                Err(error) => {
                    let (source, limited_by, after) = (error.into(), None, None);
                    CallError::NoPermit { provider: provider(), source, limited_by, after }
                }
            };
            taken.iter().for_each(|limit| limit.refund());
            return Err(error);
        }
        Ok(taken)
    }

    /// Notifies the observer of a granted reservation, and logs its wait.
    fn notify_reserved(&self, reservation: &Reservation) {
        let parts = reservation.waited_for();
        let gauges = self.pacer.gauges();
        let mut acquired = Acquired::new(self.scope.provider(), &self.key);
        acquired.estimated_tokens = reservation.reserved_tokens();
        acquired.wait = reservation.waited();
        acquired.token_wait = reservation.waited_for_tokens();
        acquired.slot_wait = reservation.waited_for_slot();
        acquired.waited_for = &parts;
        acquired.limited_by = reservation.limited_by();
        acquired.requests_per_minute = reservation.allowed(Dimension::Requests);
        acquired.tokens_per_minute = reservation.allowed(Dimension::Tokens);
        acquired.in_flight = gauges.in_flight;
        acquired.waiting = gauges.waiting;
        self.settings.observer.acquired(&acquired);
        let waits = (acquired.rate_wait(), acquired.slot_wait);
        self.settings.waits.waited(&self.scope, waits, self.now());
    }

    /// Corrects limits by what a provider reported in response headers or an error.
    pub(super) fn apply_feedback(
        &self,
        model_limits: &ModelLimits,
        (reported, origin): (&ReportedLimits, ReportOrigin),
        charges: &[LimitCharge],
        sent_at: Time,
    ) {
        let now = self.now();
        let separate =
            reported.get(Dimension::InputTokens).or(reported.get(Dimension::OutputTokens));
        for (dimension, reading) in reported.iter() {
            // If input and output are reported separately, the total repeats the scarcer one.
            if dimension == Dimension::Tokens && separate.is_some() {
                continue;
            }
            if dimension == Dimension::RequestsPerDay {
                model_limits.day_reports.record_report(reading, origin, now);
                // Hold until the next request is available, if they refill one by one. If all
                // refill at once, the provider's next refusal says so.
                if let (Some(0), Some(one)) = (reading.remaining, reading.until_next()) {
                    model_limits.gate().hold(one, HoldCause::RequestsPerDay);
                }
                continue;
            }
            let tracker = match model_limits.tracker(dimension) {
                Ok(tracker) => tracker,
                Err(error) => {
                    tracing::warn!(scope = %self.scope, %error, "cannot track reported limit");
                    continue;
                }
            };
            // A limit that this call was not charged to starts here.
            let charge = charges.iter().find(|charge| Arc::ptr_eq(&charge.tracker, &tracker));
            let mark = charge.map_or_else(|| tracker.charge(0, now), |charge| charge.mark);
            let own = charge.map_or(0, |charge| charge.cost);
            let pacer = self.pacer.clone();
            let charge_info = (mark, now.since(sent_at), own);
            tracker.apply_feedback((reading, origin), charge_info, now, move || pacer.nudge());
        }
        self.credit_replaced(model_limits);
    }

    /// Returns the limits of `model`, or those of the shared entry if there is no room.
    pub(super) fn model_limits(&self, model: &str) -> Result<Arc<ModelLimits>, LimitError> {
        let known_models = self.lock_known_models();
        if let Some(known) = known_models.get(model) {
            return Ok(known.clone());
        }
        let is_full = known_models.len() >= MAX_MODELS;
        drop(known_models);
        // May evict other models, so the map must not be locked here.
        let bytes = footprint::of_model(self.settings.model_params.tokens);
        let model = if is_full || !self.has_room(bytes) { OTHER } else { model };
        let mut known_models = self.lock_known_models();
        if let Some(known) = known_models.get(model) {
            return Ok(known.clone());
        }
        let scope = self.scope.clone().model(model).to_string();
        let model: Arc<str> = model.into();
        let model_limits = self.settings.model_limits(scope, model.clone())?;
        known_models.insert(model, model_limits.clone());
        if known_models.len() > 1 {
            self.had_several_models.store(true, Ordering::Relaxed);
        }
        Ok(model_limits)
    }

    fn lock_known_models(&self) -> MutexGuard<'_, SecondChanceMap<Arc<str>, Arc<ModelLimits>>> {
        self.known_models.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Limits that a call of `model` at `endpoint` is charged to.
    fn trackers(
        &self,
        model_limits: &ModelLimits,
        (model, endpoint): (&str, &Endpoint),
    ) -> SmallVec<[Arc<LimitTracker>; INLINE]> {
        let (reported, configured) = (model_limits.trackers(), self.configured.load());
        let kept = configured.of(model, endpoint).flat_map(|set| {
            set.trackers.iter().filter(|tracker| !self.is_replaced(tracker, &reported, set))
        });
        let mut trackers: SmallVec<[_; INLINE]> =
            kept.chain([model_limits.gate()]).chain(&reported).cloned().collect();
        if let Some(all_keys) = &self.settings.all_keys {
            all_keys.add_to(&mut trackers);
        }
        // Of a wait for both, the part for requests is what goes beyond the tokens (R97).
        trackers.sort_by_key(|tracker| !tracker.counts_tokens());
        trackers
    }

    /// Returns whether a reported limit replaces the configured one: if the configured one is not
    /// an explicit setting, or if the reported one is no higher and there is a single model to
    /// report it.
    fn is_replaced(
        &self,
        tracker: &LimitTracker,
        reported: &[Arc<LimitTracker>],
        set: &LimitSet,
    ) -> bool {
        let mut same = reported.iter().filter(|reported| reported.kind() == tracker.kind());
        let Some(reported) = same.next().and_then(|tracker| tracker.allowed()) else {
            return false;
        };
        let is_no_higher = || {
            let minute = Duration::from_secs(60);
            let configured = tracker.allowed().map(|allowed| allowed.in_span(minute));
            configured.is_some_and(|configured| reported.in_span(minute) <= configured)
                && (set.is_single_model || self.has_one_model())
        };
        !set.is_explicit || is_no_higher()
    }

    fn has_one_model(&self) -> bool {
        !self.had_several_models.load(Ordering::Relaxed) && self.lock_known_models().len() == 1
    }

    fn closed(&self, model_limits: &ModelLimits) -> Option<CallError> {
        let (after, mut failure) = model_limits.closed(self.now())?;
        failure.class = Class::ExhaustedQuota { after: Some(after) };
        Some(CallError::QuotaExhausted(failure))
    }

    /// Refunds a permit that was not used for a call.
    fn refund_permit(&self, mut permit: Permit, claims: usize) {
        let nothing: SmallVec<[u64; INLINE]> = smallvec::smallvec![0; claims];
        self.settings.model_params.engine.store().detach(async move {
            if let Err(error) = permit.settle(&nothing).await {
                tracing::warn!(%error, "refund of an unsent call failed");
            }
        });
    }

    /// A limit that cannot be created is a configuration error.
    fn limit_error(&self, error: LimitError) -> CallError {
        let provider = self.scope.provider().clone();
        CallError::InvalidRequest { provider, source: Box::new(error) }
    }
}

/// Charge of a call in flight to each of its limits.
fn costs_of(
    trackers: &[Arc<LimitTracker>],
    accounting: TokenAccounting,
    reserved: Amounts,
) -> SmallVec<[u64; INLINE]> {
    trackers.iter().map(|tracker| tracker.reserve(accounting, reserved)).collect()
}
