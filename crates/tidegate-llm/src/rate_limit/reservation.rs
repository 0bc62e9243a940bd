//! A reservation: what a call was granted, and what becomes of it.

mod refusal;
mod usage_so_far;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate::pacer::{CallOutcome, Permit, WaitPart};
use tidegate_core::Time;
use tidegate_providers::{Class, Dimension, Event, MeasuredUsage, ReportedLimits, Usage};

use usage_so_far::UsageSoFar;

use super::call_queue::{CallQueue, INLINE};
use super::charge_inference::SentCall;
use super::limit_tracker::{LimitKind, LimitTracker, Mark};
use super::limit_view::ReportOrigin;
use super::model_limits::{Epoch, ModelLimits};
use super::token_accounting::{Amounts, OutputCharge, TokenAccounting};
use crate::call::{CallError, ExtraInput};
use crate::telemetry::{Stage, Stay};

/// A wait that is longer than this is none, but a quota that is used up.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// What a call was charged to one limit.
#[derive(Clone, Debug)]
pub(super) struct LimitCharge {
    pub(super) tracker: Arc<LimitTracker>,
    pub(super) cost: u64,
    /// The part of the cost that is for its input.
    pub(super) input: u64,
    pub(super) mark: Mark,
}

impl LimitCharge {
    /// What the charge becomes, of a call that left under one rule and ends under another.
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
        // What it had reserved was given back when the rule changed, to the limits of its own key.
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

/// The limit on tokens whose charges are followed to learn how the provider charges output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ObservedDimension(pub(super) Dimension);

/// What a call will use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimate {
    /// Input tokens as we counted them; zero if they were not counted.
    pub(super) counted: u64,
    pub(super) expected: Amounts,
    /// What it is charged whatever it uses.
    pub(super) certain: Amounts,
}

/// The limits on requests of a day that a call counts for.
pub(super) type DailyLimits = SmallVec<[Arc<LimitTracker>; 1]>;

/// Leave to go ahead, and what it cost.
pub(super) struct CallGrant {
    pub(super) permit: Permit,
    pub(super) charges: SmallVec<[LimitCharge; INLINE]>,
    /// One request of the day of each of these.
    pub(super) daily_limits: DailyLimits,
    pub(super) sent_at: Time,
    pub(super) epoch: Epoch,
    pub(super) sent_call: SentCall,
    pub(super) observed: Option<ObservedDimension>,
}

/// What a call was granted: its charges, and a place among the calls under way. It is settled with
/// what the call really used, and given back at its end, however it ends.
#[must_use = "a reservation that is dropped counts as a call that was broken off"]
pub struct Reservation {
    call: Option<ActiveCall>,
}

struct ActiveCall {
    queue: Arc<CallQueue>,
    model_limits: Arc<ModelLimits>,
    grant: CallGrant,
    estimate: Estimate,
    /// Counts the input that was sent beyond what was expected.
    extra_input: Option<ExtraInput>,
    /// What the answer has used so far; `None` before it has begun.
    used: Option<UsageSoFar>,
    /// The limit that refused it, if one did.
    refused_by: Option<Dimension>,
    _in_flight: Stay,
}

/// What a charge becomes.
#[derive(Clone, Copy, Debug)]
enum Settlement {
    /// It stays, as far as the provider can have charged it.
    Unknown,
    /// So much was used.
    Used(Amounts),
    /// The call is charged as a call, but no tokens.
    RequestOnly,
    /// That, and nothing of what all keys have together: whoever invents keys would use it up.
    CredentialRejected,
    /// It was never made.
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

