//! Acquiring a permit over all limits of a call, and the error if there is none.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate::pacer::{Acquire, AcquireError, Gauges, Permit, WaitPart};
use tidegate_core::Time;
use tokio::time::Sleep;

use super::{CallQueue, INLINE, costs_of};
use crate::call::{CallError, CallOptions, OutgoingCall};
use crate::rate_limit::account::OTHER;
use crate::rate_limit::limit_tracker::{LimitKind, LimitTracker};
use crate::rate_limit::model_limits::{Expectation, ModelLimits};
use crate::rate_limit::token_accounting::{Amounts, OutputCharge, TokenAccounting};
use crate::telemetry::Stage;
use tidegate_providers::Endpoint;

/// A permit with the limits it was charged to.
pub(super) struct Admitted {
    pub(super) permit: Permit,
    pub(super) trackers: SmallVec<[Arc<LimitTracker>; INLINE]>,
    /// Charge to each limit.
    pub(super) costs: SmallVec<[u64; INLINE]>,
    pub(super) demand: Demand,
}

impl CallQueue {
    /// Waits for a permit. If the charging rule of the provider turns out to be different
    /// meanwhile, the call is queued again at its new cost.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        model_limits: &Arc<ModelLimits>,
        model: &str,
        call: &impl OutgoingCall,
    ) -> Result<Admitted, CallError> {
        let _waiting = self.enter_stage(Stage::Waiting);
        let started = self.now();
        let mut deadline = pin!(call.options().deadline.map(tokio::time::sleep));
        loop {
            let mut expectation = model_limits.expect(call.input_tokens());
            if call.has_estimated_input() {
                expectation.input = call.input_tokens();
            }
            let demand = Demand { expectation, max_output: call.max_output() };
            let trackers = self.trackers(model_limits, (model, &call.options().endpoint));
            let reserved = demand.reserved(expectation.rule);
            let costs = costs_of(&trackers, self.settings.accounting, reserved);
            let priced = trackers.iter().zip(&costs);
            let acquire = self.request(priced, &demand, (call.options(), model), started);
            let waiting = self.unless_repriced(model_limits, expectation.rule, acquire);
            let timed_out = AcquireError::TimedOut(call.options().deadline.unwrap_or_default());
            match before(deadline.as_mut(), timed_out, waiting).await {
                Some(Ok(permit)) => return Ok(Admitted { permit, trackers, costs, demand }),
                Some(Err(source)) => {
                    let endpoint = &call.options().endpoint;
                    return Err(self
                        .no_permit(source, &trackers, &demand, (model, endpoint))
                        .await);
                }
                None => {}
            }
        }
    }

    /// Waits for a permit. Returns `None` if the charging rule changes first.
    async fn unless_repriced(
        self: &Arc<Self>,
        model_limits: &Arc<ModelLimits>,
        rule: OutputCharge,
        acquire: Acquire,
    ) -> Option<Result<Permit, AcquireError>> {
        let mut waiting = pin!(acquire.into_future());
        let mut changed = pin!(self.rule_changes.notified());
        let mut is_first = true;
        poll_fn(|context| {
            if let Poll::Ready(done) = waiting.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            let is_new = std::mem::take(&mut is_first);
            if is_new {
                self.spawn_probe_task(model_limits);
            }
            let mut is_notified = is_new;
            while changed.as_mut().poll(context).is_ready() {
                changed.set(self.rule_changes.notified());
                is_notified = true;
            }
            if is_notified && model_limits.rule() != rule {
                Poll::Ready(None)
            } else {
                Poll::Pending
            }
        })
        .await
    }

    /// Builds the request for a permit, for a call that has waited since `started`.
    fn request<'m>(
        &self,
        priced: impl Iterator<Item = (&'m Arc<LimitTracker>, &'m u64)>,
        demand: &Demand,
        (options, model): (&CallOptions, &str),
        started: Time,
    ) -> Acquire {
        let now = self.now();
        let spans_models = self.scope.model_name().is_none_or(|model| model == OTHER);
        let configured = self.configured.load();
        // A reported limit that replaces a configured one is shared and waited for in order.
        let is_alone = self.has_one_model();
        let is_shared = |tracker: &Arc<LimitTracker>| {
            let mut all = configured.all.trackers.iter();
            matches!(tracker.kind(), LimitKind::AllKeys(_))
                || all.any(|all| {
                    Arc::ptr_eq(all, tracker) || is_alone && all.kind() == tracker.kind()
                })
        };
        let accounting = self.settings.accounting;
        let expected = demand.expected();
        let claims = priced.map(|(tracker, cost)| {
            let claim = tracker.claim(*cost, tracker.reserve(accounting, expected), now);
            if spans_models && !is_shared(tracker) { claim.per_tenant() } else { claim }
        });
        let acquire = self.pacer.acquire(claims).into_debt();
        let mut acquire = acquire.caller(options.caller).priority(options.priority);
        for set in configured.of(model, &options.endpoint) {
            if let Some(slots) = &set.slots {
                acquire = acquire.in_group(&slots.group);
            }
        }
        let tenant = options.tenant.as_deref().unwrap_or_default();
        if spans_models {
            // Endpoints with limits of their own wait separately.
            let has_own = configured.has_endpoint(&options.endpoint);
            let endpoint = if has_own { options.endpoint.as_str() } else { "" };
            acquire = acquire.tenant(&[tenant, "\n", model, "\n", endpoint].concat());
        } else if !tenant.is_empty() {
            acquire = acquire.tenant(tenant);
        }
        // The deadline limits the wait even without a retry layer.
        match options.max_wait.into_iter().chain(options.deadline).min() {
            Some(max_wait) => acquire.max_wait(max_wait.saturating_sub(now.since(started))),
            None => acquire,
        }
    }

    /// Builds the error that says what a call would wait for and how long: the pacer knows the
    /// delay of its queue if it refused at once, the limits know theirs, and a concurrency slot
    /// takes as long as recent calls took.
    async fn no_permit(
        &self,
        source: AcquireError,
        trackers: &[Arc<LimitTracker>],
        demand: &Demand,
        (model, endpoint): (&str, &Endpoint),
    ) -> CallError {
        let provider = self.scope.provider().clone();
        let expected = demand.reserved(demand.expectation.rule);
        let mut longest: Option<(&'static str, Duration)> = None;
        let mut short = None;
        for tracker in trackers {
            let cost = tracker.reserve(self.settings.accounting, expected);
            let delay = tracker.delay(cost).await.unwrap_or_default();
            if delay > longest.map_or(Duration::ZERO, |(_, longest)| longest) {
                longest = Some((tracker.kind().wait_reason(), delay));
                short = Some((tracker, cost));
            }
        }
        if let (Some((tracker, cost)), Some((_, delay))) = (short, longest) {
            tracker.record_shortage(Some(cost), self.now().after(delay));
        }
        let gauges = self.pacer.gauges();
        let configured = self.configured.load();
        let mut slots = configured.of(model, endpoint).filter_map(|set| set.slots.as_ref());
        let is_full =
            gauges.is_full || slots.any(|slots| slots.group.in_flight() >= slots.group.limit());
        let slot = is_full.then(|| (WaitPart::CONCURRENCY, self.estimated_queue_time(&gauges)));
        let longest = longest.into_iter().chain(slot).max_by_key(|(_, delay)| *delay);
        let limited_by = longest.map(|(name, _)| name);
        let after = longest.map(|(_, delay)| delay).filter(|delay| !delay.is_zero());
        let after = source.retry_after().max(after);
        CallError::NoPermit { provider, source, limited_by, after }
    }

    /// Estimates how long waiting calls take to get a slot, from recent call durations.
    fn estimated_queue_time(&self, gauges: &Gauges) -> Duration {
        let waiting = u64::try_from(gauges.waiting).unwrap_or(u64::MAX).saturating_add(1);
        let rounds = waiting.div_ceil(gauges.concurrency.unwrap_or(1).max(1));
        Duration::from_millis(self.mean_call_time.load(Ordering::Relaxed).saturating_mul(rounds))
    }
}

