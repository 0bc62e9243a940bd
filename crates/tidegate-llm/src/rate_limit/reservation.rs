//! A reservation: the charges and the slot of one call, and their settlement.

mod refusal;
mod text_counter;
mod usage_so_far;

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate::pacer::{Permit, PermitOutcome, WaitPart};
use tidegate_core::Time;
use tidegate_providers::{Class, Dimension, Event, ReportedLimits, Usage};

pub(crate) use usage_so_far::UsageSoFar;

use super::call_queue::{CallQueue, INLINE};
use super::charge_inference::SentCall;
use super::limit_tracker::{ChargeMark, LimitKind, LimitTracker};
use super::limit_view::ReportOrigin;
use super::model_limits::{Epoch, ModelLimits};
use super::token_accounting::{Amounts, OutputCharge, TokenAccounting};
use crate::call::{CallError, ExtraInput, ResponsePermit};
use crate::telemetry::{Stage, StageGuard};

/// A longer `Retry-After` is treated as an exhausted quota, not as a wait.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// Charge of a call to one limit.
#[derive(Clone, Debug)]
pub(super) struct LimitCharge {
    pub(super) tracker: Arc<LimitTracker>,
    pub(super) cost: u64,
    /// Part of the cost for input.
    pub(super) input: u64,
    pub(super) mark: ChargeMark,
}

impl LimitCharge {
    /// Returns the final charge of a call that was sent under `rules.0` and ends under `rules.1`.
    fn final_cost(
        &self,
        settlement: Settlement,
        accounting: TokenAccounting,
        rules: (OutputCharge, OutputCharge),
        extra_input: u64,
    ) -> u64 {
        let was_reserved = matches!(
            rules,
            (OutputCharge::MaxTokens | OutputCharge::MaxTokensRefunded, OutputCharge::ActualUsage)
        );
        // Its reserve was credited when the rule changed, to the limits of its own key.
        let is_of_key = matches!(self.tracker.kind(), LimitKind::Dimension(_));
        let given_back = match was_reserved && is_of_key && self.tracker.counts_output(accounting) {
            true => self.cost.saturating_sub(self.input),
            false => 0,
        };
        let extra = match self.tracker.counts_tokens() {
            true => self.tracker.cost(accounting, Amounts { input: extra_input, output: 0 }),
            false => 0,
        };
        match settlement {
            Settlement::Used(_)
                if rules.1 == OutputCharge::MaxTokens && self.tracker.counts_tokens() =>
            {
                self.cost.saturating_add(extra)
            }
            Settlement::Used(amounts) => {
                self.tracker.cost(accounting, amounts).saturating_add(given_back)
            }
            Settlement::Unknown => self.tracker.admitted(self.cost.saturating_add(extra)),
            Settlement::CredentialRejected if self.tracker.is_over_all_keys() => 0,
            Settlement::RequestOnly | Settlement::CredentialRejected
                if !self.tracker.counts_tokens() =>
            {
                self.cost
            }
            Settlement::RequestOnly | Settlement::CredentialRejected | Settlement::NotSent => {
                given_back
            }
        }
    }
}

/// Token limit whose charges are observed to infer how the provider charges output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ObservedDimension(pub(super) Dimension);

/// Expected usage of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimate {
    /// Input tokens as we counted them; zero if not counted.
    pub(super) counted: u64,
    pub(super) expected: Amounts,
    /// Minimum charge, whatever it uses.
    pub(super) minimum: Amounts,
}

/// Daily limits that a call is charged to.
pub(super) type DailyLimits = SmallVec<[Arc<LimitTracker>; 1]>;

/// Permit of a call and its charges.
pub(super) struct CallGrant {
    pub(super) permit: Permit,
    pub(super) charges: SmallVec<[LimitCharge; INLINE]>,
    /// Daily limits, charged one request each.
    pub(super) daily_limits: DailyLimits,
    pub(super) sent_at: Time,
    pub(super) epoch: Epoch,
    pub(super) sent_call: SentCall,
    pub(super) observed: Option<ObservedDimension>,
}

/// Charges and a concurrency slot of one call. They are settled with actual usage and released when
/// the call ends, however it ends.
#[must_use = "dropping a reservation settles it as a cancelled call"]
pub struct Reservation {
    call: Option<ActiveCall>,
}

struct ActiveCall {
    queue: Arc<CallQueue>,
    model_limits: Arc<ModelLimits>,
    grant: CallGrant,
    estimate: Estimate,
    /// Counts input sent beyond what was expected.
    extra_input: Option<ExtraInput>,
    /// Usage of the response so far; `None` before it starts.
    used: Option<UsageSoFar>,
    /// Limit that refused the call.
    refused_by: Option<Dimension>,
    _in_flight: StageGuard,
}

