//! Steps of a scenario: an operation, its time, and the expected answer.
//!
//! The oracle computes the answers, the vectors store them, and the replay compares them. A step
//! names limits by index, and earlier receipts by the index of the step that returned them, so that
//! a scenario means the same in every language.

use serde::{Deserialize, Serialize};

/// The instant at which every scenario starts, in nanoseconds since the Unix epoch.
///
/// It is far from zero because stores behind a socket count from the epoch, and a multiple of a
/// day so that a calendar window starts with the scenario.
pub const ORIGIN_NS: u64 = 1_699_920_000_000_000_000;

/// One bucket and a number of tokens: index of the limit, key, cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChargeSpec(pub usize, pub String, pub u64);

/// One bucket and a signed number of tokens: index of the limit, key, delta.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorrectionSpec(pub usize, pub String, pub i64);

/// An operation on a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Op {
    /// Spend now or not at all.
    Take {
        /// The charges to spend.
        charges: Vec<ChargeSpec>,
    },
    /// Return what a take would return, without spending.
    Peek {
        /// The charges that a take would spend.
        charges: Vec<ChargeSpec>,
    },
    /// Spend now or later.
    Reserve {
        /// The charges to spend.
        charges: Vec<ChargeSpec>,
        /// Maximum wait of the caller in nanoseconds.
        horizon_ns: u64,
    },
    /// Correct an earlier spend.
    Settle {
        /// The corrections.
        corrections: Vec<CorrectionSpec>,
        /// Index of the step that returned the receipt, if one is used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        receipt: Option<usize>,
    },
    /// Release the slots of a receipt.
    Release {
        /// Index of the step that returned the receipt.
        receipt: usize,
    },
    /// Close a key.
    Hold {
        /// Index of the limit.
        limit: usize,
        /// The key.
        key: String,
        /// Duration in nanoseconds.
        span_ns: u64,
    },
    /// Forget a key.
    Reset {
        /// Index of the limit.
        limit: usize,
        /// The key.
        key: String,
    },
    /// Callers use the next revision of a limit from here on. No operation is sent to the store.
    Revise {
        /// Index of the limit.
        limit: usize,
    },
}

/// When to retry, ordered by length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "WaitRepr", into = "WaitRepr")]
pub enum Wait {
    /// After this many nanoseconds.
    Ns(u64),
    /// When a slot is released.
    OnRelease,
    /// Never.
    Never,
}

/// A wait as written in the vector file: a number or a word.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WaitRepr {
    OnRelease,
    Never,
    #[serde(untagged)]
    Ns(u64),
}

impl From<WaitRepr> for Wait {
    fn from(written: WaitRepr) -> Self {
        match written {
            WaitRepr::Ns(ns) => Self::Ns(ns),
            WaitRepr::OnRelease => Self::OnRelease,
            WaitRepr::Never => Self::Never,
        }
    }
}

impl From<Wait> for WaitRepr {
    fn from(wait: Wait) -> Self {
        match wait {
            Wait::Ns(ns) => Self::Ns(ns),
            Wait::OnRelease => Self::OnRelease,
            Wait::Never => Self::Never,
        }
    }
}

/// The expected outcome of one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedOutcome {
    /// Whole tokens left.
    pub remaining: u64,
    /// Time until full in nanoseconds; `None` if the limit does not refill with time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_ns: Option<u64>,
    /// When the charge alone would fit; `None` if it fits now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_ns: Option<Wait>,
}

/// The expected answer of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expected {
    /// Answer to take, peek and reserve if the charges fit.
    Allowed {
        /// Index of the charge with the least remaining.
        by: usize,
        /// Time until the reserved start in nanoseconds; zero for take and peek.
        wait_ns: u64,
        /// One per charge.
        charges: Vec<ExpectedOutcome>,
    },
    /// Answer to take, peek and reserve if the charges do not fit.
    Denied {
        /// Index of the charge with the longest wait.
        by: usize,
        /// The longest wait.
        retry_ns: Wait,
        /// One per charge.
        charges: Vec<ExpectedOutcome>,
    },
    /// Answer to settle.
    Settled {
        /// Number of corrections that hit the maximum debt.
        saturated: usize,
        /// Number of refunds without effect.
        dropped: usize,
        /// One per correction.
        charges: Vec<ExpectedOutcome>,
    },
    /// Answer to hold: how long the key is closed from now, in nanoseconds.
    Held(u64),
    /// Answer to reset: whether there was anything to forget. `None` if a store may answer either
    /// way, because a full bucket is equivalent to no bucket.
    Reset(Option<bool>),
    /// Answer to release: the number of released slots.
    Slots(u64),
    /// No answer, for a revision.
    Nothing,
}

/// One step of a scenario.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// When, in nanoseconds after [`ORIGIN_NS`].
    pub at_ns: u64,
    /// The operation.
    #[serde(flatten)]
    pub op: Op,
    /// The expected answer.
    pub expect: Expected,
}
