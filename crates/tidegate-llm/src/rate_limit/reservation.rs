//! A reservation: what a call was granted, and what becomes of it.

mod measure;
mod refusal;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate::pacer::{CallOutcome, Permit, WaitPart};
use tidegate_core::Time;
use tidegate_providers::{Class, Dimension, Event, MeasuredUsage, ReportedLimits, Usage};

use measure::UsageSoFar;

use super::charge_inference::Departure;
use super::charging::{Amounts, Charging, OutputCharge};
use super::lane::{INLINE, Lane};
use super::limit_view::ReportOrigin;
use super::meter::{Counts, Mark, Meter};
use super::quota::{Epoch, Quota};
use crate::call::{CallError, ExtraInput};
use crate::telemetry::{Stage, StageGuard};

/// A wait that is longer than this is none, but a quota that is used up.
const LONG: Duration = Duration::from_secs(600);

/// What a call was charged to one limit.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) meter: Arc<Meter>,
    pub(super) cost: u64,
    /// The part of the cost that is for its input.
    pub(super) input: u64,
    pub(super) mark: Mark,
}

impl Line {
    /// What the charge becomes, of a call that left under one rule and ends under another.
    fn in_the_end(
        &self,
        fate: Fate,
        charging: Charging,
        rules: (OutputCharge, OutputCharge),
        extra_input: u64,
    ) -> u64 {
        let was_reserved =
            matches!(rules, (OutputCharge::Kept | OutputCharge::GivenBack, OutputCharge::AtEnd));
        // What it had reserved was given back when the rule changed, to the limits of its own key.
        let is_of_key = matches!(self.meter.counts(), Counts::Dimension(_));
        let given_back = match was_reserved && is_of_key && self.meter.counts_output(charging) {
            true => self.cost.saturating_sub(self.input),
            false => 0,
        };
        let extra = match self.meter.is_of_tokens() {
            true => self.meter.cost(charging, Amounts { input: extra_input, output: 0 }),
            false => 0,
        };
        match fate {
            Fate::Settle(_) if rules.1 == OutputCharge::Kept && self.meter.is_of_tokens() => {
                self.cost.saturating_add(extra)
            }
            Fate::Settle(amounts) => self.meter.cost(charging, amounts).saturating_add(given_back),
            Fate::Unknown => self.meter.admitted(self.cost.saturating_add(extra)),
            Fate::Rejected if self.meter.is_of_all_keys() => 0,
            Fate::CallOnly | Fate::Rejected if !self.meter.is_of_tokens() => self.cost,
            Fate::CallOnly | Fate::Rejected | Fate::Nothing => given_back,
        }
    }
}

/// The limit on tokens whose charges are followed to learn how the provider charges output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Followed(pub(super) Dimension);

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
pub(super) type Days = SmallVec<[Arc<Meter>; 1]>;

/// Leave to go ahead, and what it cost.
pub(super) struct Leave {
    pub(super) permit: Permit,
    pub(super) lines: SmallVec<[Line; INLINE]>,
    /// One request of the day of each of these.
    pub(super) days: Days,
    pub(super) left: Time,
    pub(super) epoch: Epoch,
    pub(super) departure: Departure,
    pub(super) followed: Option<Followed>,
}

/// What a call was granted: its charges, and a place among the calls under way. It is settled with
/// what the call really used, and given back at its end, however it ends.
#[must_use = "a reservation that is dropped counts as a call that was broken off"]
pub struct Reservation {
    held: Option<Held>,
}

struct Held {
    lane: Arc<Lane>,
    quota: Arc<Quota>,
    leave: Leave,
    estimate: Estimate,
    /// Counts the input that was sent beyond what was expected.
    extra_input: Option<ExtraInput>,
    /// What the answer has used so far; `None` before it has begun.
    used: Option<UsageSoFar>,
    /// The limit that refused it, if one did.
    refused_by: Option<Dimension>,
    _in_flight: StageGuard,
}

/// What a charge becomes.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// It stays, as far as the provider can have charged it.
    Unknown,
    /// So much was used.
    Settle(Amounts),
    /// The call is charged as a call, but no tokens.
    CallOnly,
    /// That, and nothing of what all keys have together: whoever invents keys would use it up.
    Rejected,
    /// It was never made.
    Nothing,
}

impl Reservation {
    pub(super) fn new(
        lane: Arc<Lane>,
        quota: Arc<Quota>,
        leave: Leave,
        estimate: Estimate,
        extra_input: Option<ExtraInput>,
    ) -> Self {
        let held = Held {
            _in_flight: lane.stage_guard(Stage::InFlight),
            lane,
            quota,
            leave,
            estimate,
            extra_input,
            used: None,
            refused_by: None,
        };
        Self { held: Some(held) }
    }

