//! Messages between a client and a shard, as JSON. Times are exact, in nanoseconds.
//!
//! A [`Batch`] is a list of operations on keys of one shard, and [`Replies`] has one reply for each.
//! Both carry a format number; a shard refuses a batch of another format, and so does the client.

mod convert;
mod read;

use alloc::string::String;
use alloc::vec::Vec;

use serde::Serialize;

use crate::json;
pub use crate::policy::{ChangeMessage, PolicyMessage};

/// Format of the messages.
pub const FORMAT: u32 = 1;

/// Maximum number of operations in a batch.
pub const MAX_OPERATIONS: usize = 64;

/// Maximum length of a batch that the Worker accepts, in bytes.
pub const MAX_BATCH_BYTES: usize = 256 * 1_024;

/// Operations of one client.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Batch {
    /// [`FORMAT`].
    pub format: u32,
    /// Id of the client. It numbers the revisions of its limits itself, so a shard compares only
    /// those of one client. Without an id, the policy of every message is taken as the newest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<u64>,
    /// Executed in order, each on its own.
    pub operations: Vec<OperationMessage>,
}

/// One operation of a store.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "as in `tidegate_core::Operation`")]
pub enum OperationMessage {
    Take {
        charges: Vec<ChargeMessage>,
    },
    Peek {
        charges: Vec<ChargeMessage>,
        /// Whether this asks on behalf of a take of a list that spans shards. Buckets are then
        /// converted to a changed policy, as by a take that is denied.
        #[serde(skip_serializing_if = "core::ops::Not::not")]
        for_take: bool,
    },
    Reserve {
        charges: Vec<ChargeMessage>,
        horizon_ns: u64,
        /// Earliest start, in nanoseconds since the Unix epoch: the start of the other parts of the
        /// list, which are in other shards.
        not_before_ns: u64,
    },
    Settle {
        corrections: Vec<CorrectionMessage>,
        receipt: Option<ReceiptMessage>,
    },
    Release {
        targets: Vec<TargetMessage>,
        receipt: ReceiptMessage,
    },
    Renew {
        targets: Vec<TargetMessage>,
        receipt: ReceiptMessage,
    },
    Hold {
        target: TargetMessage,
        span_ns: u64,
    },
    Reset {
        target: TargetMessage,
    },
}

/// A limit, with the revisions that the shard may not know yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LimitMessage {
    /// Name; absent for an inline limit, which is identified by its parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Name of the schedule of an inline calendar quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// Current policy.
    pub policy: PolicyMessage,
    /// Number of the current policy.
    pub generation: u32,
    /// How buckets were converted to it.
    pub change: ChangeMessage,
    /// Earlier policies that may be new to the shard, oldest first, without a gap. A batch has them
    /// once, with the first target of the limit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub past: Vec<(ChangeMessage, PolicyMessage)>,
    /// How long the client has had the current policy, in nanoseconds: for the first one since the
    /// client was created, for a revision since its first use. A shard that hears of two policies
    /// keeps the one that was set later.
    #[serde(skip_serializing_if = "is_zero")]
    pub age_ns: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// One bucket.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TargetMessage {
    /// The limit.
    pub limit: LimitMessage,
    /// The key.
    pub key: String,
    /// Group of the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Bounds of the calendar windows, in seconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub windows: Option<[u32; 4]>,
}

/// A charge on one bucket.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChargeMessage {
    /// The bucket.
    pub on: TargetMessage,
    /// Number of tokens.
    pub cost: u64,
}

/// A correction of one bucket.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CorrectionMessage {
    /// The bucket.
    pub on: TargetMessage,
    /// Number of tokens: positive charges, negative refunds.
    pub delta: i64,
}

/// A receipt as hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ReceiptMessage(pub String);

/// Replies to a batch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replies {
    /// [`FORMAT`].
    pub format: u32,
    /// Time of the shard, in nanoseconds since the Unix epoch.
    pub now_ns: u64,
    /// One per operation.
    pub replies: Vec<ReplyMessage>,
}

/// Reply to one operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "as in `tidegate_core::StoreResponse`")]
pub enum ReplyMessage {
    Allowed {
        wait_ns: u64,
        /// Absent after a peek.
        #[serde(skip_serializing_if = "Option::is_none")]
        receipt: Option<ReceiptMessage>,
        outcomes: Vec<OutcomeMessage>,
    },
    Denied {
        outcomes: Vec<OutcomeMessage>,
    },
    Settled {
        saturated: usize,
        dropped: usize,
        applied: Vec<i64>,
        outcomes: Vec<OutcomeMessage>,
    },
    HeldNs(u64),
    Reset(bool),
    Slots(u64),
    Error(ErrorMessage),
}

/// Outcome of one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "as in `tidegate_core::Outcome`")]
pub struct OutcomeMessage {
    pub capacity: u64,
    pub remaining: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryMessage>,
}

/// When to retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "as in `tidegate_core::Retry`")]
pub enum RetryMessage {
    AfterNs(u64),
    OnRelease,
    Never,
}

/// Error of one operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "as in `tidegate_core::StoreError`")]
pub enum ErrorMessage {
    NoWindows(usize),
    OtherWindows(usize),
    ReceiptMalformed,
    ReceiptFormat(u8),
    ReceiptIssuer,
    ReceiptMismatch,
    Full,
    /// The operation is invalid, or the shard cannot execute it; why, in a sentence.
    Rejected(String),
    /// A shard did not respond, or failed. Its part of the operation may have been executed.
    Unavailable(String),
}

impl Batch {
    /// Parses a batch.
    ///
    /// # Errors
    /// If it is no batch, or one of another format.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        let batch: Self = json::parse(body)?;
        if batch.operations.len() > MAX_OPERATIONS {
            return Err(alloc::format!("a batch has at most {MAX_OPERATIONS} operations"));
        }
        Ok(batch)
    }
}

impl Replies {
    /// Parses replies.
    ///
    /// # Errors
    /// If these are no replies, or some of another format.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        json::parse(body)
    }
}

pub use convert::PolicySync;
pub(crate) use convert::time;