/// How a charge is settled.
#[derive(Clone, Copy, Debug)]
enum Settlement {
    /// Unknown usage: keep the charge, as far as the provider can have admitted it.
    Unknown,
    /// Charge the tokens used.
    Used(Amounts),
    /// Charge the request but no tokens.
    RequestOnly,
    /// Like `RequestOnly`, but refund limits over all keys: otherwise invented keys could exhaust
    /// them.
    CredentialRejected,
    /// The call was never sent: refund everything.
    NotSent,
}

impl Reservation {
    pub(super) fn new(
        queue: Arc<CallQueue>,
        model_limits: Arc<ModelLimits>,
        grant: CallGrant,
        estimate: Estimate,
        extra_input: Option<ExtraInput>,
    ) -> Self {
        let call = ActiveCall {
            _in_flight: queue.enter_stage(Stage::InFlight),
            queue,
            model_limits,
            grant,
            estimate,
            extra_input,
            used: None,
            refused_by: None,
        };
        Self { call: Some(call) }
    }

    /// Returns how long the call waited.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.call.as_ref().map_or(Duration::ZERO, |call| call.grant.permit.waited())
    }

    /// Returns what the call waited for, by dimension name or `concurrency`, longest first. A part
    /// for requests is the time beyond the wait for tokens.
    #[must_use]
    pub fn waited_for(&self) -> Vec<(&'static str, Duration)> {
        let Some(call) = &self.call else { return Vec::new() };
        name_parts(call.grant.permit.wait_parts(), |limit| call.name_of(limit))
    }

    /// Returns the limit that the call waited for longest, if it waited.
    pub(super) fn limited_by(&self) -> Option<&'static str> {
        self.waited_for().first().map(|(name, _)| *name)
    }

    /// Part of the wait that was for tokens.
    pub(super) fn waited_for_tokens(&self) -> Duration {
        self.waited_where(|call, limit| {
            call.charge_to(limit).is_some_and(|charge| charge.tracker.counts_tokens())
        })
    }

    /// Part of the wait that was for a slot.
    pub(super) fn waited_for_slot(&self) -> Duration {
        self.waited_where(|_, limit| limit == WaitPart::CONCURRENCY)
    }

    fn waited_where(&self, is_meant: impl Fn(&ActiveCall, &str) -> bool) -> Duration {
        let Some(call) = &self.call else { return Duration::ZERO };
        let parts = call.grant.permit.wait_parts().iter();
        parts.filter(|part| is_meant(call, &part.limit)).map(|part| part.time).sum()
    }

    /// Returns the reserved tokens, input and output.
    #[must_use]
    pub fn reserved_tokens(&self) -> u64 {
        self.call.as_ref().map_or(0, |call| call.estimate.expected.total())
    }

    /// Returns the lowest limit per minute that the call was charged to.
    pub(super) fn allowed(&self, dimension: Dimension) -> Option<u64> {
        let charges = self.call.iter().flat_map(|call| &call.grant.charges);
        let same =
            charges.filter(|charge| charge.tracker.kind() == LimitKind::Dimension(dimension));
        let minute = Duration::from_secs(60);
        same.filter_map(|charge| charge.tracker.allowed())
            .map(|allowed| allowed.in_span(minute))
            .min()
    }

    /// Reports that the response started, with the limits in its headers.
    pub fn response_started(&mut self, reported: &ReportedLimits) {
        let Some(call) = &mut self.call else { return };
        call.used.get_or_insert_default();
        call.model_limits.response_received();
        let CallGrant { charges, sent_at, sent_call, observed, .. } = &call.grant;
        let now = call.queue.now();
        let remaining =
            observed.and_then(|ObservedDimension(dimension)| reported.get(dimension)?.remaining);
        let is_changed = call.model_limits.infer(|inference| {
            let is_admitted = inference.admitted(sent_call, now);
            let reported = |remaining| inference.reported(remaining, sent_call, now);
            remaining.is_some_and(reported) || is_admitted
        });
        // The report already includes what the new rule refunds.
        if is_changed {
            call.queue.rule_changed(&call.model_limits, *observed);
        } else {
            call.queue.apply_feedback(
                &call.model_limits,
                (reported, ReportOrigin::Response),
                charges,
                *sent_at,
            );
        }
    }

    /// Reports an event of the response.
    pub fn record_event(&mut self, event: &Event) {
        match event {
            Event::Usage(usage) => self.record_usage(*usage),
            event => event.text().into_iter().for_each(|words| self.record_text(words)),
        }
    }

    /// Reports output text.
    pub fn record_text(&mut self, text: &str) {
        if let Some(call) = &mut self.call {
            call.used.get_or_insert_default().add_text(text);
        }
    }

    /// Reports output that cannot be read, estimated at `tokens` tokens.
    pub fn record_unread_tokens(&mut self, tokens: u64) {
        if let Some(call) = &mut self.call {
            call.used.get_or_insert_default().add_unread(tokens);
        }
    }

    /// Reports the usage so far as counted by the provider. Replaces earlier reports.
    pub fn record_usage(&mut self, usage: Usage) {
        if let Some(call) = &mut self.call {
            call.used.get_or_insert_default().set_reported(usage);
        }
    }

    /// Returns the usage so far as reported by the provider, else as counted here.
    #[must_use]
    pub fn usage(&self) -> Usage {
        match &self.call {
            Some(call) => call.usage(),
            None => Usage::estimated_input(0),
        }
    }

    /// Returns the input and output tokens that the call was expected to use.
    #[must_use]
    pub fn expected_tokens(&self) -> (u64, u64) {
        let expected = self.call.as_ref().map(|call| call.estimate.expected);
        expected.map_or((0, 0), |expected| (expected.input, expected.output))
    }

    /// Settles a complete response, with its usage if the provider reported it.
    pub fn complete(mut self, usage: Option<Usage>) {
        let Some(mut call) = self.call.take() else { return };
        call.set_final_usage(usage);
        let measured = call.usage();
        let is_estimated = measured.is_input_estimated || measured.is_output_estimated;
        if measured.output > 0 || !is_estimated {
            let input = if measured.is_input_estimated { 0 } else { measured.input };
            call.model_limits.learn(call.estimate.counted, input, measured.output);
        }
        let settlement = call.settlement_of(measured);
        call.end(settlement, PermitOutcome::Success);
    }

    /// Settles an interrupted response, with its usage if the provider reported it.
    pub fn interrupted(mut self, error: &CallError, usage: Option<Usage>) {
        let Some(mut call) = self.call.take() else { return };
        call.set_final_usage(usage);
        call.learn_from(error);
        let settlement = call.settlement_of(call.usage());
        let outcome = call.outcome(error);
        call.end(settlement, outcome);
    }

    /// Settles a failed call. The returned error may be more specific: a call that exceeds the
    /// limit that refused it is too large, however long it waits.
    pub fn failed(mut self, mut error: CallError) -> CallError {
        let Some(mut call) = self.call.take() else { return error };
        call.learn_from(&error);
        if let CallError::Provider(failure) = &mut error {
            let is_limited = matches!(failure.class, Class::RateLimited { .. });
            if is_limited && call.never_fits(failure) {
                failure.class = Class::TooLarge;
            }
            if let Class::RateLimited { after: after @ None, .. } = &mut failure.class {
                *after = call.refill_time(Some(&failure.reported_limits));
            }
        }
        let settlement = match error.class() {
            _ if !error.was_sent() => Settlement::NotSent,
            // As for a dropped call: the provider may still be working on it.
            _ if error.is_timeout() => Settlement::Unknown,
            // Where the provider never refunds, failed calls stay charged too.
            Class::Transient | Class::Overloaded if call.keeps_charges() => Settlement::Unknown,
            Class::CredentialRejected => Settlement::CredentialRejected,
            _ => Settlement::RequestOnly,
        };
        let outcome = call.outcome(&error);
        call.end(settlement, outcome);
        error
    }
}

