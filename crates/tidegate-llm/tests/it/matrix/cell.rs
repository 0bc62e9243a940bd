//! One cell: behaviour of the provider and of the calls.

use std::fmt;
use std::time::Duration;

use tidegate_llm::Call;
use tidegate_llm::plan::{Constraint, ConstraintSource, RawConstraint};
use tidegate_llm::rate_limit::AccountBuilder;
use tidegate_providers::{Chat, Dialect};
use tidegate_sim::{self as sim, Charging, Delay, Limits, Output, Reporting, Simulator};

use super::{AGENTS, SECOND};
use crate::traffic::{Dice, KEY, LABEL, MODEL};

/// Tokens of a response, and approximately those of a request.
const OUTPUT: u64 = 100;
const INPUT: u64 = 50;
/// Minimum duration where nothing binds.
const UNBOUND: Duration = Duration::from_secs(12);

/// How output is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(super) enum OutputRule {
    MaxTokens,
    MaxTokensRefunded,
    ActualUsage,
}

/// How the provider reports limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitReports {
    Exact,
    Rounded,
    Never,
}

/// The binding limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binds {
    Requests,
    Tokens,
    OutputTokens,
    Concurrency,
    Nothing,
}

/// `max_tokens` of the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MaxTokens {
    Absent,
    Real,
    Hundredfold,
}

/// How the client knows the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    Configured,
    Learned,
}

/// Refused calls and all calls the provider received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    refused: usize,
    seen: usize,
}

impl Refused {
    pub(super) fn per_mille(self) -> f64 {
        self.refused as f64 * 1_000.0 / self.seen.max(1) as f64
    }

    /// Up to three refusals are allowed for inferring how a provider charges.
    pub(super) fn is_at_most(self, per_mille: f64) -> bool {
        self.refused <= 3 || self.per_mille() <= per_mille
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub(super) dialect: Dialect,
    pub(super) output_rule: OutputRule,
    pub(super) reports: LimitReports,
    pub(super) binds: Binds,
    pub(super) length: Duration,
    pub(super) max_tokens: MaxTokens,
    pub(super) known: Known,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dialect, output_rule, reports, binds, length, max_tokens, known } = self;
        write!(
            f,
            "{dialect:?} {output_rule:?} reports {reports:?}, binds {binds:?}, {length:?}, \
             max_tokens {max_tokens:?}, {known:?}"
        )
    }
}

impl Cell {
    /// Returns all possible cells.
    pub(super) fn all() -> Vec<Self> {
        let mut cells = Vec::new();
        for dialect in [Dialect::OpenAi, Dialect::Anthropic, Dialect::Mistral, Dialect::Gemini] {
            for output_rule in
                [OutputRule::MaxTokens, OutputRule::MaxTokensRefunded, OutputRule::ActualUsage]
            {
                for reports in [LimitReports::Exact, LimitReports::Rounded, LimitReports::Never] {
                    for binds in [
                        Binds::Requests,
                        Binds::Tokens,
                        Binds::OutputTokens,
                        Binds::Concurrency,
                        Binds::Nothing,
                    ] {
                        for millis in [300, 3_000, 30_000] {
                            let length = Duration::from_millis(millis);
                            for max_tokens in
                                [MaxTokens::Absent, MaxTokens::Real, MaxTokens::Hundredfold]
                            {
                                for known in [Known::Configured, Known::Learned] {
                                    cells.push(Self {
                                        dialect,
                                        output_rule,
                                        reports,
                                        binds,
                                        length,
                                        max_tokens,
                                        known,
                                    });
                                }
                            }
                        }
                    }
                }
            }
        }
        cells.retain(Self::is_possible);
        cells
    }

    /// Returns whether such a provider exists and its limits can be learned.
    fn is_possible(&self) -> bool {
        let limits_tokens = matches!(self.binds, Binds::Tokens | Binds::OutputTokens);
        let has_limit = match (self.dialect, self.binds) {
            // Anthropic limits input and output separately, Gemini only input.
            (Dialect::Anthropic | Dialect::Gemini, Binds::Tokens) => false,
            (dialect, Binds::OutputTokens) => dialect == Dialect::Anthropic,
            _ => true,
        };
        // Anthropic requires `max_tokens`; Gemini reports no limits in headers.
        let can_ask = self.dialect != Dialect::Anthropic || self.max_tokens != MaxTokens::Absent;
        let can_tell = self.dialect != Dialect::Gemini || self.reports != LimitReports::Rounded;
        // The charging rule matters only where output is counted.
        let is_different = limits_tokens || self.output_rule == OutputRule::ActualUsage;
        // Without reports, rates can be learned only from refusals, and so can charges of calls
        // without `max_tokens`.
        let limits_rate = limits_tokens || self.binds == Binds::Requests;
        let is_guess = limits_tokens
            && self.max_tokens == MaxTokens::Absent
            && self.output_rule != OutputRule::ActualUsage;
        let can_learn = self.reports != LimitReports::Never
            || !(limits_rate && self.known == Known::Learned || is_guess);
        // A provider stricter than its dialect is detected only by refusals: no bound is promised.
        let is_stricter =
            self.output_rule < self.documented() && self.max_tokens != MaxTokens::Real;
        has_limit && can_ask && can_tell && is_different && can_learn && !is_stricter
    }

