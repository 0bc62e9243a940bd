//! Waiting for a permit over all limits of a call, and what is told if there is none.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate::pacer::{Acquire, AcquireError, Gauges, Permit, WaitPart};
use tidegate_core::Time;

use super::{INLINE, Lane, costs_of};
use crate::call::{CallError, Outgoing, Terms};
use crate::rate_limit::account::OTHER;
use crate::rate_limit::charging::{Amounts, Charging, OutputCharge};
use crate::rate_limit::meter::{Counts, Meter};
use crate::rate_limit::quota::{Expectation, Quota};
use crate::telemetry::Stage;
use tidegate_providers::Endpoint;

/// A permit, and what it is for.
pub(super) struct Admitted {
    pub(super) permit: Permit,
    pub(super) meters: SmallVec<[Arc<Meter>; INLINE]>,
    /// What it was charged to each.
    pub(super) costs: SmallVec<[u64; INLINE]>,
    pub(super) asked: Asked,
}

impl Lane {
    /// Waits for a permit. If the provider turns out to charge output differently, a call that waits
    /// asks again for what it is charged then.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        quota: &Arc<Quota>,
        model: &str,
        call: &impl Outgoing,
    ) -> Result<Admitted, CallError> {
        let _waiting = self.stage_guard(Stage::Waiting);
        let begin = self.now();
        loop {
            let mut expectation = quota.expect(call.input_tokens());
            if call.has_estimated_input() {
                expectation.input = call.input_tokens();
            }
            let asked = Asked { expectation, max_output: call.max_output() };
            let meters = self.meters(quota, (model, &call.terms().endpoint));
            let reserved = asked.reserved(expectation.rule);
            let costs = costs_of(&meters, self.settings.charging, reserved);
            let priced = meters.iter().zip(&costs);
            let acquire = self.request(priced, &asked, (call.terms(), model), begin);
            match self.unless_repriced(quota, expectation.rule, acquire).await {
                Some(Ok(permit)) => return Ok(Admitted { permit, meters, costs, asked }),
                Some(Err(source)) => {
                    let endpoint = &call.terms().endpoint;
                    return Err(self.no_permit(source, &meters, &asked, (model, endpoint)).await);
                }
                None => {}
            }
        }
    }

    /// Waits for a permit, unless the provider turns out to charge by another rule.
    async fn unless_repriced(
        self: &Arc<Self>,
        quota: &Arc<Quota>,
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
                self.attend(quota);
            }
            let mut is_told = is_new;
            while changed.as_mut().poll(context).is_ready() {
                changed.set(self.rule_changes.notified());
                is_told = true;
            }
            if is_told && quota.rule() != rule { Poll::Ready(None) } else { Poll::Pending }
        })
        .await
    }

    /// The request for a permit, of a call that has waited since `begin`.
    fn request<'m>(
        &self,
        priced: impl Iterator<Item = (&'m Arc<Meter>, &'m u64)>,
        asked: &Asked,
        (terms, model): (&Terms, &str),
        begin: Time,
    ) -> Acquire {
        let now = self.now();
        let spans_models = self.scope.model_name().is_none_or(|model| model == OTHER);
        let configured = self.configured.load();
        // What stands in for a limit that was configured is everybody's, and waited for in turn.
        let is_alone = self.has_one_model();
        let is_everybodys = |meter: &Arc<Meter>| {
            let mut all = configured.all.meters.iter();
            matches!(meter.counts(), Counts::AllKeys(_))
                || all.any(|all| {
                    Arc::ptr_eq(all, meter) || is_alone && all.counts() == meter.counts()
                })
        };
        let charging = self.settings.charging;
        let likely = asked.likely();
        let claims = priced.map(|(meter, cost)| {
            let claim = meter.claim(*cost, meter.reserve(charging, likely), now);
            if spans_models && !is_everybodys(meter) { claim.own() } else { claim }
        });
        let acquire = self.pacer.acquire(claims).into_debt();
        let mut acquire = acquire.caller(terms.caller).priority(terms.priority);
        for set in configured.of(model, &terms.endpoint) {
            if let Some(slots) = &set.slots {
                acquire = acquire.within(&slots.group);
            }
        }
        let tenant = terms.tenant.as_deref().unwrap_or_default();
        if spans_models {
            // What has limits of its own waits for them by itself.
            let has_own = configured.has_endpoint(&terms.endpoint);
            let endpoint = if has_own { terms.endpoint.as_str() } else { "" };
            acquire = acquire.tenant(&[tenant, "\n", model, "\n", endpoint].concat());
        } else if !tenant.is_empty() {
            acquire = acquire.tenant(tenant);
        }
        // A deadline bounds the wait also where nobody retries.
        match terms.max_wait.into_iter().chain(terms.deadline).min() {
            Some(max_wait) => acquire.max_wait(max_wait.saturating_sub(now.since(begin))),
            None => acquire,
        }
    }

    /// Says what a call would wait for, and how long: the pacer knows the time of its queue if it
    /// refused at once, the limits know their own, and for a place it takes as long as calls take.
    async fn no_permit(
        &self,
        source: AcquireError,
        meters: &[Arc<Meter>],
        asked: &Asked,
        (model, endpoint): (&str, &Endpoint),
    ) -> CallError {
        let provider = self.scope.provider().clone();
        let expected = asked.reserved(asked.expectation.rule);
        let mut longest: Option<(&'static str, Duration)> = None;
        let mut short = None;
        for meter in meters {
            let cost = meter.reserve(self.settings.charging, expected);
            let delay = meter.delay(cost).await.unwrap_or_default();
            if delay > longest.map_or(Duration::ZERO, |(_, longest)| longest) {
                longest = Some((meter.counts().blamed(), delay));
                short = Some((meter, cost));
            }
        }
        if let (Some((meter, cost)), Some((_, delay))) = (short, longest) {
            meter.fell_short(Some(cost), self.now().after(delay));
        }
        let gauges = self.pacer.gauges();
        let configured = self.configured.load();
        let mut slots = configured.of(model, endpoint).filter_map(|set| set.slots.as_ref());
        let is_full =
            gauges.is_full || slots.any(|slots| slots.group.in_flight() >= slots.group.limit());
        let place = is_full.then(|| (WaitPart::CONCURRENCY, self.time_of_queue(&gauges)));
        let longest = longest.into_iter().chain(place).max_by_key(|(_, delay)| *delay);
        let limited_by = longest.map(|(name, _)| name);
        let after = longest.map(|(_, delay)| delay).filter(|delay| !delay.is_zero());
        let after = source.retry_after().max(after);
        CallError::NoPermit { provider, source, limited_by, after }
    }

    /// How long those who wait take to get a place, by the time that calls took of late.
    fn time_of_queue(&self, gauges: &Gauges) -> Duration {
        let waiting = u64::try_from(gauges.waiting).unwrap_or(u64::MAX).saturating_add(1);
        let rounds = waiting.div_ceil(gauges.concurrency.unwrap_or(1).max(1));
        Duration::from_millis(self.mean_time.load(Ordering::Relaxed).saturating_mul(rounds))
    }
}

/// What a call asks for, and what is expected of it.
pub(super) struct Asked {
    pub(super) expectation: Expectation,
    pub(super) max_output: Option<u64>,
}

impl Asked {
    /// What it is charged while it is under way.
    pub(super) fn reserved(&self, rule: OutputCharge) -> Amounts {
        let Expectation { input, output, .. } = self.expectation;
        Charging::reserved(rule, input, output, self.max_output)
    }

    /// What it will cost in the end.
    fn likely(&self) -> Amounts {
        let Expectation { input, output, rule, expects_refund } = self.expectation;
        if expects_refund {
            Charging::likely(input, output, self.max_output)
        } else {
            self.reserved(rule)
        }
    }
}
