//! Errors of calls.

mod unsent;

use std::error::Error;
use std::time::Duration;

use tidegate::pacer::AcquireError;
use tidegate_providers::{Class, Dimension, Failure, Provider};

use super::connection::{self, ConnectionFailure, Described};
use crate::plan::InvalidSettings;

/// Any underlying error.
pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// Why a call failed, before or during its response.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The provider returned an error.
    #[error("{0}")]
    Provider(#[from] Box<Failure>),
    /// The connection failed.
    #[error("{provider} {}", Described(*.kind, .source.as_ref()))]
    Connection {
        /// The provider.
        provider: Provider,
        /// Kind of the failure.
        kind: ConnectionFailure,
        /// Underlying error, if known.
        #[source]
        source: Option<BoxError>,
    },
    /// The response of the provider cannot be decoded.
    #[error("cannot decode the response of {provider}: {source}")]
    InvalidResponse {
        /// The provider.
        provider: Provider,
        /// Underlying error.
        #[source]
        source: BoxError,
    },
    /// No permit was granted: there was none in time, or the queue is full. Nothing was sent, so it
    /// says nothing about the provider.
    #[error("{}", unsent::NoPermitText { provider, source, limited_by: *limited_by, after: *after })]
    NoPermit {
        /// The provider.
        provider: Provider,
        /// Reason.
        #[source]
        source: AcquireError,
        /// The limit to wait for, if known: the name of a dimension, or `concurrency`.
        limited_by: Option<&'static str>,
        /// Time until a permit may be available, if known.
        after: Option<Duration>,
    },
    /// A quota is exhausted, as the provider reported to an earlier call, or a configured limit of
    /// requests per day is. Nothing was sent.
    #[error("{}", unsent::QuotaText(.0))]
    QuotaExhausted(Box<Failure>),
    /// The circuit breaker of the provider is open after repeated failures. Nothing was sent.
    #[error(
        "not sent to {provider} after repeated failures: the circuit breaker stays open for \
         another {}s; retry after that",
        after.as_secs_f64().ceil()
    )]
    CircuitOpen {
        /// The provider.
        provider: Provider,
        /// Time until the next trial.
        after: Duration,
    },
    /// The request cannot be encoded for the provider. Nothing was sent.
    #[error("cannot build the request to {provider}: {source}")]
    InvalidRequest {
        /// The provider.
        provider: Provider,
        /// Underlying error.
        #[source]
        source: BoxError,
    },
    /// The limits requested with the call are invalid. Nothing was sent.
    #[error(transparent)]
    Plan(#[from] InvalidSettings),
    /// Both the provider and a fallback failed, and the failure of the fallback matters for
    /// retries: it is retryable though the first is not, or it was sent though the first was not.
    /// Class and failure are those of the first; the delay until a retry is that of the retryable
    /// one.
    #[error("{first}; the fallback failed too: {other}")]
    FallbackFailed {
        /// Error of the provider that was called first.
        #[source]
        first: Box<CallError>,
        /// Error of the fallback.
        other: Box<CallError>,
    },
    /// All attempts failed.
    #[error("{}", unsent::AttemptsText(*attempts, last))]
    Exhausted {
        /// Number of attempts.
        attempts: u32,
        /// Whether a request may have been sent in any of them.
        was_sent: bool,
        /// Error of the last attempt, or the reason why there was no further one.
        #[source]
        last: Box<CallError>,
    },
}