    /// Documented rule of the dialect.
    fn documented(&self) -> OutputRule {
        match self.dialect {
            Dialect::OpenAi => OutputRule::MaxTokens,
            Dialect::Anthropic => OutputRule::MaxTokensRefunded,
            _ => OutputRule::ActualUsage,
        }
    }

    /// `max_tokens` of a call.
    fn max_output(&self) -> Option<u64> {
        match self.max_tokens {
            MaxTokens::Absent => None,
            MaxTokens::Real => Some(OUTPUT),
            MaxTokens::Hundredfold => Some(100 * OUTPUT),
        }
    }

    /// Maximum charge of a call.
    fn reserve(&self) -> u64 {
        INPUT + self.max_output().unwrap_or(OUTPUT)
    }

    /// Half of the calls per minute that would be made without a limit.
    fn half_of_calls(&self) -> u64 {
        let per_agent = 30_000 / u64::try_from(self.length.as_millis()).unwrap();
        u64::from(AGENTS) * per_agent
    }

    /// Calls per agent where nothing binds.
    fn rounds(&self) -> u64 {
        u64::try_from(UNBOUND.as_millis() / self.length.as_millis()).unwrap().max(5)
    }

    /// Returns whether output is charged as documented, or with the same effect.
    pub(super) fn is_as_documented(&self) -> bool {
        self.output_rule == self.documented()
            || self.max_tokens == MaxTokens::Real
            || !matches!(self.binds, Binds::Tokens | Binds::OutputTokens)
    }

    /// Maximum failed calls per mille: none, or a few while an undocumented rule is inferred.
    pub(super) fn max_failed_per_mille(&self) -> f64 {
        if self.is_as_documented() { 0.0 } else { 20.0 }
    }

    /// Minimum fraction of the possible calls that must be admitted.
    pub(super) fn min_used_ratio(&self) -> f64 {
        if self.is_as_documented() { 0.95 } else { 0.85 }
    }

    /// Maximum refused calls per mille: higher where the provider reports limits only by refusing.
    pub(super) fn max_refused_per_mille(&self) -> f64 {
        if !self.is_as_documented() {
            return 50.0;
        }
        let is_reported = match self.binds {
            Binds::Concurrency => false,
            _ => self.reports != LimitReports::Never && self.dialect != Dialect::Gemini,
        };
        if self.known == Known::Learned && !is_reported { 30.0 } else { 5.0 }
    }

    /// Counts refused calls. Concurrency is learned before the measured time.
    pub(super) fn refused(&self, simulator: &Simulator) -> Refused {
        let (entries, measured) = (simulator.ledger().entries(), self.measured());
        let counts = |at| self.binds != Binds::Concurrency || measured.contains(&at);
        let seen = entries.iter().filter(|entry| counts(entry.at));
        let refused = seen.clone().filter(|entry| entry.status == Some(429)).count();
        Refused { refused, seen: seen.count() }
    }

    /// A limit of half of what the agents would use, and at least five calls.
    fn half_of(&self, tokens: u64) -> u64 {
        (self.half_of_calls() * tokens).max(5 * self.reserve())
    }

    /// Reports are rounded to a twentieth of the limit.
    fn step(&self) -> u64 {
        let limit = match self.binds {
            Binds::Tokens => self.half_of(self.charge()),
            Binds::OutputTokens => self.half_of(self.charge() - INPUT),
            _ => self.half_of_calls(),
        };
        (limit / 20).max(1)
    }

    /// Final charge of a call in tokens.
    fn charge(&self) -> u64 {
        match self.output_rule {
            OutputRule::MaxTokens => self.reserve(),
            OutputRule::MaxTokensRefunded | OutputRule::ActualUsage => INPUT + OUTPUT,
        }
    }

