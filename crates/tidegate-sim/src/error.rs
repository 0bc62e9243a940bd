//! Errors in the configuration of a simulator.
//!
//! Error responses of simulated providers are not errors in this sense. No text contains a key.

use crate::dialect::Dialect;

/// An error while building a simulator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A limit is zero, which would reject every call.
    #[error("the limit of {limit} is zero; leave it unset, or use a fault to reject calls")]
    ZeroLimit {
        /// Name of the limit.
        limit: &'static str,
    },
    /// The provider has no such limit.
    #[error("{dialect} has no limit of {limit}")]
    UnknownLimit {
        /// Dialect of the provider.
        dialect: Dialect,
        /// The limit.
        limit: &'static str,
    },
    /// The length of a slice is out of range.
    #[error("the length of a slice must be more than zero and at most one minute")]
    SliceLength,
    /// Request slices without a limit of requests per minute.
    #[error("slices need a limit of requests per minute; set requests_per_minute")]
    SliceWithoutLimit,
    /// Token slices without a limit of tokens per minute.
    #[error("token slices need a limit of tokens per minute; set tokens_per_minute")]
    TokenSliceWithoutLimit,
    /// Two accounts have the same label or share a key.
    #[error("account {label:?} shares its label or a key with another account")]
    DuplicateAccount {
        /// Label of the second account.
        label: String,
    },
    /// A model occurs twice in an account.
    #[error("account {label:?} names the model {model:?} twice")]
    DuplicateModel {
        /// The account.
        label: String,
        /// The model.
        model: String,
    },
    /// An account has no model.
    #[error("account {label:?} has no model; add one with model or any_model")]
    NoModel {
        /// The account.
        label: String,
    },
    /// A fault is invalid.
    #[error(transparent)]
    Fault(#[from] FaultError),
    /// The start of the wall clock is out of range.
    #[error("the wall clock must start between 1970 and 2498")]
    WallClock,
}

/// An error while configuring or injecting a fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultError {
    /// No account has that label.
    #[error("no account has the label {label:?}")]
    UnknownAccount {
        /// The unknown label.
        label: String,
    },
    /// The provider has no such error.
    #[error("{dialect} has no error for {fault}")]
    NotInDialect {
        /// Dialect of the provider.
        dialect: Dialect,
        /// The fault.
        fault: &'static str,
    },
}
