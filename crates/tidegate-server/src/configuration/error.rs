//! Why a configuration is not put in force: one type from the cause to the answer.
//!
//! How the APIs render it is for [`api`](crate::api) to say.

use tidegate::LimitError;
use tidegate::admission::AdmissionError;
use tidegate_config::ConfigError;
use tidegate_gateway::GatewayError;

use crate::database::DatabaseError;
use crate::tokens::OpenToAll;

/// Why a configuration is not put in force. The one of before stays.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The layers have mistakes, or cannot be read.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A limit has been changed too often.
    #[error("limits.{limit}: cannot be changed any more: {error}")]
    Limit {
        /// Its name.
        limit: String,
        /// Why not.
        error: LimitError,
    },
    /// A tier of admission would become, or cease to be, a token bucket.
    #[error(
        "limits.{limit}: is a tier of admission while the server runs, and stays a token bucket"
    )]
    TierKind {
        /// Its name.
        limit: String,
    },
    /// Admission cannot follow the configuration.
    #[error("admission: {0}")]
    Admission(#[from] AdmissionError),
    /// The gateway cannot follow the configuration.
    #[error("providers: {0}")]
    Gateway(#[from] GatewayError),
    /// A listener that changes the configuration would be open to everybody.
    #[error(transparent)]
    OpenToAll(#[from] OpenToAll),
    /// The database cannot be used, or another change was written first.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The task that makes the change panicked.
    #[error("the change ended badly; look whether it was made")]
    Interrupted,
}

impl ChangeError {
    /// Whether the configuration that was given is at fault.
    #[must_use]
    pub const fn is_invalid(&self) -> bool {
        match self {
            Self::Config(_)
            | Self::Limit { .. }
            | Self::TierKind { .. }
            | Self::Admission(_)
            | Self::Gateway(_)
            | Self::OpenToAll(_) => true,
            Self::Database(error) => {
                matches!(error, DatabaseError::Refused { .. } | DatabaseError::TooMany { .. })
            }
            Self::Interrupted => false,
        }
    }

    /// The revision in force, if another change was made first.
    pub(crate) const fn conflict(&self) -> Option<u64> {
        match self {
            Self::Database(DatabaseError::Conflict { now }) => Some(*now),
            _ => None,
        }
    }
}
