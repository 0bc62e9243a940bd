//! Errors in the configuration of a simulator.
//!
//! Error responses of simulated providers are not errors in this sense. No text contains a key.

use crate::dialect::Dialect;

/// An error while building a simulator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A limit is zero, which would reject every call.
    #[error("a limit of {limit} is zero; leave it out, or let a fault refuse the calls")]
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
    #[error("a slice is longer than nothing and not longer than a minute")]
    SliceLength,
    /// Request slices without a limit of requests per minute.
    #[error("slices divide requests per minute, and there is no such limit")]
    SliceOfNothing,
    /// Token slices without a limit of tokens per minute.
    #[error("token slices divide tokens per minute, and there is no such limit")]
    TokenSliceOfNothing,
    /// Two accounts have the same label or share a key.
    #[error("two accounts have the label or a key of {label:?}")]
    Ambiguous {
        /// Label of the second account.
        label: String,
    },
    /// A model occurs twice in an account.
    #[error("the model {model:?} has limits twice in the account {label:?}")]
    ModelTwice {
        /// The account.
        label: String,
        /// The model.
        model: String,
    },
    /// An account has no model.
    #[error("the account {label:?} has no model")]
    NoModel {
        /// The account.
        label: String,
    },
    /// A fault is invalid.
    #[error(transparent)]
    Fault(#[from] FaultError),
    /// The start of the wall clock is out of range.
    #[error("the wall clock starts between 1970 and 2500")]
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
    #[error("{dialect} has no answer for {fault}")]
    NotInDialect {
        /// Dialect of the provider.
        dialect: Dialect,
        /// The fault.
        fault: &'static str,
    },
}
