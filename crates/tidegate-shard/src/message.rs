//! Messages between a client and a shard, as JSON. Times are exact, in nanoseconds.
//!
//! A [`Batch`] is a list of operations on keys of one shard, and [`Replies`] has one reply for each.
//! Both carry a format number; a shard refuses a batch of another format, and so does the client.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tidegate_core::{
    Charge, ChargeError, Correction, Decision, Denial, Grant, Key, Limit, Operation, Outcome,
    Outcomes, Receipt, ReceiptError, Retry, Settlement, StoreError, StoreResponse, Target, Time,
    Windows,
};

use crate::json::{self, Fields, FromJson};
pub use crate::policy::{ChangeMessage, PolicyMessage};

/// Format of the messages.
pub const FORMAT: u32 = 1;

/// Maximum number of operations in a batch.
pub const MAX_OPERATIONS: usize = 64;

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
    /// Earlier policies that may be new to the shard, oldest first, without a gap.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub past: Vec<(ChangeMessage, PolicyMessage)>,
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
    pub replies: Vec<Reply>,
}

/// Reply to one operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "as in `tidegate_core::StoreResponse`")]
pub enum Reply {
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
    /// The operation is invalid, or a part of it failed; why, in a sentence.
    Rejected(String),
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

/// Checks the format before the rest, since other formats may look like anything.
fn check_format(fields: &mut Fields, what: &str) -> Result<u32, String> {
    match fields.optional::<u32>("format")? {
        Some(FORMAT) => Ok(FORMAT),
        Some(other) => Err(alloc::format!(
            "the {what} has format {other}, but this version reads format {FORMAT}"
        )),
        None => Err(alloc::format!("the {what} has no format number")),
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl TargetMessage {
    /// Creates the message of a target. `known` is the newest revision of the limit that the shard
    /// is known to have.
    #[must_use]
    pub fn new(target: &Target<'_>, known: Option<u32>) -> Self {
        Self {
            limit: LimitMessage::new(target.limit, known),
            key: target.key.name().into(),
            group: target.key.group().map(Into::into),
            windows: target.windows.map(|windows| windows.bounds()),
        }
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> Key<'_> {
        let key = Key::new(&self.key);
        self.group.as_deref().map_or(key, |group| key.in_group(group))
    }

    pub(crate) fn windows(&self) -> Result<Option<Windows>, String> {
        self.windows
            .map(|bounds| Windows::new(bounds).ok_or("the bounds of windows must increase".into()))
            .transpose()
    }
}

impl LimitMessage {
    fn new(limit: &Limit, known: Option<u32>) -> Self {
        let policy = PolicyMessage::new(limit.policy());
        if limit.is_inline() {
            let fingerprint = limit.policy().fingerprint();
            let schedule = limit.identity().strip_prefix(&*fingerprint);
            let schedule = schedule.and_then(|rest| rest.strip_prefix(' ')).map(Into::into);
            return Self { schedule, policy, ..Self::default() };
        }
        // A revision that the shard knows is the base of the later ones and need not be sent.
        let oldest = known.map_or(0, |known| known.saturating_add(1)).min(limit.generation());
        let all = (oldest..=limit.generation()).find_map(|from| limit.revisions_since(from));
        let mut all: Vec<_> = all
            .into_iter()
            .flatten()
            .map(|revision| (revision.change().into(), PolicyMessage::new(revision.policy())))
            .collect();
        let change = all.pop().map(|(change, _)| change).unwrap_or_default();
        Self {
            name: Some(limit.identity().into()),
            schedule: None,
            policy,
            generation: limit.generation(),
            change,
            past: all,
        }
    }
}

impl OperationMessage {
    /// Creates the message of an operation. `known` tells the newest revision of a limit that the
    /// shard is known to have. Returns `None` for an operation that this format does not have.
    #[must_use]
    pub fn new(operation: &Operation<'_>, known: impl Fn(&Limit) -> Option<u32>) -> Option<Self> {
        let target = |target: &Target<'_>| TargetMessage::new(target, known(target.limit));
        let charges = |charges: &[Charge<'_>]| {
            let charge = |c: &Charge<'_>| ChargeMessage { on: target(&c.target), cost: c.cost };
            charges.iter().map(charge).collect()
        };
        let targets = |targets: &[Target<'_>]| targets.iter().map(target).collect();
        let correction =
            |c: &Correction<'_>| CorrectionMessage { on: target(&c.target), delta: c.delta };
        Some(match *operation {
            Operation::Take(list) => Self::Take { charges: charges(list) },
            Operation::Peek(list) => Self::Peek { charges: charges(list), for_take: false },
            Operation::Reserve { charges: list, horizon } => Self::Reserve {
                charges: charges(list),
                horizon_ns: nanos(horizon),
                not_before_ns: 0,
            },
            Operation::Settle { corrections, receipt } => Self::Settle {
                corrections: corrections.iter().map(correction).collect(),
                receipt: receipt.map(ReceiptMessage::new),
            },
            Operation::Release { targets: list, receipt } => {
                Self::Release { targets: targets(list), receipt: ReceiptMessage::new(receipt) }
            }
            Operation::Renew { targets: list, receipt } => {
                Self::Renew { targets: targets(list), receipt: ReceiptMessage::new(receipt) }
            }
            Operation::Hold { target: one, span } => {
                Self::Hold { target: target(&one), span_ns: nanos(span) }
            }
            Operation::Reset { target: one } => Self::Reset { target: target(&one) },
            _ => return None,
        })
    }

    /// Returns the buckets of the operation, in order.
    pub fn targets(&self) -> Box<dyn Iterator<Item = &TargetMessage> + '_> {
        match self {
            Self::Take { charges } | Self::Peek { charges, .. } | Self::Reserve { charges, .. } => {
                Box::new(charges.iter().map(|charge| &charge.on))
            }
            Self::Settle { corrections, .. } => Box::new(corrections.iter().map(|c| &c.on)),
            Self::Release { targets, .. } | Self::Renew { targets, .. } => Box::new(targets.iter()),
            Self::Hold { target, .. } | Self::Reset { target } => {
                Box::new(core::iter::once(target))
            }
        }
    }
}

impl ReceiptMessage {
    /// Encodes a receipt.
    #[must_use]
    pub fn new(receipt: &Receipt) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digits = receipt.to_bytes().into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
        Self(digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect())
    }

    /// Decodes the receipt.
    ///
    /// # Errors
    /// If the text is not a receipt, or one of another format.
    pub fn to_receipt(&self) -> Result<Receipt, ReceiptError> {
        let digit = |c: &u8| char::from(*c).to_digit(16).and_then(|d| u8::try_from(d).ok());
        let digits: Option<Vec<u8>> = self.0.as_bytes().iter().map(digit).collect();
        let digits =
            digits.filter(|digits| digits.len() % 2 == 0).ok_or(ReceiptError::Malformed)?;
        let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        Receipt::from_bytes(&bytes)
    }
}

impl OutcomeMessage {
    pub(crate) fn new(outcome: &Outcome) -> Self {
        Self {
            capacity: outcome.capacity,
            remaining: outcome.remaining,
            reset_ns: outcome.reset.map(nanos),
            retry: outcome.retry.map(|retry| match retry {
                Retry::After(wait) => RetryMessage::AfterNs(nanos(wait)),
                Retry::OnRelease => RetryMessage::OnRelease,
                _ => RetryMessage::Never,
            }),
        }
    }

    pub(crate) fn to_outcome(self) -> Outcome {
        let retry = self.retry.map(|retry| match retry {
            RetryMessage::AfterNs(wait) => Retry::After(Duration::from_nanos(wait)),
            RetryMessage::OnRelease => Retry::OnRelease,
            RetryMessage::Never => Retry::Never,
        });
        let reset = self.reset_ns.map(Duration::from_nanos);
        Outcome::new(self.capacity, self.remaining, reset, retry)
    }
}

fn outcomes(messages: &[OutcomeMessage]) -> Outcomes {
    messages.iter().map(|outcome| outcome.to_outcome()).collect()
}

impl Reply {
    /// Creates the reply of a shard.
    #[must_use]
    pub fn new(result: &Result<StoreResponse, StoreError>) -> Self {
        let outcomes = |all: &[Outcome]| all.iter().map(OutcomeMessage::new).collect();
        match result {
            Ok(StoreResponse::Decision(Decision::Allowed(grant))) => Self::Allowed {
                wait_ns: nanos(grant.wait),
                receipt: (!grant.receipt.charges().is_empty())
                    .then(|| ReceiptMessage::new(&grant.receipt)),
                outcomes: outcomes(&grant.outcomes),
            },
            Ok(StoreResponse::Decision(decision)) => {
                Self::Denied { outcomes: outcomes(decision.outcomes()) }
            }
            Ok(StoreResponse::Settled(settlement)) => Self::Settled {
                saturated: settlement.saturated,
                dropped: settlement.dropped,
                applied: settlement.applied.to_vec(),
                outcomes: outcomes(&settlement.outcomes),
            },
            Ok(StoreResponse::HeldFor(span)) => Self::HeldNs(nanos(*span)),
            Ok(StoreResponse::Reset(existed)) => Self::Reset(*existed),
            Ok(StoreResponse::Slots(slots)) => Self::Slots(*slots),
            Ok(_) => Self::Error(ErrorMessage::Rejected("unknown response".into())),
            Err(error) => Self::Error(ErrorMessage::new(error)),
        }
    }

    /// Returns the response of the store.
    ///
    /// # Errors
    /// The error of the operation; [`StoreError::Unavailable`] if the receipt cannot be read.
    pub fn to_response(&self) -> Result<StoreResponse, StoreError> {
        Ok(match self {
            Self::Allowed { wait_ns, receipt, outcomes: all } => {
                let receipt = receipt.as_ref().map(ReceiptMessage::to_receipt).transpose();
                let receipt = receipt
                    .map_err(|error| StoreError::Unavailable(alloc::format!("{error}").into()))?;
                let wait = Duration::from_nanos(*wait_ns);
                let grant = Grant::new(outcomes(all), wait, receipt.unwrap_or_default());
                StoreResponse::Decision(Decision::Allowed(grant))
            }
            Self::Denied { outcomes: all } => {
                StoreResponse::Decision(Decision::Denied(Denial::new(outcomes(all))))
            }
            Self::Settled { saturated, dropped, applied, outcomes: all } => {
                let applied = applied.iter().copied().collect();
                StoreResponse::Settled(Settlement::new(
                    outcomes(all),
                    *saturated,
                    *dropped,
                    applied,
                ))
            }
            Self::HeldNs(span) => StoreResponse::HeldFor(Duration::from_nanos(*span)),
            Self::Reset(existed) => StoreResponse::Reset(*existed),
            Self::Slots(slots) => StoreResponse::Slots(*slots),
            Self::Error(error) => return Err(error.to_error()),
        })
    }
}

impl ErrorMessage {
    pub(crate) fn new(error: &StoreError) -> Self {
        match error {
            StoreError::Charge(ChargeError::NoWindows(index)) => Self::NoWindows(*index),
            StoreError::Charge(ChargeError::OtherWindows(index)) => Self::OtherWindows(*index),
            StoreError::Receipt(ReceiptError::Malformed) => Self::ReceiptMalformed,
            StoreError::Receipt(ReceiptError::Format(format)) => Self::ReceiptFormat(*format),
            StoreError::Receipt(ReceiptError::Issuer) => Self::ReceiptIssuer,
            StoreError::Receipt(ReceiptError::Mismatch) => Self::ReceiptMismatch,
            StoreError::Full => Self::Full,
            StoreError::Rejected(reason) => Self::Rejected(alloc::format!("{reason}")),
            other => Self::Rejected(alloc::format!("{other}")),
        }
    }

    pub(crate) fn to_error(&self) -> StoreError {
        match self {
            Self::NoWindows(index) => ChargeError::NoWindows(*index).into(),
            Self::OtherWindows(index) => ChargeError::OtherWindows(*index).into(),
            Self::ReceiptMalformed => ReceiptError::Malformed.into(),
            Self::ReceiptFormat(format) => ReceiptError::Format(*format).into(),
            Self::ReceiptIssuer => ReceiptError::Issuer.into(),
            Self::ReceiptMismatch => ReceiptError::Mismatch.into(),
            Self::Full => StoreError::Full,
            Self::Rejected(reason) => StoreError::Rejected(reason.clone().into()),
        }
    }
}

/// Returns the instant `ns` nanoseconds after the Unix epoch on the clock of a shard.
pub(crate) fn time(ns: u64) -> Time {
    Time::from_nanos(ns)
}

impl FromJson for Batch {
    fn from_json(value: Value) -> Result<Self, String> {
        let mut fields = Fields::new(value)?;
        let batch = Self {
            format: check_format(&mut fields, "batch")?,
            node: fields.optional("node")?,
            operations: fields.required("operations")?,
        };
        fields.finish().map(|()| batch)
    }
}

impl FromJson for OperationMessage {
    fn from_json(value: Value) -> Result<Self, String> {
        let (name, value) = json::variant(value)?;
        let mut fields = Fields::new(value)?;
        let operation = match &*name {
            "take" => Self::Take { charges: fields.required("charges")? },
            "peek" => Self::Peek {
                charges: fields.required("charges")?,
                for_take: fields.optional("for_take")?.unwrap_or(false),
            },
            "reserve" => Self::Reserve {
                charges: fields.required("charges")?,
                horizon_ns: fields.required("horizon_ns")?,
                not_before_ns: fields.optional("not_before_ns")?.unwrap_or(0),
            },
            "settle" => Self::Settle {
                corrections: fields.required("corrections")?,
                receipt: fields.optional("receipt")?,
            },
            "release" => Self::Release {
                targets: fields.required("targets")?,
                receipt: fields.required("receipt")?,
            },
            "renew" => Self::Renew {
                targets: fields.required("targets")?,
                receipt: fields.required("receipt")?,
            },
            "hold" => Self::Hold {
                target: fields.required("target")?,
                span_ns: fields.required("span_ns")?,
            },
            "reset" => Self::Reset { target: fields.required("target")? },
            other => return json::unknown(other),
        };
        fields.finish().map(|()| operation)
    }
}

impl FromJson for LimitMessage {
    fn from_json(value: Value) -> Result<Self, String> {
        let mut fields = Fields::new(value)?;
        let limit = Self {
            name: fields.optional("name")?,
            schedule: fields.optional("schedule")?,
            policy: fields.required("policy")?,
            generation: fields.optional("generation")?.unwrap_or(0),
            change: fields.optional("change")?.unwrap_or_default(),
            past: fields.optional("past")?.unwrap_or_default(),
        };
        fields.finish().map(|()| limit)
    }
}

impl FromJson for TargetMessage {
    fn from_json(value: Value) -> Result<Self, String> {
        let mut fields = Fields::new(value)?;
        let target = Self {
            limit: fields.required("limit")?,
            key: fields.required("key")?,
            group: fields.optional("group")?,
            windows: fields.optional("windows")?,
        };
        fields.finish().map(|()| target)
    }
}

impl FromJson for ChargeMessage {
    fn from_json(value: Value) -> Result<Self, String> {
        let mut fields = Fields::new(value)?;
        let charge = Self { on: fields.required("on")?, cost: fields.required("cost")? };
        fields.finish().map(|()| charge)
    }
}

impl FromJson for CorrectionMessage {
    fn from_json(value: Value) -> Result<Self, String> {
        let mut fields = Fields::new(value)?;
        let correction = Self { on: fields.required("on")?, delta: fields.required("delta")? };
        fields.finish().map(|()| correction)
    }
}

impl FromJson for ReceiptMessage {
    fn from_json(value: Value) -> Result<Self, String> {
        String::from_json(value).map(Self)
    }
}

impl FromJson for Replies {
    fn from_json(value: Value) -> Result<Self, String> {
        let mut fields = Fields::new(value)?;
        Ok(Self {
            format: check_format(&mut fields, "reply")?,
            now_ns: fields.required("now_ns")?,
            replies: fields.required("replies")?,
        })
    }
}

impl FromJson for Reply {
    fn from_json(value: Value) -> Result<Self, String> {
        let (name, value) = json::variant(value)?;
        Ok(match &*name {
            "allowed" => {
                let mut fields = Fields::new(value)?;
                Self::Allowed {
                    wait_ns: fields.required("wait_ns")?,
                    receipt: fields.optional("receipt")?,
                    outcomes: fields.required("outcomes")?,
                }
            }
            "denied" => Self::Denied { outcomes: Fields::new(value)?.required("outcomes")? },
            "settled" => {
                let mut fields = Fields::new(value)?;
                Self::Settled {
                    saturated: fields.required("saturated")?,
                    dropped: fields.required("dropped")?,
                    applied: fields.required("applied")?,
                    outcomes: fields.required("outcomes")?,
                }
            }
            "held_ns" => Self::HeldNs(FromJson::from_json(value)?),
            "reset" => Self::Reset(FromJson::from_json(value)?),
            "slots" => Self::Slots(FromJson::from_json(value)?),
            "error" => Self::Error(FromJson::from_json(value)?),
            other => return json::unknown(other),
        })
    }
}

impl FromJson for OutcomeMessage {
    fn from_json(value: Value) -> Result<Self, String> {
        let mut fields = Fields::new(value)?;
        Ok(Self {
            capacity: fields.required("capacity")?,
            remaining: fields.required("remaining")?,
            reset_ns: fields.optional("reset_ns")?,
            retry: fields.optional("retry")?,
        })
    }
}

impl FromJson for RetryMessage {
    fn from_json(value: Value) -> Result<Self, String> {
        let (name, value) = json::variant(value)?;
        Ok(match &*name {
            "after_ns" => Self::AfterNs(FromJson::from_json(value)?),
            "on_release" => Self::OnRelease,
            "never" => Self::Never,
            other => return json::unknown(other),
        })
    }
}

impl FromJson for ErrorMessage {
    fn from_json(value: Value) -> Result<Self, String> {
        let (name, value) = json::variant(value)?;
        Ok(match &*name {
            "no_windows" => Self::NoWindows(FromJson::from_json(value)?),
            "other_windows" => Self::OtherWindows(FromJson::from_json(value)?),
            "receipt_malformed" => Self::ReceiptMalformed,
            "receipt_format" => Self::ReceiptFormat(FromJson::from_json(value)?),
            "receipt_issuer" => Self::ReceiptIssuer,
            "receipt_mismatch" => Self::ReceiptMismatch,
            "full" => Self::Full,
            "rejected" => Self::Rejected(FromJson::from_json(value)?),
            other => return json::unknown(other),
        })
    }
}
