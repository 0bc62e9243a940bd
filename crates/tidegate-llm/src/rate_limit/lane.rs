//! A lane: one queue of calls, the limits that were set for it, and what its models tell.
//!
//! A lane spans the models that share a limit: all of an account where limits were configured for
//! it, one model where everything is learned, since providers count by model. In a lane that spans
//! models, a limit that one of them tells is that model's own, and holds nobody else up; so is one
//! that was configured for models or for an endpoint.

mod acquire;
mod configured;
mod output_rule;
mod release;
mod view;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::StatusCode;
use smallvec::SmallVec;
use tidegate::clock::{Clock as _, TokioClock};
use tidegate::pacer::{Pacer, Permit};
use tidegate_core::Time;
use tidegate_providers::{Class, Dimension, Endpoint, Failure, ReportedLimits};
use tokio::sync::Notify;

use super::account::{AccountError, OTHER, Settings};
use super::all_keys::AllKeys;
use super::charge_inference::TokenCharge;
use super::charging::{Amounts, Charging, OutputCharge};
use super::footprint;
use super::limit_view::{HoldCause, ReportOrigin};
use super::limits::AccountLimits;
use super::meter::Meter;
use super::quota::{Quota, Throttled};
use super::reservation::{Days, Estimate, Followed, Leave, Line, Reservation};
use crate::call::{CallError, Outgoing, Scope};
use crate::memory::{MemoryShare, SecondChance};
use crate::telemetry::{Acquired, Stage, StageGuard};
use acquire::Admitted;
use configured::{Configured, LimitSet};

/// So many models are told apart in a lane; others share one name.
const MAX_MODELS: usize = 256;
/// The last call weighs one part of so many in the mean time of calls.
const MEAN_OF: u64 = 8;
/// Limits of a call without an allocation: two that were set, two that were told, and the gate.
pub(super) const INLINE: usize = 5;

/// A queue of calls, and its limits.
#[derive(Debug)]
pub(super) struct Lane {
    scope: Scope,
    /// The scope as a text, for those who watch.
    key: String,
    settings: Arc<Settings>,
    pacer: Pacer,
    configured: ArcSwap<Configured>,
    quotas: Mutex<SecondChance<Arc<str>, Arc<Quota>>>,
    /// Whether there were ever several models, also if they are forgotten.
    had_models: AtomicBool,
    /// How long calls take of late, in milliseconds; zero if none has ended.
    mean_time: AtomicU64,
    /// Tells calls that wait that they are charged differently from now on.
    rule_changes: Notify,
    clock: TokioClock,
    memory: Mutex<MemoryShare>,
}

impl Lane {
    pub(super) fn new(
        scope: Scope,
        settings: Arc<Settings>,
        limits: &AccountLimits,
        pacer: Pacer,
        clock: TokioClock,
    ) -> Result<Self, AccountError> {
        let memory = settings.memory.charge(footprint::of_lane(limits));
        let lane = Self {
            key: scope.to_string(),
            scope,
            settings,
            pacer,
            configured: ArcSwap::default(),
            quotas: Mutex::default(),
            had_models: AtomicBool::new(false),
            mean_time: AtomicU64::new(0),
            rule_changes: Notify::new(),
            clock,
            memory: Mutex::new(memory),
        };
        if !limits.is_empty() {
            lane.configure(limits)?;
        }
        Ok(lane)
    }

    pub(super) const fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Tells whoever watches of a throttle.
    pub(super) fn throttled(&self, Throttled { pause, slower }: Throttled) {
        self.settings.observer.throttled(self.scope.provider(), &self.key, pause);
        if slower {
            self.slowed_down();
        }
    }

    pub(super) fn slowed_down(&self) {
        self.settings.observer.slowed_down(self.scope.provider(), &self.key);
    }