    /// How long the call waited.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.held.as_ref().map_or(Duration::ZERO, |held| held.leave.permit.waited())
    }

    /// What made it wait, by the name of the dimension or `concurrency`, the most first.
    #[must_use]
    pub fn waited_for(&self) -> Vec<(&'static str, Duration)> {
        let Some(held) = &self.held else { return Vec::new() };
        held.leave
            .permit
            .parts()
            .iter()
            .map(|part| (held.name_of(&part.limit), part.time))
            .collect()
    }

    /// The part of the wait that was for tokens.
    pub(super) fn waited_for_tokens(&self) -> Duration {
        let Some(held) = &self.held else { return Duration::ZERO };
        let parts = held.leave.permit.parts().iter();
        let is_of_tokens =
            |limit| held.line_of(limit).is_some_and(|line| line.meter.is_of_tokens());
        parts.filter(|part| is_of_tokens(&*part.limit)).map(|part| part.time).sum()
    }

    /// Tokens that were reserved, input and output.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.held.as_ref().map_or(0, |held| held.estimate.expected.total())
    }

    /// What is allowed in a minute, the least of what it was charged to.
    pub(super) fn allowed(&self, dimension: Dimension) -> Option<u64> {
        let lines = self.held.iter().flat_map(|held| &held.leave.lines);
        let same = lines.filter(|line| line.meter.counts() == Counts::Dimension(dimension));
        let minute = Duration::from_secs(60);
        same.filter_map(|line| line.meter.allowed()).map(|allowed| allowed.in_span(minute)).min()
    }

    /// The answer begins, and its head told this about limits.
    pub fn heard(&mut self, told: &ReportedLimits) {
        let Some(held) = &mut self.held else { return };
        held.used.get_or_insert_default();
        held.quota.answered();
        let Leave { lines, left, departure, followed, .. } = &held.leave;
        let now = held.lane.now();
        let remaining = followed.and_then(|Followed(dimension)| told.get(dimension)?.remaining);
        let is_changed = held.quota.infer(|inference| {
            let is_admitted = inference.admitted(departure, now);
            let reported = |left| inference.reported(left, departure, now);
            remaining.is_some_and(reported) || is_admitted
        });
        // What the new rule gives back is in the report already.
        if is_changed {
            held.lane.rule_changed(&held.quota, *followed);
        } else {
            held.lane.hear(&held.quota, (told, ReportOrigin::Response), lines, *left);
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
        if let Some(held) = &mut self.held {
            held.used.get_or_insert_default().saw(text);
        }
    }

    /// Output has come that cannot be read, and is estimated at so many tokens.
    pub fn saw_unread(&mut self, tokens: u64) {
        if let Some(held) = &mut self.held {
            held.used.get_or_insert_default().saw_unread(tokens);
        }
    }

    /// So much is used so far, as the provider says. A later word replaces an earlier one.
    pub fn uses(&mut self, usage: Usage) {
        if let Some(held) = &mut self.held {
            held.used.get_or_insert_default().tell(usage);
        }
    }

    /// What the call has used so far: as the provider told it, and else as it was counted.
    #[must_use]
    pub fn measured(&self) -> MeasuredUsage {
        match &self.held {
            Some(held) => held.measured(),
            None => MeasuredUsage::of_input(0),
        }
    }

    /// Tokens that the call was expected to use when it left: input and output.
    #[must_use]
    pub fn expected(&self) -> (u64, u64) {
        let expected = self.held.as_ref().map(|held| held.estimate.expected);
        expected.map_or((0, 0), |expected| (expected.input, expected.output))
    }

    /// The answer is complete, and used so much, if the provider said.
    pub fn complete(mut self, usage: Option<Usage>) {
        let Some(mut held) = self.held.take() else { return };
        held.told(usage);
        let measured = held.measured();
        let MeasuredUsage { usage, is_input_reported, is_output_reported } = measured;
        if usage.output > 0 || is_input_reported && is_output_reported {
            let input = if is_input_reported { usage.input } else { 0 };
            held.quota.learn(held.estimate.counted, input, usage.output);
        }
        let fate = held.settled(measured);
        held.end(fate, CallOutcome::Success);
    }

    /// The answer broke off, after having used so much, if the provider said.
    pub fn broke_off(mut self, error: &CallError, usage: Option<Usage>) {
        let Some(mut held) = self.held.take() else { return };
        held.told(usage);
        held.note(error);
        let fate = held.settled(held.measured());
        let outcome = held.outcome(error);
        held.end(fate, outcome);
    }

    /// There is no answer, for this reason. What comes back may say more about it: a call that is
    /// larger than the limit that refused it is too big, however long anybody waits.
    pub fn failed(mut self, mut error: CallError) -> CallError {
        let Some(mut held) = self.held.take() else { return error };
        held.note(&error);
        if let CallError::Provider(failure) = &mut error {
            let is_limited = matches!(failure.class, Class::RateLimited { .. });
            if is_limited && held.never_fits(failure) {
                failure.class = Class::TooLarge;
            }
            if let Class::RateLimited { after: after @ None, .. } = &mut failure.class {
                *after = held.refill_time(Some(&failure.reported_limits));
            }
        }
        let fate = match error.class() {
            _ if !error.was_sent() => Fate::Nothing,
            // Where charges are never settled, failed calls keep theirs too.
            Class::Transient | Class::Overloaded if held.keeps_charges() => Fate::Unknown,
            Class::CredentialRejected => Fate::Rejected,
            _ => Fate::CallOnly,
        };
        let outcome = held.outcome(&error);
        held.end(fate, outcome);
        error
    }
}

