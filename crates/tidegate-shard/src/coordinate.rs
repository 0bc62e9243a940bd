//! Operations whose keys are in several shards.
//!
//! A take first asks all shards whether the list fits. If it does, the shards are charged one after
//! the other, in ascending order. If one of them denies nevertheless, because another caller was
//! faster, those charged before give it back. What is promised:
//!
//! - No limit is ever exceeded: every charge is granted by the shard that has the bucket.
//! - A denial leaves nothing spent. Until it is returned, other callers may be denied for tokens
//!   that are about to be given back.
//! - If the coordinator or a shard fails between the charge and the refund, the charge stays, and
//!   the caller gets an error. Nothing is sent twice, so a refund is not repeated.
//! - A settlement is applied shard by shard. If one refuses it, the others have applied their part.
//!
//! A reservation first asks all shards when it could start, then reserves everywhere from the latest
//! of these instants. If another caller is faster, it starts over, at most [`ATTEMPTS`] times.
//! Refunds of reservations leave out what later ones already depend on, as everywhere.
//!
//! [`advance`] is a pure function of the operations and of all replies so far, so that the caller
//! keeps no state but the replies.

mod histories;
mod merge;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use tidegate_core::{Receipt, decide};

use crate::message::{
    Batch, ChargeMessage, CorrectionMessage, ErrorMessage, FORMAT, OperationMessage,
    OutcomeMessage, ReceiptMessage, Replies, ReplyMessage, TargetMessage,
};
use crate::route::shard_of;
use histories::{send_histories_once, with_all_histories};
use merge::{
    Merged, common_start, denied, lost, merge_charged, merge_peeked, part_of, peeks, pick,
    read_receipt, refunded, refunds,
};

/// How often a reservation is tried while others reserve the same buckets.
pub const ATTEMPTS: usize = 3;

/// A batch for one shard.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The shard.
    pub shard: u32,
    /// Its operations.
    pub batch: Batch,
}

/// What a shard replied, or why it did not.
pub type CallResult = Result<Replies, ErrorMessage>;

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum CoordinatorStep {
    /// Send these calls, concurrently, and add their results as another round.
    Send(Vec<Call>),
    /// The replies, one per operation of the batch.
    Done(Vec<ReplyMessage>),
}

/// Returns what to do after these rounds of calls.
#[must_use]
pub fn advance(batch: &Batch, shards: u32, rounds: &[Vec<CallResult>]) -> CoordinatorStep {
    let mut exchange = Exchange { node: batch.node, shards, rounds };
    let mut replies = Vec::with_capacity(batch.operations.len());
    for operation in &batch.operations {
        match exchange.execute(operation) {
            Ok(reply) => replies.push(reply),
            Err(Pending(calls)) => return CoordinatorStep::Send(calls),
        }
    }
    CoordinatorStep::Done(replies)
}

/// Calls whose results are not there yet.
struct Pending(Vec<Call>);

/// The calls so far. Each round of calls takes the results of the next recorded round.
struct Exchange<'r> {
    node: Option<u64>,
    shards: u32,
    rounds: &'r [Vec<CallResult>],
}

/// The part of a list in one shard.
struct ListPart {
    shard: u32,
    /// Indices in the list.
    items: Vec<usize>,
}

/// Operations for the shard of a part.
type PartCall<'p> = (&'p ListPart, Vec<OperationMessage>);

/// The time of a shard and its replies, one per operation.
type PartResult = Result<(u64, Vec<ReplyMessage>), ErrorMessage>;

/// A part that was charged.
struct ChargedPart<'p> {
    part: &'p ListPart,
    receipt: Option<Receipt>,
    outcomes: Vec<OutcomeMessage>,
    /// When the charge takes effect.
    start_ns: u64,
    wait_ns: u64,
}

/// What a shard replied to a peek.
struct PeekedPart {
    fits: bool,
    /// If it fits, after spending; otherwise the present state and the waits.
    outcomes: Vec<OutcomeMessage>,
    /// The present state.
    present: Vec<OutcomeMessage>,
    now_ns: u64,
}

