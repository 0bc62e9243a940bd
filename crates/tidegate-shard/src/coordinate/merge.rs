//! Parts of a list: what each shard is sent, and how their replies become one.

use alloc::vec::Vec;

use tidegate_core::{Receipt, ReceiptError, Time};

use super::{ChargedPart, ListPart, PartCall, PartResult, PeekedPart};
use crate::message::{
    ChargeMessage, CorrectionMessage, ErrorMessage, OperationMessage, OutcomeMessage,
    ReceiptMessage, ReplyMessage, RetryMessage,
};

/// Outcomes of a list, gathered from its parts.
pub(super) struct Merged(Vec<OutcomeMessage>);

impl Merged {
    pub(super) fn new(count: usize) -> Self {
        let unknown = OutcomeMessage { capacity: 0, remaining: 0, reset_ns: None, retry: None };
        Self(alloc::vec![unknown; count])
    }

    pub(super) fn set(&mut self, items: &[usize], outcomes: &[OutcomeMessage]) {
        for (&index, outcome) in items.iter().zip(outcomes) {
            self.0[index] = *outcome;
        }
    }

    pub(super) fn outcomes(self) -> Vec<OutcomeMessage> {
        self.0
    }
}

pub(super) fn pick<T: Clone>(items: &[T], indices: &[usize]) -> Vec<T> {
    indices.iter().filter_map(|&index| items.get(index).cloned()).collect()
}

/// A peek at what a take would answer, and one at the present state.
pub(super) fn peeks(
    part: &ListPart,
    charges: &[ChargeMessage],
    for_take: bool,
) -> Vec<OperationMessage> {
    let charges = pick(charges, &part.items);
    let free = charges.iter().map(|charge| ChargeMessage { cost: 0, ..charge.clone() }).collect();
    alloc::vec![
        OperationMessage::Peek { charges, for_take },
        OperationMessage::Peek { charges: free, for_take: false },
    ]
}

pub(super) fn refunds<'p>(
    charged: &[ChargedPart<'p>],
    charges: &[ChargeMessage],
) -> Vec<PartCall<'p>> {
    let refund = |charged: &ChargedPart<'p>| {
        let corrections = pick(charges, &charged.part.items).into_iter().map(|charge| {
            let delta = i64::try_from(charge.cost).map_or(i64::MIN, |cost| -cost);
            CorrectionMessage { on: charge.on, delta }
        });
        let receipt = charged.receipt.as_ref().map(ReceiptMessage::new);
        let settle = OperationMessage::Settle { corrections: corrections.collect(), receipt };
        (charged.part, alloc::vec![settle])
    };
    charged.iter().map(refund).collect()
}

/// Returns the outcomes of a refund. Any other reply is an error: the charge may have stayed.
pub(super) fn refunded(result: PartResult) -> Result<Vec<OutcomeMessage>, ErrorMessage> {
    match result?.1.pop() {
        Some(ReplyMessage::Settled { outcomes, .. }) => Ok(outcomes),
        Some(ReplyMessage::Error(error)) => Err(error),
        _ => Err(wrong_kind()),
    }
}

impl PeekedPart {
    /// Reads the replies to [`peeks`].
    pub(super) fn read(result: PartResult) -> Result<Self, ErrorMessage> {
        let (now_ns, replies) = result?;
        match <[ReplyMessage; 2]>::try_from(replies) {
            Ok([ReplyMessage::Denied { outcomes }, _]) => {
                Ok(Self { fits: false, present: outcomes.clone(), outcomes, now_ns })
            }
            Ok(
                [
                    ReplyMessage::Allowed { outcomes, .. },
                    ReplyMessage::Allowed { outcomes: present, .. },
                ],
            ) => Ok(Self { fits: true, present, outcomes, now_ns }),
            Ok([ReplyMessage::Error(error), _]) => Err(error),
            _ => Err(wrong_kind()),
        }
    }
}

fn wrong_kind() -> ErrorMessage {
    ErrorMessage::Unavailable("a shard returned a reply of the wrong kind".into())
}

