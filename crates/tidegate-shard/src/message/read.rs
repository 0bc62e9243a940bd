//! Messages from JSON.

use alloc::string::String;

use serde_json::Value;

use super::{
    Batch, ChargeMessage, CorrectionMessage, ErrorMessage, FORMAT, LimitMessage, OperationMessage,
    OutcomeMessage, ReceiptMessage, Replies, ReplyMessage, RetryMessage, TargetMessage,
};
use crate::json::{self, Fields, FromJson};

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
            age_ns: fields.optional("age_ns")?.unwrap_or(0),
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

impl FromJson for ReplyMessage {
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
            "unavailable" => Self::Unavailable(FromJson::from_json(value)?),
            other => return json::unknown(other),
        })
    }
}
