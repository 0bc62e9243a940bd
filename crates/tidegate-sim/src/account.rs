//! An account at a provider: whose keys, which models, what limits, how it answers and fails.
//!
//! An account is what a provider bills and limits: an organization, a project, a deployment's
//! resource. It may have several keys, and they share everything.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::calendar::nanos;
use crate::dialect::Dialect;
use crate::fault::Faults;
use crate::limits::Limits;
use crate::limits::charging::Charging;
use crate::random::Random;
use crate::reporting::{ReportTime, Reporting};

/// How many tokens an answer has, unless its request says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    low: u64,
    high: u64,
}

impl Output {
    /// Always the same number.
    #[must_use]
    pub const fn fixed(tokens: u64) -> Self {
        Self { low: tokens, high: tokens }
    }

    /// Any number of the range, as the seed has it.
    #[must_use]
    pub const fn between(tokens: RangeInclusive<u64>) -> Self {
        Self { low: *tokens.start(), high: *tokens.end() }
    }

    pub(crate) fn draw(self, random: &mut Random) -> u64 {
        random.between(self.low, self.high)
    }
}

/// How long something takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    low: u64,
    high: u64,
}

impl Delay {
    /// No time at all.
    pub const NONE: Self = Self { low: 0, high: 0 };

    /// Always the same time.
    #[must_use]
    pub fn fixed(time: Duration) -> Self {
        Self { low: nanos(time), high: nanos(time) }
    }

    /// Any time of the range, as the seed has it.
    #[must_use]
    pub fn between(times: RangeInclusive<Duration>) -> Self {
        Self { low: nanos(*times.start()), high: nanos(*times.end()) }
    }

    pub(crate) fn draw(self, random: &mut Random) -> Duration {
        Duration::from_nanos(random.between(self.low, self.high))
    }
}

/// An account at a provider.
///
/// ```
/// use std::time::Duration;
/// use tidegate_sim::{Account, Delay, Dialect, Limits, Output};
///
/// let account = Account::new(Dialect::Anthropic, "main", "sk-ant-1")
///     .model("claude-haiku", Limits::new().requests_per_minute(50))
///     .models(
///         ["claude-sonnet-4", "claude-sonnet-4-5"], // one class, one pool
///         Limits::new().input_tokens_per_minute(30_000).output_tokens_per_minute(8_000),
///     )
///     .output(Output::between(50..=400))
///     .first_token(Delay::fixed(Duration::from_millis(300)))
///     .per_token(Delay::fixed(Duration::from_millis(20)));
/// assert!(!format!("{account:?}").contains("sk-ant-1"));
/// ```
///
/// Without more it answers 100 tokens at once, charges as its dialect does, reports its limits truly
/// and has no faults.
#[derive(Clone)]
#[must_use = "an account does nothing until a simulator has it"]
pub struct Account {
    pub(crate) dialect: Dialect,
    pub(crate) label: String,
    pub(crate) keys: Vec<String>,
    pub(crate) pools: Vec<(Vec<String>, Limits)>,
    pub(crate) any_model: Option<Limits>,
    pub(crate) charging: Charging,
    pub(crate) output: Output,
    pub(crate) first_token: Delay,
    pub(crate) per_token: Delay,
    pub(crate) faults: Faults,
    pub(crate) reporting: Reporting,
    pub(crate) report_time: ReportTime,
}

impl Account {
    /// An account with a label, which the ledger shows, and a key, which nothing shows. Ollama asks
    /// for no key: a simulator has at most one account of it, and its key is not looked at.
    pub fn new(dialect: Dialect, label: impl Into<String>, key: impl Into<String>) -> Self {
        Self {
            dialect,
            label: label.into(),
            keys: vec![key.into()],
            pools: Vec::new(),
            any_model: None,
            charging: Charging::of(dialect),
            output: Output::fixed(100),
            first_token: Delay::NONE,
            per_token: Delay::NONE,
            faults: Faults::new(),
            reporting: Reporting::default(),
            report_time: ReportTime::default(),
        }
    }

    /// One more key of the same account, as a project or an organization has several.
    pub fn another_key(mut self, key: impl Into<String>) -> Self {
        self.keys.push(key.into());
        self
    }

    /// A model and its limits. Of Azure it is the name of the deployment.
    pub fn model(self, name: impl Into<String>, limits: Limits) -> Self {
        self.models([name], limits)
    }

    /// Models that share their limits.
    pub fn models(
        mut self,
        names: impl IntoIterator<Item = impl Into<String>>,
        limits: Limits,
    ) -> Self {
        self.pools.push((names.into_iter().map(Into::into).collect(), limits));
        self
    }

    /// The limits of each model that is not named, to itself. Without it such a model does not
    /// exist. At most 1,024 of them are known at a time.
    pub fn any_model(mut self, limits: Limits) -> Self {
        self.any_model = Some(limits);
        self
    }

    /// Charges differently from how the dialect does it.
    pub fn charging(mut self, charging: Charging) -> Self {
        self.charging = charging;
        self
    }

    /// How long answers are, unless a request says it.
    pub fn output(mut self, output: Output) -> Self {
        self.output = output;
        self
    }

    /// How long the first token takes.
    pub fn first_token(mut self, delay: Delay) -> Self {
        self.first_token = delay;
        self
    }

    /// How long each further token takes.
    pub fn per_token(mut self, delay: Delay) -> Self {
        self.per_token = delay;
        self
    }

    /// When the account fails.
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// What the account reports of its limits; the truth by default.
    pub fn reporting(mut self, reporting: Reporting) -> Self {
        self.reporting = reporting;
        self
    }

    /// As of when successful answers report limits; as of when they are sent, by default.
    pub fn reports_at(mut self, time: ReportTime) -> Self {
        self.report_time = time;
        self
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account")
            .field("dialect", &self.dialect)
            .field("label", &self.label)
            .field("keys", &self.keys.len())
            .field("pools", &self.pools)
            .finish_non_exhaustive()
    }
}
