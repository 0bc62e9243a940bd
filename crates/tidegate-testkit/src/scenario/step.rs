//! Steps of a scenario: what is asked of a store, when, and what it must answer.
//!
//! The oracle computes the answers, the vectors keep them, and the replay compares. A step names
//! limits by their index and earlier receipts by the index of the step that gave them, so that a
//! scenario means the same in every language.

use serde::{Deserialize, Serialize};

/// The instant at which every scenario starts, in nanoseconds since the Unix epoch.
///
/// It is far from zero because stores behind a socket count from the epoch, and a multiple of a
/// day so that calendar windows start with the scenario.
pub const ORIGIN_NS: u64 = 1_699_920_000_000_000_000;

/// One bucket and a number of tokens: index of the limit, key, cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChargeSpec(pub usize, pub String, pub u64);

/// One bucket and a signed number of tokens: index of the limit, key, delta.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorrectionSpec(pub usize, pub String, pub i64);

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Op {
    /// Spend now or not at all.
    Take {
        /// What to spend.
        charges: Vec<ChargeSpec>,
    },
    /// Say what a take would say.
    Peek {
        /// What would be spent.
        charges: Vec<ChargeSpec>,
    },
    /// Spend now or later.
    Reserve {
        /// What to spend.
        charges: Vec<ChargeSpec>,
        /// How long the caller would wait.
        horizon_ns: u64,
    },
    /// Correct an earlier spend.
    Settle {
        /// By how much, where.
        corrections: Vec<CorrectionSpec>,
        /// The step that gave the receipt, if one is handed in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        receipt: Option<usize>,
    },
    /// Give back the slots of a receipt.
    Release {
        /// The step that gave the receipt.
        receipt: usize,
    },
    /// Close a key.
    Hold {
        /// Index of the limit.
        limit: usize,
        /// The key.
        key: String,
        /// For how long.
        span_ns: u64,
    },
    /// Forget a key.
    Reset {
        /// Index of the limit.
        limit: usize,
        /// The key.
        key: String,
    },
    /// From here on callers use the next revision of a limit. The store is not asked anything.
    Revise {
        /// Index of the limit.
        limit: usize,
    },
}

/// When to try again, in the order of length.
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

/// A wait as the vector file has it: a number or a word.
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

/// How one charge must come out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedOutcome {
    /// Whole tokens left.
    pub remaining: u64,
    /// Time until full in nanoseconds; none where time alone fills nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_ns: Option<u64>,
    /// When the charge alone would fit; none if it fits now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_ns: Option<Wait>,
}

/// What the store must answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expected {
    /// To take, peek and reserve, when spent.
    Allowed {
        /// Index of the charge with the least left.
        by: usize,
        /// How long to wait before going ahead.
        wait_ns: u64,
        /// One per charge.
        charges: Vec<ExpectedOutcome>,
    },
    /// To take, peek and reserve, when not.
    Denied {
        /// Index of the charge with the longest wait.
        by: usize,
        /// The longest wait.
        retry_ns: Wait,
        /// One per charge.
        charges: Vec<ExpectedOutcome>,
    },
    /// To settle.
    Settled {
        /// Corrections that hit the deepest debt.
        saturated: usize,
        /// Refunds without effect.
        dropped: usize,
        /// One per correction.
        charges: Vec<ExpectedOutcome>,
    },
    /// To hold: how long the key is closed from now.
    Held(u64),
    /// To reset: whether there was anything to forget; none where a store may say either, because
    /// a full bucket is the same as no bucket.
    Reset(Option<bool>),
    /// To release: how many slots were given back.
    Slots(u64),
    /// To a revision, which asks the store nothing.
    Nothing,
}

/// One step of a scenario.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// When, in nanoseconds after [`ORIGIN_NS`].
    pub at_ns: u64,
    /// What is asked.
    #[serde(flatten)]
    pub op: Op,
    /// What must be answered.
    pub expect: Expected,
}