    /// Reports to the observer that a call is in a stage, until the guard is dropped.
    pub(super) fn stage_guard(&self, stage: Stage) -> StageGuard {
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

    /// Waits until a call may leave.
    pub(super) async fn reserve(
        self: &Arc<Self>,
        model: &str,
        call: &impl Outgoing,
    ) -> Result<Reservation, CallError> {
        let quota = self.quota(model).map_err(|error| self.no_limit(error))?;
        if let Some(failure) = self.closed(&quota) {
            return Err(failure);
        }
        if let Some(ramp) = self.settings.ramp.load_full() {
            let requests = self.configured.load().requests(model);
            quota.ramp_up((*ramp, requests), self.now());
        }
        let counted = if call.has_estimated_input() { 0 } else { call.input_tokens() };
        let Admitted { mut permit, meters, costs, asked } =
            self.acquire(&quota, model, call).await?;
        // While it waited, a long quota may have been used up.
        let over = match self.closed(&quota) {
            Some(failure) => Err(failure),
            None => self.take_days(model, &call.terms().endpoint).await,
        };
        let days = match over {
            Ok(days) => days,
            Err(failure) => {
                self.give_back(permit, meters.len());
                return Err(failure);
            }
        };
        let rule = quota.rule();
        let reserved = asked.reserved(rule);
        let charging = self.settings.charging;
        let costs_now = costs_of(&meters, charging, reserved);
        if costs_now != costs {
            // What was learned while it waited holds for it too.
            if let Err(error) = permit.settle(&costs_now).await {
                tracing::warn!(%error, "a call keeps what it was charged at first");
            }
        }
        let now = self.now();
        let (limit, followed) = self.followed(&meters);
        let strict = asked.reserved(OutputCharge::Kept);
        // Where no limit is known yet, one that is told later may count all of it.
        let input = followed.map_or(strict.input, |Followed(dimension)| {
            charging.cost(dimension, Amounts { output: 0, ..strict })
        });
        let charge = TokenCharge { input, reserve: strict.output };
        let (epoch, departure) = quota.leaves(limit, charge, now);
        let lines: SmallVec<[Line; INLINE]> = meters
            .into_iter()
            .zip(costs_now)
            .map(|(meter, cost)| {
                let input = meter.reserve(charging, Amounts { output: 0, ..reserved });
                Line { mark: meter.charge(cost, now), meter, cost, input }
            })
            .collect();
        let leave = Leave { permit, lines, days, left: now, epoch, departure, followed };
        let estimate = Estimate {
            counted,
            expected: reserved,
            certain: Charging::certain(rule, asked.expectation.input, asked.max_output),
        };
        let extra_input = call.extra_input();
        let reservation = Reservation::new(self.clone(), quota, leave, estimate, extra_input);
        self.tell(&reservation);
        Ok(reservation)
    }

    /// A call has ended that left at this time.
    pub(super) fn call_ended(&self, left: Time) {
        let took = u64::try_from(self.now().since(left).as_millis()).unwrap_or(u64::MAX).max(1);
        let mean = self.mean_time.load(Ordering::Relaxed);
        let mean = if mean == 0 { took } else { mean - mean / MEAN_OF + took / MEAN_OF };
        self.mean_time.store(mean, Ordering::Relaxed);
    }

    /// Takes one of the requests of the day wherever those are limited, or none.
    async fn take_days(&self, model: &str, endpoint: &Endpoint) -> Result<Days, CallError> {
        let configured = self.configured.load();
        let mut wanted: Days =
            configured.of(model, endpoint).filter_map(|set| set.day.clone()).collect();
        drop(configured);
        wanted.extend(self.settings.all_keys.as_ref().and_then(AllKeys::day));
        let provider = || self.scope.provider().clone();
        let mut taken = Days::new();
        for day in wanted {
            let error = match day.take().await {
                Ok(None) => {
                    taken.push(day);
                    continue;
                }
                Ok(Some(retry)) => {
                    let class = Class::ExhaustedQuota { after: retry.after() };
                    let status = StatusCode::TOO_MANY_REQUESTS;
                    let mut failure = Failure::new(provider(), class, status);
                    failure.kind = Some(Dimension::RequestsPerDay.name().to_owned());
                    CallError::Closed(Box::new(failure))
                }
                Err(error) => {
                    let (source, limited_by, after) = (error.into(), None, None);
                    CallError::NoPermit { provider: provider(), source, limited_by, after }
                }
            };
            taken.iter().for_each(|day| day.give_back());
            return Err(error);
        }
        Ok(taken)
    }

    /// Tells whoever watches of a permit.
    fn tell(&self, reservation: &Reservation) {
        let parts = reservation.waited_for();
        let gauges = self.pacer.gauges();
        let mut acquired = Acquired::new(self.scope.provider(), &self.key);
        acquired.estimated_tokens = reservation.tokens();
        acquired.wait = reservation.waited();
        acquired.token_wait = reservation.waited_for_tokens();
        acquired.limited_by = parts.first().map(|(name, _)| *name);
        acquired.requests_per_minute = reservation.allowed(Dimension::Requests);
        acquired.tokens_per_minute = reservation.allowed(Dimension::Tokens);
        acquired.in_flight = gauges.in_flight;
        acquired.waiting = gauges.waiting;
        self.settings.observer.acquired(&acquired);
        if !acquired.wait.is_zero() {
            self.settings.waits.waited(&self.scope, acquired.wait, self.now());
        }
    }

    /// What a provider told in the head of an answer, or in an error.
    pub(super) fn hear(
        &self,
        quota: &Quota,
        (told, origin): (&ReportedLimits, ReportOrigin),
        lines: &[Line],
        left: Time,
    ) {
        let now = self.now();
        let apart = told.get(Dimension::InputTokens).or(told.get(Dimension::OutputTokens));
        for (dimension, reading) in told.iter() {
            // Where input and output are told apart, the total is the scarcer of the two.
            if dimension == Dimension::Tokens && apart.is_some() {
                continue;
            }
            if dimension == Dimension::RequestsPerDay {
                quota.day_reports.reported(reading, origin, now);
                // Until one is there again, if they come back one by one. If they come back
                // together, the provider says so when it is asked then.
                if let (Some(0), Some(one)) = (reading.remaining, reading.until_next()) {
                    quota.gate().hold(one, HoldCause::RequestsPerDay);
                }
                continue;
            }
            let meter = match quota.meter(dimension) {
                Ok(meter) => meter,
                Err(error) => {
                    tracing::warn!(scope = %self.scope, %error, "a limit is not followed");
                    continue;
                }
            };
            // A limit that this call was not charged to begins with it.
            let line = lines.iter().find(|line| Arc::ptr_eq(&line.meter, &meter));
            let mark = line.map_or_else(|| meter.charge(0, now), |line| line.mark);
            let own = line.map_or(0, |line| line.cost);
            let pacer = self.pacer.clone();
            let heard = (mark, now.since(left), own);
            meter.hear((reading, origin), heard, now, move || pacer.nudge());
        }
        self.release_replaced(quota);
    }

    /// What is known of a model. One for which there is no room is among others.
    pub(super) fn quota(&self, model: &str) -> Result<Arc<Quota>, AccountError> {
        let quotas = self.lock_quotas();
        if let Some(known) = quotas.get(model) {
            return Ok(known.clone());
        }
        let is_full = quotas.len() >= MAX_MODELS;
        drop(quotas);
        // Others may be forgotten for it, for which no model may be locked.
        let bytes = footprint::of_model(self.settings.quota.tokens);
        let model = if is_full || !self.has_room(bytes) { OTHER } else { model };
        let mut quotas = self.lock_quotas();
        if let Some(known) = quotas.get(model) {
            return Ok(known.clone());
        }
        let scope = self.scope.clone().model(model).to_string();
        let model: Arc<str> = model.into();
        let quota = self.settings.quota(scope, model.clone())?;
        quotas.insert(model, quota.clone());
        if quotas.len() > 1 {
            self.had_models.store(true, Ordering::Relaxed);
        }
        Ok(quota)
    }

    fn lock_quotas(&self) -> MutexGuard<'_, SecondChance<Arc<str>, Arc<Quota>>> {
        self.quotas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The limits that a call of a model at an endpoint is charged to.
    fn meters(
        &self,
        quota: &Quota,
        (model, endpoint): (&str, &Endpoint),
    ) -> SmallVec<[Arc<Meter>; INLINE]> {
        let (told, configured) = (quota.meters(), self.configured.load());
        let kept = configured
            .of(model, endpoint)
            .flat_map(|set| set.meters.iter().filter(|meter| !self.is_replaced(meter, &told, set)));
        let mut meters = kept.chain([quota.gate()]).chain(&told).cloned().collect();
        if let Some(all_keys) = &self.settings.all_keys {
            all_keys.add_to(&mut meters);
        }
        meters
    }

    /// Whether what is told of a limit stands in for what was configured: where nobody wished for
    /// that, or where the provider allows no more and there is one model to tell.
    fn is_replaced(&self, meter: &Meter, told: &[Arc<Meter>], set: &LimitSet) -> bool {
        let mut same = told.iter().filter(|told| told.counts() == meter.counts());
        let Some(told) = same.next().and_then(|meter| meter.allowed()) else { return false };
        let no_more = || {
            let minute = Duration::from_secs(60);
            let configured = meter.allowed().map(|allowed| allowed.in_span(minute));
            configured.is_some_and(|configured| told.in_span(minute) <= configured)
                && (set.is_of_one_model || self.has_one_model())
        };
        !set.wished || no_more()
    }

    fn has_one_model(&self) -> bool {
        !self.had_models.load(Ordering::Relaxed) && self.lock_quotas().len() == 1
    }

    fn closed(&self, quota: &Quota) -> Option<CallError> {
        let (after, mut failure) = quota.closed(self.now())?;
        failure.class = Class::ExhaustedQuota { after: Some(after) };
        Some(CallError::Closed(failure))
    }

    /// Gives back all that a permit was charged: nothing was sent with it.
    fn give_back(&self, mut permit: Permit, claims: usize) {
        let nothing: SmallVec<[u64; INLINE]> = smallvec::smallvec![0; claims];
        self.settings.quota.engine.store().detach(async move {
            if let Err(error) = permit.settle(&nothing).await {
                tracing::warn!(%error, "a call that was not made stays charged");
            }
        });
    }

    /// A limit that cannot be made is a fault of the configuration, and told as one.
    fn no_limit(&self, error: AccountError) -> CallError {
        let provider = self.scope.provider().clone();
        CallError::Request { provider, source: Box::new(error) }
    }
}

/// What a call is charged to each of its limits while it is under way.
fn costs_of(
    meters: &[Arc<Meter>],
    charging: Charging,
    reserved: Amounts,
) -> SmallVec<[u64; INLINE]> {
    meters.iter().map(|meter| meter.reserve(charging, reserved)).collect()
}
