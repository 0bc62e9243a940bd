//! Responses: what a request gets for the replies of its shards.

use alloc::string::ToString;
use alloc::vec::Vec;

use serde::Serialize;

use super::request::{Form, Request};
use super::{NANOS_PER_MILLI, Response};
use crate::message::{
    ErrorMessage, OperationMessage, OutcomeMessage, ReceiptMessage, Replies, ReplyMessage,
    RetryMessage,
};

impl Request {
    /// Renders the replies in the form of the request.
    pub(super) fn render(&self, replies: &Replies) -> Response {
        let first = || replies.replies.first();
        match self.form {
            Form::Batch => Response::ok(replies),
            Form::Consume => first().map_or_else(no_reply, render_consume),
            Form::Verb => first().map_or_else(no_reply, |reply| self.render_verb(reply)),
        }
    }

    fn render_verb(&self, reply: &ReplyMessage) -> Response {
        match reply {
            ReplyMessage::Allowed { wait_ns, receipt, outcomes } => {
                let is_reservation =
                    matches!(self.batch.operations[0], OperationMessage::Reserve { .. });
                Response::ok(&DecisionBody {
                    allowed: true,
                    by: None,
                    by_index: None,
                    remaining: remaining(outcomes),
                    reset_after_ms: outcomes.iter().filter_map(reset_ms).max(),
                    retry_after_ms: None,
                    wait_ms: is_reservation.then(|| wait_ns.div_ceil(NANOS_PER_MILLI)),
                    receipt: receipt.clone(),
                    charges: self.charges(outcomes),
                })
            }
            ReplyMessage::Denied { outcomes } => {
                let (index, retry) = binding(outcomes);
                Response::ok(&DecisionBody {
                    allowed: false,
                    by: Some(self.name(index)),
                    by_index: self.is_list.then_some(index),
                    remaining: remaining(outcomes),
                    reset_after_ms: None,
                    retry_after_ms: Some(retry),
                    wait_ms: None,
                    receipt: None,
                    charges: self.charges(outcomes),
                })
            }
            ReplyMessage::Settled { saturated, dropped, applied, outcomes } => {
                Response::ok(&SettledBody {
                    remaining: remaining(outcomes),
                    reset_after_ms: outcomes.iter().filter_map(reset_ms).max(),
                    saturated: *saturated > 0,
                    dropped: *dropped > 0,
                    applied,
                })
            }
            ReplyMessage::HeldNs(span) => {
                Response::ok(&HeldBody { held_ms: span.div_ceil(NANOS_PER_MILLI) })
            }
            ReplyMessage::Reset(reset) => Response::ok(&ResetBody { reset: *reset }),
            ReplyMessage::Slots(slots) => Response::ok(&SlotsBody { slots: *slots }),
            ReplyMessage::Error(error) => render_error(error),
        }
    }

    fn name(&self, index: usize) -> &str {
        self.limits.get(index).and_then(Option::as_deref).unwrap_or("inline")
    }

    fn charges(&self, outcomes: &[OutcomeMessage]) -> Option<Vec<ChargeBody<'_>>> {
        let charge = |(index, outcome): (usize, &OutcomeMessage)| ChargeBody {
            limit: self.name(index),
            remaining: outcome.remaining,
            reset_after_ms: reset_ms(outcome),
        };
        self.is_list.then(|| outcomes.iter().enumerate().map(charge).collect())
    }
}

fn render_consume(reply: &ReplyMessage) -> Response {
    match reply {
        ReplyMessage::Allowed { outcomes, .. } => {
            Response::ok(&ConsumeAllowed { allowed: true, remaining: remaining(outcomes) })
        }
        ReplyMessage::Denied { outcomes } => Response::ok(&ConsumeDenied {
            allowed: false,
            remaining: remaining(outcomes),
            retry_after_ms: binding(outcomes).1,
        }),
        ReplyMessage::Error(error) => render_error(error),
        _ => no_reply(),
    }
}

fn render_error(error: &ErrorMessage) -> Response {
    let status = match error {
        // Shards that do not respond.
        ErrorMessage::Full | ErrorMessage::Unavailable(_) => 503,
        // Other versions of the storage.
        ErrorMessage::Rejected(_) => 500,
        _ => 400,
    };
    Response::error(status, &error.to_error().to_string())
}

fn no_reply() -> Response {
    Response::error(500, "the shard returned no reply")
}

fn remaining(outcomes: &[OutcomeMessage]) -> u64 {
    outcomes.iter().map(|outcome| outcome.remaining).min().unwrap_or(0)
}

fn reset_ms(outcome: &OutcomeMessage) -> Option<u64> {
    outcome.reset_ns.map(|ns| ns.div_ceil(NANOS_PER_MILLI))
}

/// Returns the charge with the longest wait, and the wait in milliseconds; null if it never fits,
/// one second if a slot must be released first.
fn binding(outcomes: &[OutcomeMessage]) -> (usize, Option<u64>) {
    let order = |retry: &Option<RetryMessage>| match *retry {
        None => (0, 0),
        Some(RetryMessage::AfterNs(wait)) => (1, wait),
        Some(RetryMessage::OnRelease) => (2, 0),
        Some(RetryMessage::Never) => (3, 0),
    };
    let mut longest = (0, (0, 0));
    for (index, outcome) in outcomes.iter().enumerate() {
        if order(&outcome.retry) > longest.1 {
            longest = (index, order(&outcome.retry));
        }
    }
    let retry = match longest.1 {
        (3, _) => None,
        (2, _) => Some(1_000),
        (_, wait) => Some(wait.div_ceil(NANOS_PER_MILLI)),
    };
    (longest.0, retry)
}

#[derive(Serialize)]
struct ConsumeAllowed {
    allowed: bool,
    remaining: u64,
}

#[derive(Serialize)]
struct ConsumeDenied {
    allowed: bool,
    remaining: u64,
    #[serde(rename = "retryAfterMs")]
    retry_after_ms: Option<u64>,
}

#[derive(Serialize)]
struct DecisionBody<'r> {
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by_index: Option<usize>,
    remaining: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reset_after_ms: Option<u64>,
    /// Null if the list never fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<Option<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<ReceiptMessage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    charges: Option<Vec<ChargeBody<'r>>>,
}

#[derive(Serialize)]
struct ChargeBody<'r> {
    limit: &'r str,
    remaining: u64,
    reset_after_ms: Option<u64>,
}

#[derive(Serialize)]
struct SettledBody<'r> {
    remaining: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reset_after_ms: Option<u64>,
    saturated: bool,
    dropped: bool,
    applied: &'r [i64],
}

#[derive(Serialize)]
struct HeldBody {
    held_ms: u64,
}

#[derive(Serialize)]
struct ResetBody {
    reset: bool,
}

#[derive(Serialize)]
struct SlotsBody {
    slots: u64,
}