impl ActiveCall {
    /// Returns the charge to the limit `limit`.
    fn charge_to(&self, limit: &str) -> Option<&LimitCharge> {
        self.grant.charges.iter().find(|charge| charge.tracker.name() == limit)
    }

    fn name_of(&self, limit: &str) -> &'static str {
        let charge = self.charge_to(limit);
        charge.map_or(WaitPart::CONCURRENCY, |charge| charge.tracker.kind().wait_reason())
    }

    fn keeps_charges(&self) -> bool {
        self.model_limits.rule() == OutputCharge::MaxTokens
    }

    /// Sets the final usage, unless it was reported before the last event.
    fn set_final_usage(&mut self, usage: Option<Usage>) {
        if let Some(usage) = usage {
            self.used.get_or_insert_default().set_final(usage);
        }
    }

    fn usage(&self) -> Usage {
        let input = self.estimate.expected.input.saturating_add(self.extra_input());
        self.used.as_ref().map_or(Usage::estimated_input(input), |used| used.usage(input))
    }

    fn extra_input(&self) -> u64 {
        self.extra_input.as_ref().map_or(0, |count| count())
    }

    fn settlement_of(&self, measured: Usage) -> Settlement {
        Settlement::Used(self.queue.settings().accounting.used(&measured))
    }

    /// Settles the charges and releases the slot.
    fn end(self, settlement: Settlement, outcome: PermitOutcome) {
        let accounting = self.queue.settings().accounting;
        let store = self.queue.settings().model_params.engine.store().clone();
        let (rules, now) = (self.finish_sent_call(settlement), self.queue.now());
        self.queue.call_ended(self.grant.sent_at);
        let extra_input = self.extra_input();
        let CallGrant { mut permit, charges, daily_limits, .. } = self.grant;
        let is_refunded = |limit: &&Arc<LimitTracker>| match settlement {
            Settlement::NotSent => true,
            Settlement::CredentialRejected => limit.is_over_all_keys(),
            _ => false,
        };
        daily_limits.iter().filter(is_refunded).for_each(|limit| limit.refund());
        let actual: SmallVec<[u64; INLINE]> = charges
            .iter()
            .map(|charge| charge.final_cost(settlement, accounting, rules, extra_input))
            .collect();
        for (charge, actual) in charges.iter().zip(&actual) {
            charge.tracker.record_final_cost(charge.cost, *actual, now);
        }
        if charges.iter().zip(&actual).all(|(charge, actual)| charge.cost == *actual) {
            permit.finish(outcome);
            return;
        }
        store.detach(async move {
            if let Err(error) = permit.settle(&actual).await {
                tracing::warn!(%error, "settlement failed; keeping the reserved charge");
            }
            permit.finish(outcome);
        });
    }

    /// Reports the usage to the inference of the charging rule. Returns the rules under which the
    /// call was sent and ended.
    fn finish_sent_call(&self, settlement: Settlement) -> (OutputCharge, OutputCharge) {
        let CallGrant { sent_call, observed, .. } = &self.grant;
        let now = self.queue.now();
        let accounting = self.queue.settings().accounting;
        let used = match (settlement, observed) {
            // Without output the usage is unknown.
            (Settlement::Used(amounts), _) if amounts.output == 0 => None,
            (Settlement::Used(amounts), Some(ObservedDimension(dimension))) => {
                Some(accounting.cost(*dimension, amounts))
            }
            (Settlement::Used(amounts), None) => Some(amounts.output),
            (Settlement::RequestOnly | Settlement::CredentialRejected | Settlement::NotSent, _) => {
                Some(0)
            }
            _ => None,
        };
        self.model_limits.infer(|inference| {
            if !self.refused_by.is_some_and(Dimension::counts_tokens) {
                inference.ended(sent_call, used, now);
            }
            (sent_call.rule, inference.rule())
        })
    }
}