/// Ends a wait at the deadline of its call. A pacer grants a little later than that, when the time of
/// the call is up.
async fn before(
    mut deadline: Pin<&mut Option<Sleep>>,
    timed_out: AcquireError,
    waiting: impl Future<Output = Option<Result<Permit, AcquireError>>>,
) -> Option<Result<Permit, AcquireError>> {
    let mut waiting = pin!(waiting);
    let in_time = poll_fn(|context| {
        if let Poll::Ready(done) = waiting.as_mut().poll(context) {
            return Poll::Ready(Some(done));
        }
        match deadline.as_mut().as_pin_mut() {
            Some(end) => end.poll(context).map(|()| None),
            None => Poll::Pending,
        }
    });
    in_time.await.unwrap_or(Some(Err(timed_out)))
}

/// Expected usage of a call and the maximum output it requests.
pub(super) struct Demand {
    pub(super) expectation: Expectation,
    pub(super) max_output: Option<u64>,
}

impl Demand {
    /// Charge while the call is in flight.
    pub(super) fn reserved(&self, rule: OutputCharge) -> Amounts {
        let Expectation { input, output, .. } = self.expectation;
        TokenAccounting::reserved(rule, input, output, self.max_output)
    }

    /// Expected final charge.
    fn expected(&self) -> Amounts {
        let Expectation { input, output, rule, expects_refund } = self.expectation;
        if expects_refund {
            TokenAccounting::expected(input, output, self.max_output)
        } else {
            self.reserved(rule)
        }
    }
}
