//! Retrying anything that is async and can fail.

use std::fmt;
use std::time::Duration;

use tidegate_providers::Class;
use tokio::time::sleep;

use super::policy::Policy;
use super::retry_state::RetryState;
use crate::call::CallError;

/// An error that says whether trying again may help.
pub(crate) trait Retryable: fmt::Display {
    /// What helps.
    fn class(&self) -> Class;

    /// Whether trying again may help. Default: as the class says.
    fn is_retryable(&self) -> bool {
        self.class().is_retryable()
    }

    /// When to come back, if that was told. Default: as the class says.
    fn retry_after(&self) -> Option<Duration> {
        self.class().after()
    }

    /// Whether nothing was tried, and somebody of ours only asks for a wait. Such a wait takes
    /// nothing from the budget, and for as long as the delays of the schedule take together it is
    /// no attempt either. Default: no.
    fn is_wait(&self) -> bool {
        false
    }

    /// Whether nothing was tried, since there was no permit for it. It is final. An error of an
    /// attempt before it, other than a rate limit, says more and is the one that is told. Default:
    /// no.
    fn is_denial(&self) -> bool {
        false
    }

    /// Whether there was no connection to the provider. That is tried again a few times and quickly.
    /// Default: no.
    fn is_unreachable(&self) -> bool {
        false
    }

    /// Whether it is a rate limit of the provider, and called so in the log. Default: as the class
    /// says.
    fn is_rate_limit(&self) -> bool {
        matches!(self.class(), Class::RateLimited { .. })
    }
}

impl Retryable for CallError {
    fn class(&self) -> Class {
        self.class()
    }

    fn is_retryable(&self) -> bool {
        self.is_worth_a_retry()
    }

    fn retry_after(&self) -> Option<Duration> {
        self.retry_after()
    }

    /// Nothing is sent to a provider that is left alone.
    fn is_wait(&self) -> bool {
        matches!(self, Self::Open { .. })
    }

    fn is_denial(&self) -> bool {
        matches!(self, Self::NoPermit { .. } | Self::Closed(_))
    }

    fn is_unreachable(&self) -> bool {
        matches!(self.decisive(), Self::Connection { broken, .. } if !broken.was_connected())
    }

    fn is_rate_limit(&self) -> bool {
        let failure = self.decisive().failure();
        failure.is_some_and(|failure| matches!(failure.class, Class::RateLimited { .. }))
    }
}

/// Which attempt it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// Its number; the first one is 1.
    pub number: u32,
    /// What is left of the deadline, if there is one.
    pub left: Option<Duration>,
    /// How long it may wait for a permit, if that is limited.
    pub max_wait: Option<Duration>,
}

/// How much time a call has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimeBudget {
    /// For all of it: attempts, waits, and what is between them.
    pub deadline: Option<Duration>,
    /// Until its last attempt begins: waits for permits and delays between attempts share it.
    pub max_wait: Option<Duration>,
}

/// Why nothing more was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Trying again does not help.
    NotRetryable,
    /// All attempts were made.
    NoAttemptsLeft,
    /// The next attempt would be too late.
    Deadline,
    /// There was no permit for the next attempt: the wait would be too long, or a quota is used up.
    NotAdmitted,
    /// The provider cannot be reached.
    Unreachable,
    /// The provider asks for a longer wait than is accepted.
    ServerDelayTooLong,
    /// All callers of the provider together have retried too much.
    Budget,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotRetryable => "trying again does not help",
            Self::NoAttemptsLeft => "no attempts are left",
            Self::Deadline => "the next attempt would be too late",
            Self::NotAdmitted => "the next one was not admitted",
            Self::Unreachable => "the provider cannot be reached",
            Self::ServerDelayTooLong => "the provider asks for too long a wait",
            Self::Budget => "the budget of retries is spent",
        })
    }
}

/// The last error, and why it was the last.
#[derive(Debug, thiserror::Error)]
#[error("gave up after {attempts} attempts: {reason}")]
pub(crate) struct GaveUp<E> {
    /// How many attempts there were.
    pub attempts: u32,
    /// Why there were no more.
    pub reason: Reason,
    /// Why the last one failed.
    #[source]
    pub error: E,
}

impl From<GaveUp<Self>> for CallError {
    /// After one attempt the error as it is, after several [`CallError::Exhausted`].
    fn from(gave_up: GaveUp<Self>) -> Self {
        match gave_up.attempts {
            0 | 1 => gave_up.error,
            attempts => Self::Exhausted { attempts, last: Box::new(gave_up.error) },
        }
    }
}

/// Calls until there is a value, within the time of this call in place of the policy's deadline. An
/// attempt under way is not broken off at its end, but was told what is left.
///
/// # Errors
/// The last error, with the number of attempts and why there were no more.
pub(crate) async fn run_within<T, E, F, A>(
    policy: &Policy,
    time: TimeBudget,
    mut call: F,
) -> Result<T, GaveUp<E>>
where
    E: Retryable,
    F: FnMut(Attempt) -> A,
    A: Future<Output = Result<T, E>>,
{
    let mut state = RetryState::start(policy, time);
    let mut before = None;
    loop {
        let error = match call(state.attempt()).await {
            Ok(value) => {
                state.succeeded();
                return Ok(value);
            }
            Err(error) => error,
        };
        match state.failed(&error) {
            Ok(delay) => {
                sleep(delay).await;
                policy.counters.slept(delay);
                before = (!error.is_wait()).then_some(error).or(before);
            }
            Err(reason) => {
                let attempts = state.made();
                return Err(match before {
                    // A rate limit is over when it is told of; the denial knows what is waited for.
                    // What a provider said before it was left alone says more than that it is.
                    Some(before)
                        if (error.is_denial() || error.is_wait())
                            && error.class().is_retryable()
                            && !before.is_rate_limit() =>
                    {
                        GaveUp { attempts: attempts.saturating_sub(1), reason, error: before }
                    }
                    _ => GaveUp { attempts, reason, error },
                });
            }
        }
    }
}