impl ResponsePermit for Reservation {
    fn record_event(&mut self, event: &Event) {
        self.record_event(event);
    }

    fn complete(self: Box<Self>, usage: Option<Usage>) {
        Self::complete(*self, usage);
    }

    fn interrupted(self: Box<Self>, error: &CallError, usage: Option<Usage>) {
        Self::interrupted(*self, error, usage);
    }
}

impl Drop for Reservation {
    /// The caller is gone: charges what was received, or what was expected if nothing was, but
    /// never more than the provider admits, so a cancelled call cannot lock others out.
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        let settlement = match &call.used {
            Some(_) => call.settlement_of(call.usage()),
            None => Settlement::Unknown,
        };
        call.end(settlement, PermitOutcome::Ignored);
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("scope", &self.call.as_ref().map(|call| call.queue.scope()))
            .field("tokens", &self.reserved_tokens())
            .finish_non_exhaustive()
    }
}

/// Returns the parts of a wait with the names of their limits, longest first.
pub(crate) fn name_parts(
    parts: &[WaitPart],
    name_of: impl Fn(&str) -> &'static str,
) -> Vec<(&'static str, Duration)> {
    let mut named: Vec<(&'static str, Duration)> = Vec::new();
    for part in parts {
        let name = name_of(&part.limit);
        match named.iter_mut().find(|(known, _)| *known == name) {
            Some((_, time)) => *time += part.time,
            None => named.push((name, part.time)),
        }
    }
    named.sort_by_key(|(_, time)| Reverse(*time));
    named
}