impl Held {
    /// What was charged to the limit of this name.
    fn line_of(&self, limit: &str) -> Option<&Line> {
        self.leave.lines.iter().find(|line| line.meter.name() == limit)
    }

    fn name_of(&self, limit: &str) -> &'static str {
        let line = self.line_of(limit);
        line.map_or(WaitPart::CONCURRENCY, |line| line.meter.counts().blamed())
    }

    fn keeps_charges(&self) -> bool {
        self.quota.rule() == OutputCharge::Kept
    }

    /// What the provider said at last, unless it was said before the last piece came.
    fn told(&mut self, usage: Option<Usage>) {
        if let Some(usage) = usage {
            self.used.get_or_insert_default().tell_last(usage);
        }
    }

    fn measured(&self) -> MeasuredUsage {
        let input = self.estimate.expected.input.saturating_add(self.extra_input());
        self.used.as_ref().map_or(MeasuredUsage::of_input(input), |used| used.measured(input))
    }

    fn extra_input(&self) -> u64 {
        self.extra_input.as_ref().map_or(0, |count| count())
    }

    fn settled(&self, measured: MeasuredUsage) -> Fate {
        Fate::Settle(self.lane.settings().charging.used(&measured.usage))
    }

    /// Settles, and gives the place back.
    fn end(self, fate: Fate, outcome: CallOutcome) {
        let charging = self.lane.settings().charging;
        let store = self.lane.settings().quota.engine.store().clone();
        let (rules, now) = (self.end_departure(fate), self.lane.now());
        self.lane.call_ended(self.leave.left);
        let extra_input = self.extra_input();
        let Leave { mut permit, lines, days, .. } = self.leave;
        let is_given_back = |day: &&Arc<Meter>| match fate {
            Fate::Nothing => true,
            Fate::Rejected => day.is_of_all_keys(),
            _ => false,
        };
        days.iter().filter(is_given_back).for_each(|day| day.give_back());
        let actual: SmallVec<[u64; INLINE]> =
            lines.iter().map(|line| line.in_the_end(fate, charging, rules, extra_input)).collect();
        for (line, actual) in lines.iter().zip(&actual) {
            line.meter.corrected(line.cost, *actual, now);
        }
        if lines.iter().zip(&actual).all(|(line, actual)| line.cost == *actual) {
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
    fn end_departure(&self, fate: Fate) -> (OutputCharge, OutputCharge) {
        let Leave { departure, followed, .. } = &self.leave;
        let now = self.lane.now();
        let charging = self.lane.settings().charging;
        let used = match (fate, followed) {
            // Without output nobody knows what it used.
            (Fate::Settle(amounts), _) if amounts.output == 0 => None,
            (Fate::Settle(amounts), Some(Followed(dimension))) => {
                Some(charging.cost(*dimension, amounts))
            }
            (Fate::Settle(amounts), None) => Some(amounts.output),
            (Fate::CallOnly | Fate::Rejected | Fate::Nothing, _) => Some(0),
            _ => None,
        };
        self.quota.infer(|inference| {
            if !self.refused_by.is_some_and(Dimension::is_of_tokens) {
                inference.ended(departure, used, now);
            }
            (departure.rule, inference.rule())
        })
    }
}

impl Drop for Reservation {
    /// The caller has gone: what has come is charged, or what was expected if nothing has, but
    /// never more than the provider admits. Nobody locks others out by leaving.
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        let fate = match &held.used {
            Some(_) => held.settled(held.measured()),
            None => Fate::Unknown,
        };
        held.end(fate, CallOutcome::Ignored);
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("scope", &self.held.as_ref().map(|held| held.lane.scope()))
            .field("tokens", &self.tokens())
            .finish_non_exhaustive()
    }
}
