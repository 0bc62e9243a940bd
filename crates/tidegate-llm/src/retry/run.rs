//! The retry loop.

use std::fmt;
use std::time::Duration;

use tidegate_providers::Class;
use tokio::time::sleep;

use super::policy::Policy;
use super::retry_state::RetryState;
use crate::call::CallError;

/// An error that says whether a retry may help.
pub(crate) trait Retryable: fmt::Display {
    /// Class of the failure.
    fn class(&self) -> Class;

    /// Returns whether a retry may help. Default: by class.
    fn is_retryable(&self) -> bool {
        self.class().is_retryable()
    }

    /// Returns the delay that was asked for, if any. Default: by class.
    fn retry_after(&self) -> Option<Duration> {
        self.class().after()
    }

    /// Returns whether nothing was sent because an inner layer, such as an open circuit breaker,
    /// asks to wait. Such a wait takes nothing from the budget. It does not count as an attempt for
    /// as long as the delays of the schedule last together. Default: `false`.
    fn is_wait(&self) -> bool {
        false
    }

    /// Returns whether nothing was sent because our own limits refused the attempt. This is final,
    /// and not an attempt. If an earlier attempt failed with anything but a rate limit, that error is
    /// returned instead, since it is more informative. Default: `false`.
    fn is_refusal(&self) -> bool {
        false
    }

    /// Returns whether no connection to the provider could be made. This is retried only a few
    /// times, with shorter delays. Default: `false`.
    fn is_unreachable(&self) -> bool {
        false
    }

    /// Returns whether a request may have been sent. Default: `true`.
    fn was_sent(&self) -> bool {
        true
    }

    /// Returns whether it is a rate limit of the provider. Default: by class.
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

    fn is_wait(&self) -> bool {
        matches!(self, Self::CircuitOpen { .. })
    }

    fn is_refusal(&self) -> bool {
        self.is_refusal()
    }

    fn is_unreachable(&self) -> bool {
        matches!(self.decisive(), Self::Connection { kind, .. } if !kind.was_connected())
    }

    fn was_sent(&self) -> bool {
        self.was_sent()
    }

    fn is_rate_limit(&self) -> bool {
        let failure = self.decisive().failure();
        failure.is_some_and(|failure| matches!(failure.class, Class::RateLimited { .. }))
    }
}

/// Parameters of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// Number of the attempt, from 1.
    pub number: u32,
    /// Time left until the deadline, if there is one.
    pub left: Option<Duration>,
    /// Maximum wait for a permit, if limited.
    pub max_wait: Option<Duration>,
}

/// Time limits of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimeBudget {
    /// For the whole call, including attempts, waits and delays.
    pub deadline: Option<Duration>,
    /// For the time until its last attempt starts: waits for permits and delays between attempts.
    pub max_wait: Option<Duration>,
}

/// Why a call was not retried any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// A retry cannot help.
    NotRetryable,
    /// All attempts were made.
    NoAttemptsLeft,
    /// No time is left for another attempt.
    Deadline,
    /// Our own limits refused the next attempt: no permit in time, or an exhausted quota.
    Refused,
    /// The provider cannot be reached.
    Unreachable,
    /// The provider asks for a longer delay than is accepted.
    ServerDelayTooLong,
    /// The retry budget that all callers of the provider share is spent.
    Budget,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotRetryable => "a retry cannot help",
            Self::NoAttemptsLeft => "no attempts left",
            Self::Deadline => "no time left for another attempt",
            Self::Refused => "the next attempt was not sent",
            Self::Unreachable => "the provider cannot be reached",
            Self::ServerDelayTooLong => "the provider asks for too long a delay",
            Self::Budget => "the retry budget is spent",
        })
    }
}

/// The last error and why there were no more attempts.
#[derive(Debug, thiserror::Error)]
#[error("gave up after {attempts} attempts: {reason}")]
pub(crate) struct GaveUp<E> {
    /// Attempts made; one that our own limits refused is none.
    pub attempts: u32,
    /// Whether a request may have been sent in any of them.
    pub was_sent: bool,
    /// Why no more were made.
    pub reason: Reason,
    /// Error of the last one.
    #[source]
    pub error: E,
}

impl From<GaveUp<Self>> for CallError {
    /// Returns the error itself if it is that of the only attempt, or if there was none;
    /// [`CallError::Exhausted`] otherwise.
    fn from(GaveUp { attempts, was_sent, error, .. }: GaveUp<Self>) -> Self {
        let own = u32::from(!error.is_refusal());
        if attempts <= own {
            return error;
        }
        Self::Exhausted { attempts, was_sent, last: Box::new(error) }
    }
}

/// Makes attempts until one succeeds, within `time` instead of the policy's deadline. It does not
/// cancel an attempt at the deadline; each attempt is given the time left.
///
/// # Errors
/// The last error, with the number of attempts and why there were no more.
pub(crate) async fn run_within<T, E, F, A>(
    policy: &Policy,
    time: TimeBudget,
    call: F,
) -> Result<T, GaveUp<E>>
where
    E: Retryable,
    F: FnMut(Attempt) -> A,
    A: Future<Output = Result<T, E>>,
{
    run_within_pausing(policy, time, call, sleep).await
}

/// Does the same as [`run_within`], with delays made by `pause`.
pub(super) async fn run_within_pausing<T, E, F, A, P>(
    policy: &Policy,
    time: TimeBudget,
    mut call: F,
    pause: impl Fn(Duration) -> P,
) -> Result<T, GaveUp<E>>
where
    E: Retryable,
    F: FnMut(Attempt) -> A,
    A: Future<Output = Result<T, E>>,
    P: Future<Output = ()>,
{
    let mut state = RetryState::start(policy, time);
    let (mut before, mut was_sent) = (None, false);
    loop {
        let error = match call(state.attempt()).await {
            Ok(value) => {
                state.succeeded();
                return Ok(value);
            }
            Err(error) => error,
        };
        was_sent |= error.was_sent();
        match state.failed(&error) {
            Ok(delay) => {
                pause(delay).await;
                policy.counters.slept(delay);
                before = (!error.is_wait()).then_some(error).or(before);
            }
            Err(reason) => {
                let attempts = state.made();
                return Err(match before {
                    // After a rate limit, the refusal says more: it knows which limit is waited for.
                    // Any other error of an earlier attempt says more than a refusal or an open
                    // circuit.
                    Some(before)
                        if (error.is_refusal() || error.is_wait())
                            && error.class().is_retryable()
                            && !before.is_rate_limit() =>
                    {
                        let attempts = attempts.saturating_sub(u32::from(error.is_wait()));
                        GaveUp { attempts, was_sent, reason, error: before }
                    }
                    _ => GaveUp { attempts, was_sent, reason, error },
                });
            }
        }
    }
}
