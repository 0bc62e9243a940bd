//! Error of a configuration change, from the cause to the response.
//!
//! The rendering is in [`api`](crate::api).

use tidegate::LimitError;
use tidegate::admission::AdmissionError;
use tidegate_config::ConfigError;
use tidegate_gateway::GatewayError;

use crate::database::DatabaseError;
use crate::tokens::UnauthenticatedListener;

/// Why a configuration was not applied. The previous configuration stays in effect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The layers are invalid or cannot be read.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The policy of a limit cannot be changed again.
    #[error("limits.{limit}: cannot be changed: {error}")]
    Limit {
        /// Name of the limit.
        limit: String,
        /// The cause.
        error: LimitError,
    },
    /// The limit is an admission tier, and its kind cannot change at run time.
    #[error(
        "limits.{limit}: is an admission tier and must stay a token bucket while the server runs; \
         restart to change its kind"
    )]
    TierKind {
        /// Name of the limit.
        limit: String,
    },
    /// The admission rules are invalid.
    #[error("admission: {0}")]
    Admission(#[from] AdmissionError),
    /// The settings of the providers are invalid.
    #[error("providers: {0}")]
    Gateway(#[from] GatewayError),
    /// A listener that can change the configuration would accept unauthenticated requests from the
    /// network.
    #[error(transparent)]
    UnauthenticatedListener(#[from] UnauthenticatedListener),
    /// The database failed, or another change was written first.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The task that applies the change panicked.
    #[error("the change failed unexpectedly and may have been applied; read the configuration")]
    Interrupted,
}

impl ChangeError {
    /// Returns whether the error is in the given configuration, rather than in this process or the
    /// database.
    #[must_use]
    pub const fn is_invalid(&self) -> bool {
        match self {
            Self::Config(_)
            | Self::Limit { .. }
            | Self::TierKind { .. }
            | Self::Admission(_)
            | Self::Gateway(_)
            | Self::UnauthenticatedListener(_) => true,
            Self::Database(error) => {
                matches!(error, DatabaseError::Refused { .. } | DatabaseError::TooMany { .. })
            }
            Self::Interrupted => false,
        }
    }

    /// Returns the current revision if the change conflicted with another.
    pub(crate) const fn conflict(&self) -> Option<u64> {
        match self {
            Self::Database(DatabaseError::Conflict { now }) => Some(*now),
            _ => None,
        }
    }
}