impl Exchange<'_> {
    fn execute(&mut self, operation: &OperationMessage) -> Result<ReplyMessage, Pending> {
        // Each shard checks its part only.
        let keys: Vec<_> = operation.targets().map(TargetMessage::key).collect();
        if let Err(error) = decide::check_list(keys) {
            return Ok(ReplyMessage::Error(ErrorMessage::new(&error.into())));
        }
        let parts = self.parts(operation);
        if let [part] = parts.as_slice() {
            let result = self.send(alloc::vec![(part, alloc::vec![operation.clone()])])?;
            return Ok(result.into_iter().next().map_or_else(lost, |result| match result {
                Ok((_, mut replies)) => replies.pop().unwrap_or_else(lost),
                Err(error) => ReplyMessage::Error(error),
            }));
        }
        // Every shard needs the histories, wherever in the list they were sent.
        let operation = &with_all_histories(operation);
        match operation {
            OperationMessage::Take { charges } => self.take(&parts, charges),
            OperationMessage::Peek { charges, for_take } => {
                let peeked = self.peek(&parts, charges, *for_take)?;
                Ok(peeked.map_or_else(ReplyMessage::Error, |peeked| merge_peeked(&parts, &peeked)))
            }
            OperationMessage::Reserve { charges, horizon_ns, not_before_ns } => {
                self.reserve(&parts, charges, *horizon_ns, *not_before_ns)
            }
            OperationMessage::Settle { corrections, receipt } => {
                self.settle(&parts, corrections, receipt.as_ref())
            }
            OperationMessage::Release { targets, receipt } => {
                self.slots(&parts, receipt, targets.len(), |items, receipt| {
                    let targets = pick(targets, items);
                    OperationMessage::Release { targets, receipt }
                })
            }
            OperationMessage::Renew { targets, receipt } => {
                self.slots(&parts, receipt, targets.len(), |items, receipt| {
                    let targets = pick(targets, items);
                    OperationMessage::Renew { targets, receipt }
                })
            }
            // These have one target, or none.
            OperationMessage::Hold { .. } | OperationMessage::Reset { .. } => Ok(lost()),
        }
    }

    /// Returns the parts of an operation, in the order of their shards.
    fn parts(&self, operation: &OperationMessage) -> Vec<ListPart> {
        let mut parts: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (index, target) in operation.targets().enumerate() {
            parts.entry(shard_of(target.key(), self.shards)).or_default().push(index);
        }
        parts.into_iter().map(|(shard, items)| ListPart { shard, items }).collect()
    }

    /// Returns the results of these calls: the time of the shard, and one reply per operation.
    fn send(&mut self, calls: Vec<PartCall<'_>>) -> Result<Vec<PartResult>, Pending> {
        let Some((round, later)) = self.rounds.split_first() else {
            let node = self.node;
            let call = |(part, mut operations): PartCall<'_>| {
                send_histories_once(&mut operations);
                Call { shard: part.shard, batch: Batch { format: FORMAT, node, operations } }
            };
            return Err(Pending(calls.into_iter().map(call).collect()));
        };
        self.rounds = later;
        let mut results = round.iter().cloned();
        let result = |(part, operations): &PartCall<'_>| match results.next() {
            Some(Ok(all)) if all.replies.len() == operations.len() => {
                let reply = |reply| match reply {
                    ReplyMessage::Error(error) => ReplyMessage::Error(error.of_part(part)),
                    other => other,
                };
                Ok((all.now_ns, all.replies.into_iter().map(reply).collect()))
            }
            Some(Err(error)) => Err(error.of_part(part)),
            _ => {
                Err(ErrorMessage::Unavailable("the reply has another length".into()).of_part(part))
            }
        };
        Ok(calls.iter().map(result).collect())
    }

    fn take(
        &mut self,
        parts: &[ListPart],
        charges: &[ChargeMessage],
    ) -> Result<ReplyMessage, Pending> {
        match self.peek(parts, charges, true)? {
            Ok(peeked) if peeked.iter().all(|part| part.fits) => {}
            Ok(peeked) => return Ok(denied(parts, &peeked, charges.len())),
            Err(error) => return Ok(ReplyMessage::Error(error)),
        }
        let operation =
            |part: &ListPart| OperationMessage::Take { charges: pick(charges, &part.items) };
        match self.charge(parts, charges, operation)? {
            Ok(charged) => Ok(merge_charged(&charged, charges.len())),
            Err(reply) => Ok(reply),
        }
    }

    /// Charges the parts one after the other. If one of them denies or fails, gives back the others
    /// and returns the reply.
    fn charge<'p>(
        &mut self,
        parts: &'p [ListPart],
        charges: &[ChargeMessage],
        operation: impl Fn(&ListPart) -> OperationMessage,
    ) -> Result<Result<Vec<ChargedPart<'p>>, ReplyMessage>, Pending> {
        let mut charged: Vec<ChargedPart<'p>> = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            let mut result = self.send(alloc::vec![(part, alloc::vec![operation(part)])])?;
            let reply = match result.pop() {
                Some(Ok((now_ns, mut replies))) => replies.pop().map(|reply| (now_ns, reply)),
                Some(Err(error)) => Some((0, ReplyMessage::Error(error))),
                None => None,
            };
            match reply.unwrap_or_else(|| (0, lost())) {
                (now_ns, ReplyMessage::Allowed { wait_ns, receipt, outcomes }) => {
                    let receipt = receipt.and_then(|receipt| receipt.to_receipt().ok());
                    let start_ns = now_ns.saturating_add(wait_ns);
                    charged.push(ChargedPart { part, receipt, outcomes, start_ns, wait_ns });
                }
                (_, ReplyMessage::Denied { outcomes }) => {
                    let later = &parts[index + 1..];
                    let denied = (part, outcomes);
                    return self.undo_denied(&charged, denied, later, charges).map(Err);
                }
                (_, other) => {
                    let _ = self.send(refunds(&charged, charges))?;
                    return Ok(Err(other));
                }
            }
        }
        Ok(Ok(charged))
    }

    /// Gives back what was charged and asks the parts that were not asked, so that the denial
    /// reports all charges.
    fn undo_denied(
        &mut self,
        charged: &[ChargedPart<'_>],
        (denied, outcomes): (&ListPart, Vec<OutcomeMessage>),
        later: &[ListPart],
        charges: &[ChargeMessage],
    ) -> Result<ReplyMessage, Pending> {
        let mut calls = refunds(charged, charges);
        calls.extend(later.iter().map(|part| (part, peeks(part, charges, true))));
        let mut results = self.send(calls)?.into_iter();
        let mut merged = Merged::new(charges.len());
        merged.set(&denied.items, &outcomes);
        for (charged, result) in charged.iter().zip(results.by_ref()) {
            match refunded(result) {
                Ok(outcomes) => merged.set(&charged.part.items, &outcomes),
                Err(error) => return Ok(ReplyMessage::Error(error)),
            }
        }
        for (part, result) in later.iter().zip(results) {
            // A part that was not charged owes nothing; without a reply its outcome is unknown.
            if let Ok(peeked) = PeekedPart::read(result) {
                merged.set(&part.items, &peeked.present);
            }
        }
        Ok(ReplyMessage::Denied { outcomes: merged.outcomes() })
    }

    /// Asks every part what a take would answer, and for its present state.
    fn peek(
        &mut self,
        parts: &[ListPart],
        charges: &[ChargeMessage],
        for_take: bool,
    ) -> Result<Result<Vec<PeekedPart>, ErrorMessage>, Pending> {
        let calls = parts.iter().map(|part| (part, peeks(part, charges, for_take))).collect();
        Ok(self.send(calls)?.into_iter().map(PeekedPart::read).collect())
    }

    fn reserve(
        &mut self,
        parts: &[ListPart],
        charges: &[ChargeMessage],
        horizon_ns: u64,
        not_before_ns: u64,
    ) -> Result<ReplyMessage, Pending> {
        let mut denial = lost();
        for _ in 0..ATTEMPTS {
            let peeked = match self.peek(parts, charges, true)? {
                Ok(peeked) => peeked,
                Err(error) => return Ok(ReplyMessage::Error(error)),
            };
            denial = denied(parts, &peeked, charges.len());
            let Some(start_ns) = common_start(&peeked, horizon_ns, not_before_ns) else {
                return Ok(denial);
            };
            let operation = |part: &ListPart| OperationMessage::Reserve {
                charges: pick(charges, &part.items),
                horizon_ns,
                not_before_ns: start_ns,
            };
            let charged = match self.charge(parts, charges, operation)? {
                Ok(charged) => charged,
                Err(reply) => return Ok(reply),
            };
            let together =
                |charged: &ChargedPart<'_>| charged.wait_ns == 0 || charged.start_ns <= start_ns;
            if charged.iter().all(together) {
                return Ok(merge_charged(&charged, charges.len()));
            }
            for result in self.send(refunds(&charged, charges))? {
                if let Err(error) = refunded(result) {
                    return Ok(ReplyMessage::Error(error));
                }
            }
        }
        Ok(denial)
    }

    fn settle(
        &mut self,
        parts: &[ListPart],
        corrections: &[CorrectionMessage],
        receipt: Option<&ReceiptMessage>,
    ) -> Result<ReplyMessage, Pending> {
        let receipt = match receipt.map(|text| read_receipt(text, corrections.len())).transpose() {
            Ok(receipt) => receipt,
            Err(error) => return Ok(ReplyMessage::Error(error)),
        };
        let operation = |part: &ListPart| OperationMessage::Settle {
            corrections: pick(corrections, &part.items),
            receipt: receipt.as_ref().map(|receipt| part_of(receipt, &part.items)),
        };
        let calls = parts.iter().map(|part| (part, alloc::vec![operation(part)])).collect();
        let results = self.send(calls)?;
        let mut merged = Merged::new(corrections.len());
        let mut all_applied = alloc::vec![0; corrections.len()];
        let (mut all_saturated, mut all_dropped) = (0, 0);
        for (part, result) in parts.iter().zip(results) {
            match result.map(|(_, mut replies)| replies.pop()) {
                Ok(Some(ReplyMessage::Settled { saturated, dropped, applied, outcomes })) => {
                    merged.set(&part.items, &outcomes);
                    all_saturated += saturated;
                    all_dropped += dropped;
                    for (&index, applied) in part.items.iter().zip(applied) {
                        all_applied[index] = applied;
                    }
                }
                Ok(Some(other)) => return Ok(other),
                Ok(None) => return Ok(lost()),
                Err(error) => return Ok(ReplyMessage::Error(error)),
            }
        }
        Ok(ReplyMessage::Settled {
            saturated: all_saturated,
            dropped: all_dropped,
            applied: all_applied,
            outcomes: merged.outcomes(),
        })
    }

    fn slots(
        &mut self,
        parts: &[ListPart],
        receipt: &ReceiptMessage,
        count: usize,
        operation: impl Fn(&[usize], ReceiptMessage) -> OperationMessage,
    ) -> Result<ReplyMessage, Pending> {
        let receipt = match read_receipt(receipt, count) {
            Ok(receipt) => receipt,
            Err(error) => return Ok(ReplyMessage::Error(error)),
        };
        let mut calls: Vec<PartCall<'_>> = Vec::with_capacity(parts.len());
        for part in parts {
            let operation = operation(&part.items, part_of(&receipt, &part.items));
            calls.push((part, alloc::vec![operation]));
        }
        let mut sum = 0_u64;
        for result in self.send(calls)? {
            match result.map(|(_, mut replies)| replies.pop()) {
                Ok(Some(ReplyMessage::Slots(slots))) => sum = sum.saturating_add(slots),
                Ok(Some(other)) => return Ok(other),
                Ok(None) => return Ok(lost()),
                Err(error) => return Ok(ReplyMessage::Error(error)),
            }
        }
        Ok(ReplyMessage::Slots(sum))
    }
}
