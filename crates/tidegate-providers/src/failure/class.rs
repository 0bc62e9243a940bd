//! Classes of failure, by what the caller can do about them.

use std::time::Duration;

use crate::reported_limits::Dimension;

/// Class of a failure: what the caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// A retry may help: server error, timeout or broken connection.
    Transient,
    /// The provider is overloaded: a retry may help, with fewer concurrent calls.
    Overloaded,
    /// The provider asks for a lower request rate.
    SlowDown,
    /// A rate limit with a short window was exceeded.
    RateLimited {
        /// Delay until a retry, if the provider reports it.
        after: Option<Duration>,
        /// The limit that was exceeded, if the provider reports it.
        dimension: Option<Dimension>,
    },
    /// A daily quota or a budget is exhausted: waiting does not help soon.
    ExhaustedQuota {
        /// Time until the quota resets, if known.
        after: Option<Duration>,
    },
    /// The credential is rejected; a retry does not help.
    CredentialRejected,
    /// The request is larger than the provider accepts; a retry does not help.
    TooLarge,
    /// The request is invalid for another reason; only a different request can succeed.
    BadRequest,
}

impl Class {
    /// Returns whether the same request may succeed later.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::Transient | Self::Overloaded | Self::SlowDown | Self::RateLimited { .. }
        )
    }

    /// Returns whether the same request may succeed at another provider.
    #[must_use]
    pub const fn may_fall_back(self) -> bool {
        !matches!(self, Self::BadRequest)
    }

    /// Returns the delay until a retry or the reset of the quota, if known.
    #[must_use]
    pub const fn after(self) -> Option<Duration> {
        match self {
            Self::RateLimited { after, .. } | Self::ExhaustedQuota { after } => after,
            _ => None,
        }
    }

    /// Returns the name used in metrics and logs.
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
