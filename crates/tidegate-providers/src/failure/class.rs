//! Classes of failure: what to do about one.

use std::time::Duration;

use crate::reported_limits::Dimension;

/// What kind of failure it is, and so what helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// Trying again soon may help: a server error, a time-out, a broken connection.
    Transient,
    /// The provider is overloaded: trying again may help, with fewer calls at a time.
    Overloaded,
    /// The provider asks for a lower rate.
    SlowDown,
    /// A limit of a short time was reached.
    RateLimited {
        /// When to come back, if it was told.
        after: Option<Duration>,
        /// Which limit it was, if it was told.
        dimension: Option<Dimension>,
    },
    /// A limit of a long time was reached, of a day or of money: waiting does not help soon.
    ExhaustedQuota {
        /// When it is over, if that is known.
        after: Option<Duration>,
    },
    /// The credential is not accepted, and will not be.
    CredentialRejected,
    /// The request is larger than the provider accepts, and always will be.
    TooLarge,
    /// The request is wrong in another way: nothing but another request helps.
    BadRequest,
}

impl Class {
    /// Whether the same request may do better later.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::Transient | Self::Overloaded | Self::SlowDown | Self::RateLimited { .. }
        )
    }

    /// Whether another provider may do better with the same request.
    #[must_use]
    pub const fn may_fall_back(self) -> bool {
        !matches!(self, Self::BadRequest)
    }

    /// When to come back, if it was told.
    #[must_use]
    pub const fn after(self) -> Option<Duration> {
        match self {
            Self::RateLimited { after, .. } | Self::ExhaustedQuota { after } => after,
            _ => None,
        }
    }

    /// The name in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Overloaded => "overloaded",
            Self::SlowDown => "slow_down",
            Self::RateLimited { .. } => "rate_limited",
            Self::ExhaustedQuota { .. } => "long_quota",
            Self::CredentialRejected => "dead_key",
            Self::TooLarge => "too_big",
            Self::BadRequest => "bad_request",
        }
    }
}
