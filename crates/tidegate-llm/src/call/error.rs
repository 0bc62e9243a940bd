//! Why a call has no answer, or not the end of one.

use std::error::Error;
use std::time::Duration;

use tidegate::pacer::AcquireError;
use tidegate_providers::{Class, Failure, Provider};

use super::connection::{self, Broken, Described};
use crate::plan::Invalid;

/// Any error below.
pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// Why a call has no answer, or not the end of one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The provider answered with an error.
    #[error("{0}")]
    Provider(#[from] Box<Failure>),
    /// The connection failed.
    #[error("{provider} {}", Described(*.broken, .source.as_ref()))]
    Connection {
        /// Who was called.
        provider: Provider,
        /// How it failed.
        broken: Broken,
        /// What was seen below.
        #[source]
        source: Option<BoxError>,
    },
    /// What the provider sent is not what it should be.
    #[error("the answer of {provider} cannot be read: {source}")]
    Unreadable {
        /// Who was called.
        provider: Provider,
        /// What is wrong with it.
        #[source]
        source: BoxError,
    },
    /// There is no permit for the call: the wait would be too long, or the queue is full. Nothing
    /// was sent.
    #[error("no permit for a call to {provider}: {source}")]
    NoPermit {
        /// Who was to be called.
        provider: Provider,
        /// Why there is none.
        #[source]
        source: AcquireError,
        /// What it would have to wait for, by the name of the dimension or `concurrency`, if that
        /// is known.
        limited_by: Option<&'static str>,
        /// When there may be one, if that is known.
        after: Option<Duration>,
    },
    /// A quota of a long time is used up, as the provider said to an earlier call. Nothing was sent.
    #[error("nothing was sent, since a quota is used up: {0}")]
    Closed(Box<Failure>),
    /// The provider has failed so often that it is left alone for a while. Nothing was sent.
    #[error(
        "nothing was sent to {provider}, which keeps failing: the circuit breaker is open for {}s more",
        after.as_secs_f64().ceil()
    )]
    Open {
        /// Who was to be called.
        provider: Provider,
        /// For how long.
        after: Duration,
    },
    /// The request cannot be put into the provider's words. Nothing was sent.
    #[error("the request to {provider} cannot be made: {source}")]
    Request {
        /// Who was to be called.
        provider: Provider,
        /// What is wrong with it.
        #[source]
        source: BoxError,
    },
    /// The limits that were asked for with the call make no sense. Nothing was sent.
    #[error(transparent)]
    Plan(#[from] Invalid),
    /// The provider failed, and so did another that was turned to, in a way that matters to whoever
    /// tries again: it may do better later though the first will not, or it was asked though the
    /// first was left alone. To the caller it is the failure of the first, whose class and answer it
    /// has; when to come back is up to the one that is worth it.
    #[error("{first}, and {other}")]
    Unrescued {
        /// Why the provider failed that was asked for.
        #[source]
        first: Box<CallError>,
        /// Why the other one failed.
        other: Box<CallError>,
    },
    /// All attempts failed.
    #[error("{attempts} attempts failed, the last one: {last}")]
    Exhausted {
        /// How many there were.
        attempts: u32,
        /// Why the last one failed.
        #[source]
        last: Box<CallError>,
    },
}

impl CallError {
    /// What helps. An error of ours is classed as what it comes to.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Provider(failure) | Self::Closed(failure) => failure.class,
            Self::Connection { .. } | Self::Unreadable { .. } => Class::Transient,
            Self::NoPermit { source: AcquireError::NeverFits(_), .. } => Class::TooLarge,
            Self::NoPermit { after, .. } => Class::RateLimited { after: *after, dimension: None },
            Self::Open { after, .. } => Class::RateLimited { after: Some(*after), dimension: None },
            Self::Request { .. } | Self::Plan(_) => Class::BadRequest,
            Self::Unrescued { first, .. } => first.class(),
            Self::Exhausted { last, .. } => last.class(),
        }
    }

    /// When to come back, if that is known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Unrescued { .. } | Self::Exhausted { .. } => self.decisive().retry_after(),
            _ => self.class().after().or_else(|| self.failure()?.after),
        }
    }

    /// What the provider answered, if it did. Of several that were turned to it is the first.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Provider(failure) | Self::Closed(failure) => Some(failure),
            Self::Unrescued { first, .. } => first.failure(),
            Self::Exhausted { last, .. } => last.failure(),
            _ => None,
        }
    }

    /// Why the connection failed, as far as typed errors and the kinds of I/O errors tell. Of several
    /// providers it is that of the first. It contains no path and no key.
    #[must_use]
    pub fn connection_reason(&self) -> Option<String> {
        match self {
            Self::Connection { broken, source, .. } => {
                connection::reason_of(*broken, source.as_ref())
            }
            Self::Unrescued { first, .. } => first.connection_reason(),
            Self::Exhausted { last, .. } => last.connection_reason(),
            _ => None,
        }
    }

    /// Whether a request was sent at all.
    #[must_use]
    pub fn was_sent(&self) -> bool {
        match self {
            Self::Provider(_) | Self::Unreadable { .. } => true,
            Self::Connection { broken, .. } => broken.was_connected(),
            Self::NoPermit { .. }
            | Self::Closed(_)
            | Self::Open { .. }
            | Self::Request { .. }
            | Self::Plan(_) => false,
            Self::Unrescued { first, other } => first.was_sent() || other.was_sent(),
            Self::Exhausted { last, .. } => last.was_sent(),
        }
    }

    /// Whether the same call may do better later. A permit that is not to be had is the caller's
    /// own limit, and what was tried often enough below is not tried as often again.
    pub(crate) fn is_worth_a_retry(&self) -> bool {
        match self {
            Self::NoPermit { .. } | Self::Exhausted { .. } => false,
            Self::Unrescued { first, other } => {
                first.is_worth_a_retry() || other.is_worth_a_retry()
            }
            Self::Connection { broken, .. } => broken.may_heal_soon(),
            Self::Provider(failure) => failure.is_retryable(),
            _ => self.class().is_retryable(),
        }
    }

    /// The failure that says what helps: of several providers that of the first, unless another is
    /// worth a retry and it is not.
    pub(crate) fn decisive(&self) -> &Self {
        match self {
            Self::Unrescued { first, other } if !first.is_worth_a_retry() => other.decisive(),
            Self::Unrescued { first, .. } => first.decisive(),
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
    fn a_delay_of_a_class_without_one_is_kept() {
        let provider = Provider::new("anthropic");
        let mut failure = Failure::new(provider, Class::Overloaded, StatusCode::OK);
        failure.after = Some(Duration::from_secs(5));
        assert_eq!(CallError::from(Box::new(failure)).retry_after(), Some(Duration::from_secs(5)));
    }
}