/// Returns when all parts can start, in nanoseconds since the Unix epoch; zero for at once. `None`
/// if that is not known or too late.
pub(super) fn common_start(
    peeked: &[PeekedPart],
    horizon_ns: u64,
    not_before_ns: u64,
) -> Option<u64> {
    let mut start = not_before_ns;
    for part in peeked.iter().filter(|part| !part.fits) {
        for outcome in &part.outcomes {
            match outcome.retry {
                None => {}
                Some(RetryMessage::AfterNs(wait)) if wait <= horizon_ns => {
                    start = start.max(part.now_ns.saturating_add(wait));
                }
                Some(_) => return None,
            }
        }
    }
    Some(start)
}

pub(super) fn denied(parts: &[ListPart], peeked: &[PeekedPart], count: usize) -> ReplyMessage {
    let mut merged = Merged::new(count);
    for (part, peeked) in parts.iter().zip(peeked) {
        merged.set(&part.items, &peeked.present);
    }
    ReplyMessage::Denied { outcomes: merged.outcomes() }
}

pub(super) fn merge_peeked(parts: &[ListPart], peeked: &[PeekedPart]) -> ReplyMessage {
    let count = parts.iter().map(|part| part.items.len()).sum();
    if !peeked.iter().all(|part| part.fits) {
        return denied(parts, peeked, count);
    }
    let mut merged = Merged::new(count);
    for (part, peeked) in parts.iter().zip(peeked) {
        merged.set(&part.items, &peeked.outcomes);
    }
    ReplyMessage::Allowed { wait_ns: 0, receipt: None, outcomes: merged.outcomes() }
}

/// Merges the grants of all parts, and their receipts.
pub(super) fn merge_charged(charged: &[ChargedPart<'_>], count: usize) -> ReplyMessage {
    let mut merged = Merged::new(count);
    let mut records = alloc::vec![None; count];
    let (mut wait_ns, mut start, mut issuer) = (0, Time::ZERO, 0);
    for one in charged {
        merged.set(&one.part.items, &one.outcomes);
        wait_ns = wait_ns.max(one.wait_ns);
        if let Some(receipt) = &one.receipt {
            start = start.max(receipt.start());
            issuer = receipt.issuer();
            for (&index, record) in one.part.items.iter().zip(receipt.charges()) {
                records[index] = Some(*record);
            }
        }
    }
    let records: Option<Vec<_>> = records.into_iter().collect();
    let receipt = records.map(|records| ReceiptMessage::new(&Receipt::new(issuer, start, records)));
    ReplyMessage::Allowed { wait_ns, receipt, outcomes: merged.outcomes() }
}

pub(super) fn read_receipt(text: &ReceiptMessage, count: usize) -> Result<Receipt, ErrorMessage> {
    let receipt = text.to_receipt().and_then(|receipt| {
        let matches = receipt.charges().len() == count;
        if matches { Ok(receipt) } else { Err(ReceiptError::Mismatch) }
    });
    receipt.map_err(|error| ErrorMessage::new(&error.into()))
}

pub(super) fn part_of(receipt: &Receipt, items: &[usize]) -> ReceiptMessage {
    let records = pick(receipt.charges(), items);
    ReceiptMessage::new(&Receipt::new(receipt.issuer(), receipt.start(), records))
}

pub(super) fn lost() -> ReplyMessage {
    ReplyMessage::Error(ErrorMessage::Unavailable("a shard returned no reply".into()))
}

impl ErrorMessage {
    /// Translates the error of a part: the index of a charge becomes that in the complete list, and
    /// an error without a kind of its own names the shard.
    pub(super) fn of_part(&self, part: &ListPart) -> Self {
        let shard = part.shard;
        let index = |index: usize| part.items.get(index).copied().unwrap_or(index);
        match self {
            Self::NoWindows(charge) => Self::NoWindows(index(*charge)),
            Self::OtherWindows(charge) => Self::OtherWindows(index(*charge)),
            Self::Rejected(reason) => Self::Rejected(alloc::format!("shard {shard}: {reason}")),
            Self::Unavailable(reason) => {
                Self::Unavailable(alloc::format!("shard {shard}: {reason}"))
            }
            other => other.clone(),
        }
    }
}