    /// How long the call waited.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.call.as_ref().map_or(Duration::ZERO, |call| call.grant.permit.waited())
    }

    /// What made it wait, by the name of the dimension or `concurrency`, the most first.
    #[must_use]
    pub fn waited_for(&self) -> Vec<(&'static str, Duration)> {
        let Some(call) = &self.call else { return Vec::new() };
        call.grant
            .permit
            .parts()
            .iter()
            .map(|part| (call.name_of(&part.limit), part.time))
            .collect()
    }

    /// The part of the wait that was for tokens.
    pub(super) fn waited_for_tokens(&self) -> Duration {
        let Some(call) = &self.call else { return Duration::ZERO };
        let parts = call.grant.permit.parts().iter();
        let is_of_tokens =
            |limit| call.charge_to(limit).is_some_and(|charge| charge.tracker.counts_tokens());
        parts.filter(|part| is_of_tokens(&*part.limit)).map(|part| part.time).sum()
    }

    /// Tokens that were reserved, input and output.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.call.as_ref().map_or(0, |call| call.estimate.expected.total())
    }

    /// What is allowed in a minute, the least of what it was charged to.
    pub(super) fn allowed(&self, dimension: Dimension) -> Option<u64> {
        let charges = self.call.iter().flat_map(|call| &call.grant.charges);
        let same =
            charges.filter(|charge| charge.tracker.kind() == LimitKind::Dimension(dimension));
        let minute = Duration::from_secs(60);
        same.filter_map(|charge| charge.tracker.allowed())
            .map(|allowed| allowed.in_span(minute))
            .min()
    }

    /// The answer begins, and its head told this about limits.
    pub fn heard(&mut self, reported: &ReportedLimits) {
        let Some(call) = &mut self.call else { return };
        call.used.get_or_insert_default();
        call.model_limits.answered();
        let CallGrant { charges, sent_at, sent_call, observed, .. } = &call.grant;
        let now = call.queue.now();
        let remaining =
            observed.and_then(|ObservedDimension(dimension)| reported.get(dimension)?.remaining);
        let is_changed = call.model_limits.infer(|inference| {
            let is_admitted = inference.admitted(sent_call, now);
            let reported = |remaining| inference.reported(remaining, sent_call, now);
            remaining.is_some_and(reported) || is_admitted
        });
        // What the new rule gives back is in the report already.
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

    /// A piece of the answer has come.
    pub fn came(&mut self, event: &Event) {
        match event {
            Event::Usage(usage) => self.uses(*usage),
            event => event.words().into_iter().for_each(|words| self.saw(words)),
        }
    }

    /// Some of the output has come.
    pub fn saw(&mut self, text: &str) {
        if let Some(call) = &mut self.call {
            call.used.get_or_insert_default().add_text(text);
        }
    }

    /// Output has come that cannot be read, and is estimated at so many tokens.
    pub fn saw_unread(&mut self, tokens: u64) {
        if let Some(call) = &mut self.call {
            call.used.get_or_insert_default().add_unread(tokens);
        }
    }

    /// So much is used so far, as the provider says. A later word replaces an earlier one.
    pub fn uses(&mut self, usage: Usage) {
        if let Some(call) = &mut self.call {
            call.used.get_or_insert_default().set_reported(usage);
        }
    }

    /// What the call has used so far: as the provider told it, and else as it was counted.
    #[must_use]
    pub fn measured(&self) -> MeasuredUsage {
        match &self.call {
            Some(call) => call.measured(),
            None => MeasuredUsage::of_input(0),
        }
    }

    /// Tokens that the call was expected to use when it left: input and output.
    #[must_use]
    pub fn expected(&self) -> (u64, u64) {
        let expected = self.call.as_ref().map(|call| call.estimate.expected);
        expected.map_or((0, 0), |expected| (expected.input, expected.output))
    }

    /// The answer is complete, and used so much, if the provider said.
    pub fn complete(mut self, usage: Option<Usage>) {
        let Some(mut call) = self.call.take() else { return };
        call.set_final_usage(usage);
        let measured = call.measured();
        let MeasuredUsage { usage, is_input_reported, is_output_reported } = measured;
        if usage.output > 0 || is_input_reported && is_output_reported {
            let input = if is_input_reported { usage.input } else { 0 };
            call.model_limits.learn(call.estimate.counted, input, usage.output);
        }
        let settlement = call.settlement_of(measured);
        call.end(settlement, CallOutcome::Success);
    }

    /// The answer broke off, after having used so much, if the provider said.
    pub fn broke_off(mut self, error: &CallError, usage: Option<Usage>) {
        let Some(mut call) = self.call.take() else { return };
        call.set_final_usage(usage);
        call.learn_from(error);
        let settlement = call.settlement_of(call.measured());
        let outcome = call.outcome(error);
        call.end(settlement, outcome);
    }

    /// There is no answer, for this reason. What comes back may say more about it: a call that is
    /// larger than the limit that refused it is too big, however long anybody waits.
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
            // Where charges are never settled, failed calls keep theirs too.
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
    /// What was charged to the limit of this name.
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

    /// What the provider said at last, unless it was said before the last piece came.
    fn set_final_usage(&mut self, usage: Option<Usage>) {
        if let Some(usage) = usage {
            self.used.get_or_insert_default().set_final(usage);
        }
    }

    fn measured(&self) -> MeasuredUsage {
        let input = self.estimate.expected.input.saturating_add(self.extra_input());
        self.used.as_ref().map_or(MeasuredUsage::of_input(input), |used| used.measured(input))
    }

    fn extra_input(&self) -> u64 {
        self.extra_input.as_ref().map_or(0, |count| count())
    }

    fn settlement_of(&self, measured: MeasuredUsage) -> Settlement {
        Settlement::Used(self.queue.settings().accounting.used(&measured.usage))
    }

    /// Settles, and gives the place back.
    fn end(self, settlement: Settlement, outcome: CallOutcome) {
        let accounting = self.queue.settings().accounting;
        let store = self.queue.settings().model_params.engine.store().clone();
        let (rules, now) = (self.finish_sent_call(settlement), self.queue.now());
        self.queue.call_ended(self.grant.sent_at);
        let extra_input = self.extra_input();
        let CallGrant { mut permit, charges, daily_limits, .. } = self.grant;
        let is_given_back = |day: &&Arc<LimitTracker>| match settlement {
            Settlement::NotSent => true,
            Settlement::CredentialRejected => day.is_over_all_keys(),
            _ => false,
        };
        daily_limits.iter().filter(is_given_back).for_each(|day| day.refund());
        let actual: SmallVec<[u64; INLINE]> = charges
            .iter()
            .map(|charge| charge.final_cost(settlement, accounting, rules, extra_input))
            .collect();
        for (charge, actual) in charges.iter().zip(&actual) {
            charge.tracker.corrected(charge.cost, *actual, now);
        }
        if charges.iter().zip(&actual).all(|(charge, actual)| charge.cost == *actual) {
            permit.finish(outcome);
            return;
        }
        store.detach(async move {
            if let Err(error) = permit.settle(&actual).await {
                tracing::warn!(%error, "a call keeps what it was charged at first");
            }
            permit.finish(outcome);
        });
    }

    /// Tells what the call used to those who learn how output is charged. The rules under which it
    /// left and under which it ends.
    fn finish_sent_call(&self, settlement: Settlement) -> (OutputCharge, OutputCharge) {
        let CallGrant { sent_call, observed, .. } = &self.grant;
        let now = self.queue.now();
        let accounting = self.queue.settings().accounting;
        let used = match (settlement, observed) {
            // Without output nobody knows what it used.
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
            if !self.refused_by.is_some_and(Dimension::is_of_tokens) {
                inference.ended(sent_call, used, now);
            }
            (sent_call.rule, inference.rule())
        })
    }
}

impl Drop for Reservation {
    /// The caller has gone: what has come is charged, or what was expected if nothing has, but
    /// never more than the provider admits. Nobody locks others out by leaving.
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        let settlement = match &call.used {
            Some(_) => call.settlement_of(call.measured()),
            None => Settlement::Unknown,
        };
        call.end(settlement, CallOutcome::Ignored);
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("scope", &self.call.as_ref().map(|call| call.queue.scope()))
            .field("tokens", &self.tokens())
            .finish_non_exhaustive()
    }
}