impl CallError {
    /// Returns the class of the failure. Local errors have the class of an equivalent provider
    /// error.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Provider(failure) | Self::QuotaExhausted(failure) => failure.class,
            Self::Connection { .. }
            | Self::InvalidResponse { .. }
            | Self::NoPermit { source: AcquireError::Store(_), .. } => Class::Transient,
            Self::NoPermit { source: AcquireError::NeverFits(_), .. } => Class::TooLarge,
            Self::NoPermit { after, .. } => Class::RateLimited { after: *after, dimension: None },
            Self::CircuitOpen { after, .. } => {
                Class::RateLimited { after: Some(*after), dimension: None }
            }
            Self::InvalidRequest { .. } | Self::Plan(_) => Class::BadRequest,
            Self::FallbackFailed { first, .. } => first.class(),
            Self::Exhausted { last, .. } => last.class(),
        }
    }

    /// Returns the delay until a retry, if known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::FallbackFailed { .. } | Self::Exhausted { .. } => self.decisive().retry_after(),
            _ => self.class().after().or_else(|| self.failure()?.after),
        }
    }

    /// Returns the failure reported by the provider, if any. With fallbacks it is that of the first
    /// provider.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Provider(failure) | Self::QuotaExhausted(failure) => Some(failure),
            Self::FallbackFailed { first, .. } => first.failure(),
            Self::Exhausted { last, .. } => last.failure(),
            _ => None,
        }
    }

    /// Returns why the connection failed, as far as typed errors and kinds of I/O errors tell. With
    /// fallbacks it is the reason of the first provider. It contains neither paths nor keys.
    #[must_use]
    pub fn connection_reason(&self) -> Option<String> {
        match self {
            Self::Connection { kind, source, .. } => connection::reason_of(*kind, source.as_ref()),
            Self::FallbackFailed { first, .. } => first.connection_reason(),
            Self::Exhausted { last, .. } => last.connection_reason(),
            _ => None,
        }
    }

    /// Returns whether a request may have been sent, in any attempt.
    #[must_use]
    pub fn was_sent(&self) -> bool {
        match self {
            Self::Provider(_) | Self::InvalidResponse { .. } => true,
            Self::Connection { kind, .. } => kind.was_connected(),
            Self::NoPermit { .. }
            | Self::QuotaExhausted(_)
            | Self::CircuitOpen { .. }
            | Self::InvalidRequest { .. }
            | Self::Plan(_) => false,
            Self::FallbackFailed { first, other } => first.was_sent() || other.was_sent(),
            Self::Exhausted { was_sent, .. } => *was_sent,
        }
    }

    /// Returns whether the provider may have served the call although its response did not arrive
    /// or cannot be read. It counts the tokens of such a call.
    pub(crate) fn may_have_been_served(&self) -> bool {
        match self {
            Self::InvalidResponse { .. } => true,
            Self::Connection { kind, .. } => kind.was_connected(),
            Self::FallbackFailed { first, other } => {
                first.may_have_been_served() || other.may_have_been_served()
            }
            Self::Exhausted { last, .. } => last.may_have_been_served(),
            _ => false,
        }
    }

    /// Returns whether the response did not arrive in time.
    pub(crate) const fn is_timeout(&self) -> bool {
        matches!(self, Self::Connection { kind: ConnectionFailure::TimedOut, .. })
    }

    /// Returns whether our own limits refused the call. Nothing was sent.
    pub(crate) const fn is_refusal(&self) -> bool {
        matches!(self, Self::NoPermit { .. } | Self::QuotaExhausted(_))
    }

    /// Returns the limit that refused the call, if our own limits did and it is known.
    pub(crate) fn refused_by(&self) -> Option<&'static str> {
        match self {
            Self::NoPermit { limited_by, .. } => *limited_by,
            Self::QuotaExhausted(failure) if unsent::is_configured_day(failure) => {
                Some(Dimension::RequestsPerDay.name())
            }
            Self::QuotaExhausted(_) => Some("quota"),
            _ => None,
        }
    }

    /// Returns whether nothing was sent because of our own limits or circuit breaker. It says
    /// nothing about the provider, and its statistics do not count it.
    pub(crate) const fn is_local(&self) -> bool {
        self.is_refusal() || matches!(self, Self::CircuitOpen { .. })
    }

    /// Returns the name of the failure in logs: its class, unless it is local.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::NoPermit { .. } => "no_permit",
            Self::CircuitOpen { .. } => "circuit_open",
            _ => self.class().name(),
        }
    }

    /// Returns whether the same call may succeed later. A missing permit is a limit of the caller,
    /// and calls that exhausted the retries of an inner layer are not retried again.
    pub(crate) fn is_worth_a_retry(&self) -> bool {
        match self {
            Self::NoPermit { .. } | Self::Exhausted { .. } => false,
            Self::FallbackFailed { first, other } => {
                first.is_worth_a_retry() || other.is_worth_a_retry()
            }
            Self::Connection { kind, .. } => kind.may_heal_soon(),
            Self::Provider(failure) => failure.is_retryable(),
            _ => self.class().is_retryable(),
        }
    }

    /// Returns the error that determines retries: that of the first provider, unless only the
    /// fallback's is retryable.
    pub(crate) fn decisive(&self) -> &Self {
        match self {
            Self::FallbackFailed { first, other } if !first.is_worth_a_retry() => other.decisive(),
            Self::FallbackFailed { first, .. } => first.decisive(),
            Self::Exhausted { last, .. } => last.decisive(),
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    #[test]
    fn delay_is_kept_for_classes_without_one() {
        let provider = Provider::new("anthropic");
        let mut failure = Failure::new(provider, Class::Overloaded, StatusCode::OK);
        failure.after = Some(Duration::from_secs(5));
        assert_eq!(CallError::from(Box::new(failure)).retry_after(), Some(Duration::from_secs(5)));
    }
}
