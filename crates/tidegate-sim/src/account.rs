//! An account at a provider: its keys, models, limits, response times and faults.
//!
//! An account is what a provider bills and limits: an organization, a project, or the resource of a
//! deployment. It may have several keys, which share all limits.

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

/// Number of tokens of a response, unless the request sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    low: u64,
    high: u64,
}

impl Output {
    /// Always returns the same number of tokens.
    #[must_use]
    pub const fn fixed(tokens: u64) -> Self {
        Self { low: tokens, high: tokens }
    }

    /// Returns a random number of tokens from a range, determined by the seed.
    #[must_use]
    pub const fn between(tokens: RangeInclusive<u64>) -> Self {
        Self { low: *tokens.start(), high: *tokens.end() }
    }

    pub(crate) fn draw(self, random: &mut Random) -> u64 {
        random.between(self.low, self.high)
    }
}

/// A fixed or random delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    low: u64,
    high: u64,
}

impl Delay {
    /// No delay.
    pub const NONE: Self = Self { low: 0, high: 0 };

    /// Creates a fixed delay.
    #[must_use]
    pub fn fixed(time: Duration) -> Self {
        Self { low: nanos(time), high: nanos(time) }
    }

    /// Creates a random delay from a range, determined by the seed.
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
/// By default it responds with 100 tokens without delay, charges like its dialect, reports its
/// limits accurately and has no faults.
#[derive(Clone)]
#[must_use = "an account does nothing until it is added to a simulator"]
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
    /// Creates an account with a label for the ledger and an API key, which is never shown. Ollama
    /// uses no key: a simulator can have only one Ollama account, and its key is ignored.
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

    /// Adds a key to the account.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.keys.push(key.into());
        self
    }

    /// Adds a model with its limits. For Azure, the name is that of the deployment.
    pub fn model(self, name: impl Into<String>, limits: Limits) -> Self {
        self.models([name], limits)
    }

    /// Adds models that share their limits.
    pub fn models(
        mut self,
        names: impl IntoIterator<Item = impl Into<String>>,
        limits: Limits,
    ) -> Self {
        self.pools.push((names.into_iter().map(Into::into).collect(), limits));
        self
    }

    /// Sets the limits of each model that is not named, separately per model. Without it, unnamed
    /// models do not exist. At most 1,024 unnamed models are accepted.
    pub fn any_model(mut self, limits: Limits) -> Self {
        self.any_model = Some(limits);
        self
    }

    /// Sets the charging rules. Default: those of the dialect.
    pub fn charging(mut self, charging: Charging) -> Self {
        self.charging = charging;
        self
    }

    /// Sets the length of responses, unless a request sets it.
    pub fn output(mut self, output: Output) -> Self {
        self.output = output;
        self
    }

    /// Sets the delay of the first token.
    pub fn first_token(mut self, delay: Delay) -> Self {
        self.first_token = delay;
        self
    }

    /// Sets the delay of each further token.
    pub fn per_token(mut self, delay: Delay) -> Self {
        self.per_token = delay;
        self
    }

    /// Sets the scheduled and random faults.
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// Sets what the account reports about its limits. Default: accurate values.
    pub fn reporting(mut self, reporting: Reporting) -> Self {
        self.reporting = reporting;
        self
    }

    /// Sets the time for which successful responses report limits. Default: when they are sent.
    pub fn report_time(mut self, time: ReportTime) -> Self {
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
