//! Settlement: refunds and later charges.

use smallvec::SmallVec;
use tidegate_core::decide::{self, EntrySettlement};
use tidegate_core::{
    BucketLocation, ChargeRecord, Now, Policy, Receipt, Settlement, State, StoreError,
    StoreResponse, Time,
};

use crate::error::RedisStoreError;
use crate::format::entry::Entry;
use crate::format::number::{MAX_NUMBER, Pair, Reader, put, put_time};
use crate::job::{Code, Job, OperationStatus};
use crate::operation::list_entry::{Found, List, ListEntry, Slots};
use crate::operation::{Context, ReplyOutcome};

/// The correction is a refund.
const REFUND: u8 = 1;
/// Two words of the record follow.
const STAMPED: u8 = 2;
/// There is a record, but it cannot be compared with the stored state.
const UNCOMPARABLE: u8 = 4;
/// The correction releases this many slots of a lease.
const SLOTS: u8 = 8;

/// Builds the job for the server.
pub(crate) fn job(
    list: &List<'_>,
    receipt: Option<&Receipt>,
    context: Context<'_>,
) -> Result<Job, RedisStoreError> {
    let mut job = Job::new(Code::Settle);
    put_time(receipt.map_or(Time::ZERO, Receipt::start), job.head());
    for (index, listed) in list.iter().enumerate() {
        let record = receipt.and_then(|receipt| list.record_of(index, receipt));
        let amount = listed.delta().unsigned_abs();
        let mut item = listed.item(context.names, amount, context.ttl)?;
        if uses_slots(listed, record) {
            item.other = Some(context.names.slots(&listed.target));
        }
        let (flags, words, lease) = encode_correction(listed, record);
        item.tail.push(flags);
        put(words[0], &mut item.tail);
        put(words[1], &mut item.tail);
        item.tail.extend(lease.to_le_bytes());
        job.push(item);
    }
    Ok(job)
}

/// Returns flags, words of the record, and the lease.
fn encode_correction(listed: &ListEntry<'_>, record: Option<&ChargeRecord>) -> (u8, [u64; 2], u64) {
    let refund = if listed.amount < 0 { REFUND } else { 0 };
    if uses_slots(listed, record) {
        return match record.map(|record| record.location) {
            Some(BucketLocation::Slot(lease)) if listed.amount < 0 => {
                (SLOTS, [listed.delta().unsigned_abs().min(MAX_NUMBER), 0], lease)
            }
            _ => (0, [0, 0], 0),
        };
    }
    let (flags, words) = match (record, listed.policy()) {
        (None, _) => (0, [0, 0]),
        (Some(record), Policy::Bucket(bucket)) => match record.state {
            State::Bucket(then) if record.generation == listed.history.stamp() => {
                let pair = Pair::instant(then, bucket);
                (STAMPED, [pair.us, pair.rest])
            }
            _ => (UNCOMPARABLE, [0, 0]),
        },
        (Some(record), _) => match record.state {
            State::Quota { ends, .. } => (STAMPED, [ends.into(), 0]),
            _ => (UNCOMPARABLE, [0, 0]),
        },
    };
    (refund | flags, words, 0)
}

/// Interprets the reply of the server.
pub(crate) fn interpret(
    list: &List<'_>,
    receipt: Option<&Receipt>,
    reader: &mut Reader<'_>,
    now: Now,
) -> Result<ReplyOutcome, StoreError> {
    let status = list.status(reader, now)?;
    if status == OperationStatus::Skipped {
        return Ok(ReplyOutcome::Retry);
    }
    let mut found: SmallVec<[Found; 2]> = SmallVec::new();
    let mut released: SmallVec<[u64; 2]> = SmallVec::new();
    for (index, listed) in list.iter().enumerate() {
        let record = receipt.and_then(|receipt| list.record_of(index, receipt));
        let entry = Entry::read(reader)?;
        if uses_slots(listed, record) {
            let taken = reader.number()?;
            found.push(Found { entry, slots: Some(Slots { taken, free_at: None }) });
            released.push(reader.number()?);
        } else {
            found.push(Found { entry, slots: None });
            released.push(0);
        }
    }
    if status == OperationStatus::Stale {
        // Nothing was done, so it can be retried.
        return Ok(match list.newer_policy(&found) {
            Some((index, number)) => ReplyOutcome::Learn(index, number),
            None => ReplyOutcome::Convert(found),
        });
    }
    let settlement = settlement(list, receipt, &mut found, &released, now)?;
    Ok(ReplyOutcome::Done(StoreResponse::Settled(settlement)))
}

/// Computes the settlement that the script has made, from the state before it.
fn settlement(
    list: &List<'_>,
    receipt: Option<&Receipt>,
    found: &mut [Found],
    released: &[u64],
    now: Now,
) -> Result<Settlement, StoreError> {
    for (listed, found) in list.iter().zip(&mut *found) {
        // Slots of a limit whose kind has changed are not part of its account.
        found.slots = found.slots.filter(|_| listed.has_slots());
    }
    let mut accounts = list.accounts(found, now)?;
    let mut results: SmallVec<[EntrySettlement; 2]> = SmallVec::new();
    for (index, (account, listed)) in accounts.iter_mut().zip(list.iter()).enumerate() {
        let record = receipt.and_then(|receipt| list.record_of(index, receipt));
        results.push(if uses_slots(listed, record) {
            slots_released(listed, record, released[index])
        } else {
            let spend = record.zip(receipt.map(Receipt::start));
            account.settle(listed.delta(), spend, listed.history.stamp(), now)
        });
    }
    Ok(decide::settlement(&accounts, &results, list.order(), now))
}

/// Slots are released by their lease, whatever kind the limit has now.
fn uses_slots(listed: &ListEntry<'_>, record: Option<&ChargeRecord>) -> bool {
    listed.has_slots()
        || matches!(record, Some(ChargeRecord { location: BucketLocation::Slot(_), .. }))
}

fn slots_released(
    listed: &ListEntry<'_>,
    record: Option<&ChargeRecord>,
    released: u64,
) -> EntrySettlement {
    match record.map(|record| record.location) {
        Some(BucketLocation::Slot(_)) if listed.amount < 0 => {
            EntrySettlement::slots_released(released)
        }
        _ => EntrySettlement::without_effect(listed.delta()),
    }
}
