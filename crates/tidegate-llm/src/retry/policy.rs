//! What holds for all retries of one kind of call.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tidegate_providers::Provider;

use super::budget::Budget;
use super::random::Random;
use super::schedule::Schedule;
use super::stats::{Counters, Stats};
use crate::log_limit::LogLimit;
use crate::telemetry::{Observer, Traced};

/// The longest delay that is accepted from a provider.
const MAX_SERVER_DELAY: Duration = Duration::from_secs(600);

/// How calls to a provider are tried again. Clones share the counts and the budget.
///
/// ```
/// use std::time::Duration;
/// use tidegate_llm::retry::{Policy, Schedule};
/// let policy = Policy::new("openai")
///     .schedule(Schedule::default().max_retries(4))
///     .deadline(Duration::from_secs(90))
///     .function("summarise");
/// assert_eq!(*policy.window().end(), Duration::from_secs(15));
/// ```
#[derive(Clone, Debug)]
pub struct Policy {
    pub(super) provider: Provider,
    pub(super) function: Arc<str>,
    pub(super) schedule: Schedule,
    pub(super) max_server_delay: Duration,
    pub(super) deadline: Option<Duration>,
    pub(super) budget: Budget,
    pub(super) is_paced: bool,
    pub(super) random: Random,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) counters: Arc<Counters>,
    /// `None`: every attempt that fails is logged.
    log: Option<Arc<LogLimit>>,
}

impl Policy {
    /// The defaults, with a budget of its own, for calls to a provider.
    pub fn new(provider: impl Into<Provider>) -> Self {
        let provider = provider.into();
        Self {
            function: provider.as_str().into(),
            provider,
            schedule: Schedule::default(),
            max_server_delay: MAX_SERVER_DELAY,
            deadline: None,
            budget: Budget::default(),
            is_paced: false,
            random: Random::default(),
            observer: Arc::new(Traced),
            counters: Arc::default(),
            log: None,
        }
    }

    /// Logs at most 60 lines of attempts in 10 seconds, over all clones. For servers. Default: every
    /// attempt that fails.
    #[must_use]
    pub fn bounded_log(mut self) -> Self {
        self.log = Some(Arc::default());
        self
    }

    /// Whether a line is to be logged, and how many were suppressed before it, if there were any.
    pub(super) fn line(&self) -> Option<Option<u64>> {
        let suppressed = self.log.as_ref().map_or(Some(0), |log| log.due())?;
        Some(Some(suppressed).filter(|suppressed| *suppressed > 0))
    }

    /// How often, and after which delays. Default: [`Schedule::default`].
    #[must_use]
    pub const fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// What the call is named in the log. Default: the provider.
    #[must_use]
    pub fn function(mut self, name: &str) -> Self {
        self.function = name.into();
        self
    }

    /// The longest delay that is accepted from a provider: one that asks for more is given up at
    /// once. Default: ten minutes.
    #[must_use]
    pub const fn max_server_delay(mut self, span: Duration) -> Self {
        self.max_server_delay = span;
        self
    }

    /// Says that attempts wait for permits of an account, which keeps rate limits closed for all of
    /// its calls: retries of rate limits then take nothing from the budget. Default: they do.
    #[must_use]
    pub const fn paced(mut self) -> Self {
        self.is_paced = true;
        self
    }

    /// How long a call may take with all its attempts and waits, if it does not say so itself. What
    /// is under way then is broken off. Default: no limit, as the schedule bounds the waits.
    #[must_use]
    pub const fn deadline(mut self, span: Duration) -> Self {
        self.deadline = Some(span);
        self
    }

    /// Shares a budget with others. Default: one of its own.
    #[must_use]
    pub fn budget(mut self, budget: &Budget) -> Self {
        self.budget = budget.clone();
        self
    }

    /// Draws the random parts of delays from this seed, so that a test repeats them. Default: they
    /// differ from run to run.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        self.random(Random::seeded(seed))
    }

    pub(crate) fn random(mut self, random: Random) -> Self {
        self.random = random;
        self
    }

    /// Who is told what happens. Default: [`Traced`].
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// How long all delays of a call take together, if no provider asks for more.
    #[must_use]
    pub fn window(&self) -> RangeInclusive<Duration> {
        self.schedule.window()
    }

    /// How many retries the budget could pay for now.
    #[must_use]
    pub fn remaining_budget(&self) -> u64 {
        self.budget.remaining()
    }

    /// What came of the calls so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.counters.read()
    }
}