    /// Concurrency limit: half of the agents.
    const fn concurrency_limit() -> u64 {
        AGENTS as u64 / 2
    }

    fn limits(&self) -> Limits {
        let limits = Limits::new();
        match self.binds {
            Binds::Requests => limits.requests_per_minute(self.half_of_calls()),
            Binds::Tokens => limits.tokens_per_minute(self.half_of(self.charge())),
            Binds::OutputTokens => {
                let tokens = self.half_of(self.charge() - INPUT);
                limits.output_tokens_per_minute(tokens).input_tokens_per_minute(100_000_000)
            }
            Binds::Concurrency => limits.concurrency(Self::concurrency_limit()).queue(0),
            Binds::Nothing => limits,
        }
    }

    fn sim_dialect(&self) -> sim::Dialect {
        match self.dialect {
            Dialect::OpenAi => sim::Dialect::OpenAi,
            Dialect::Anthropic => sim::Dialect::Anthropic,
            Dialect::Gemini => sim::Dialect::Gemini,
            _ => sim::Dialect::Mistral,
        }
    }

    fn charging(&self) -> Charging {
        let charging = Charging::of(self.sim_dialect());
        match self.output_rule {
            OutputRule::MaxTokens => charging.keep_reserved(),
            OutputRule::MaxTokensRefunded => charging.refund_unused(),
            OutputRule::ActualUsage => charging.charge_at_end(),
        }
    }

    pub(super) fn simulator(&self) -> Simulator {
        self.build_simulator(self.charging())
    }

    /// Simulator of this cell in which refusals are free.
    pub(super) fn free_refusal_simulator(&self) -> Simulator {
        self.build_simulator(self.charging().failed_calls(sim::FailedCalls::Free))
    }

    fn build_simulator(&self, charging: Charging) -> Simulator {
        let reporting = match self.reports {
            LimitReports::Exact => Reporting::Accurate,
            LimitReports::Rounded => Reporting::Rounded { step: self.step() },
            LimitReports::Never => Reporting::Never,
        };
        let account = sim::Account::new(self.sim_dialect(), LABEL, KEY)
            .model(MODEL, self.limits())
            .charging(charging)
            .reporting(reporting)
            .output(Output::fixed(OUTPUT))
            .first_token(Delay::fixed(self.length));
        Simulator::builder().account(account).ledger_capacity(1 << 20).build().unwrap()
    }

    pub(super) fn configure(&self, builder: AccountBuilder) -> AccountBuilder {
        if self.known == Known::Learned {
            return builder;
        }
        let number = |number: u64| Some(i64::try_from(number).unwrap());
        let mut raw = RawConstraint::default();
        match self.binds {
            Binds::Requests => raw.requests_per_minute = number(self.half_of_calls()),
            Binds::Tokens => raw.tokens_per_minute = number(self.half_of(self.charge())),
            Binds::OutputTokens => {
                raw.output_tokens_per_minute = number(self.half_of(self.charge() - INPUT));
            }
            Binds::Concurrency => raw.max_concurrent_requests = number(Self::concurrency_limit()),
            Binds::Nothing => return builder,
        }
        builder.limits(Constraint::try_new(&raw).unwrap(), ConstraintSource::Override)
    }

    /// Creates a call.
    pub(super) fn call(&self, dice: &Dice) -> Call {
        let text = "the tide comes in and the tide goes out and ".repeat(4);
        let chat = Chat::user(text);
        let chat = match self.max_output() {
            Some(most) => chat.max_tokens(most),
            None => chat,
        };
        let call = Call::new(chat);
        if dice.below(2) == 0 { call.streamed() } else { call }
    }

    /// The measured time: after the first minutes, or several calls.
    fn measured(&self) -> std::ops::Range<Duration> {
        let start = (SECOND * 100).max(self.length * 5);
        start..start + (SECOND * 40).max(self.length * 20)
    }

    /// Returns whether an agent makes another call.
    pub(super) fn should_continue(&self, calls: u64, elapsed: Duration) -> bool {
        match self.binds {
            Binds::Nothing => calls < self.rounds(),
            _ => elapsed < self.measured().end,
        }
    }

    /// Counts calls admitted in the measured time.
    pub(super) fn admitted(&self, simulator: &Simulator) -> u64 {
        let (entries, measured) = (simulator.ledger().entries(), self.measured());
        let admitted = entries.iter().filter(|entry| entry.refusal.is_none());
        admitted.filter(|entry| measured.contains(&entry.at)).count() as u64
    }
}
