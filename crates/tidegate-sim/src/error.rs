//! What can be wrong with how a simulator is set up or told to behave.
//!
//! What a simulated provider answers is not an error here, however much it is one to its caller.
//! No text names a key.

use crate::dialect::Dialect;

/// Why a simulator was not built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A limit of zero refuses everything for ever.
    #[error("a limit of {limit} is zero; leave it out, or let a fault refuse the calls")]
    ZeroLimit {
        /// The limit.
        limit: &'static str,
    },
    /// The provider has no such limit, and no way to tell of it.
    #[error("{dialect} has no limit of {limit}")]
    UnknownLimit {
        /// The provider.
        dialect: Dialect,
        /// The limit.
        limit: &'static str,
    },
    /// A slice is a part of a minute.
    #[error("a slice is longer than nothing and not longer than a minute")]
    SliceLength,
    /// Slices divide a limit of requests, and there is none.
    #[error("slices divide requests per minute, and there is no such limit")]
    SliceOfNothing,
    /// Slices of tokens divide a limit of tokens, and there is none.
    #[error("token slices divide tokens per minute, and there is no such limit")]
    TokenSliceOfNothing,
    /// Two accounts have the same label, or two of them the same key.
    #[error("two accounts have the label or a key of {label:?}")]
    Ambiguous {
        /// The label of the second one.
        label: String,
    },
    /// A model is named twice in an account.
    #[error("the model {model:?} has limits twice in the account {label:?}")]
    ModelTwice {
        /// The account.
        label: String,
        /// The model.
        model: String,
    },
    /// An account without a model answers nothing.
    #[error("the account {label:?} has no model")]
    NoModel {
        /// The account.
        label: String,
    },
    /// The provider cannot fail like this.
    #[error(transparent)]
    Fault(#[from] FaultError),
    /// The wall clock would start before 1970, or so late that nanoseconds run out.
    #[error("the wall clock starts between 1970 and 2500")]
    WallClock,
}

/// Why a fault was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultError {
    /// No account has that label.
    #[error("no account has the label {label:?}")]
    UnknownAccount {
        /// The label.
        label: String,
    },
    /// The provider has no such answer.
    #[error("{dialect} has no answer for {fault}")]
    NotInDialect {
        /// The provider.
        dialect: Dialect,
        /// The fault.
        fault: &'static str,
    },
}
