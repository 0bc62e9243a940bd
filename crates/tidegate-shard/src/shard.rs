//! Executes operations on the buckets of one shard.
//!
//! The object that runs a shard executes one request at a time and lends it its storage, so nothing
//! here locks or waits. An operation reads its buckets, decides with the core, and writes those that
//! changed.

mod list;

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use smallvec::SmallVec;
use tidegate_core::decide::{self, DecisionMode, EntrySettlement};
use tidegate_core::{
    BucketLocation, Decision, Denial, Grant, MAX_SPAN, Now, Policy, Receipt, ReceiptError,
    Settlement, State, StoreError, StoreResponse, Time, hash,
};

use crate::entry::{Entry, MAX_LEASES};
use crate::history::History;
use crate::message::{
    Batch, ChargeMessage, CorrectionMessage, FORMAT, LimitMessage, OperationMessage,
    ReceiptMessage, Replies, ReplyMessage, TargetMessage, time,
};
use list::{List, ListEntry, rejected};

/// Issuer of the receipts of all shards. Which shard, and which of its lives, is part of the bucket
/// number in the record.
const ISSUER: u64 = 0x7469_6465_646f_2d31;
/// Name of the record with the number of this shard. No limit has an empty name.
const SHARD_NUMBER: &str = "";
/// Number of policy histories kept in memory between operations.
const MAX_CACHED: usize = 1_024;

/// The two tables of a shard's storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Buckets.
    Buckets,
    /// Policy histories of limits.
    Limits,
}

/// Storage of a shard. An error of the storage must end the operation and undo its writes.
pub trait Storage {
    /// Returns a value.
    fn read(&mut self, table: Table, key: &str) -> Option<Vec<u8>>;
    /// Writes a value. `full_at` is when it may be forgotten, in milliseconds since the Unix epoch;
    /// `None` keeps it.
    fn write(&mut self, table: Table, key: &str, value: &[u8], full_at: Option<u64>);
    /// Removes a value.
    fn remove(&mut self, table: Table, key: &str);
}

/// One shard.
#[derive(Debug)]
pub struct Shard<S> {
    storage: S,
    /// Histories read so far, and whether they are stored.
    histories: BTreeMap<String, (Rc<History>, bool)>,
    /// Random number that tells shards apart; zero until it is known.
    number: u64,
    /// Source of numbers that no other instance of the shard uses.
    seed: u64,
}

/// Whether leases are released or renewed.
#[derive(Clone, Copy)]
enum LeaseAction {
    Release,
    Renew,
}

impl<S: Storage> Shard<S> {
    /// Creates a shard on its storage. The seed is a random number: ids of slot leases are derived
    /// from it, and must differ from those of earlier instances on the same storage.
    pub const fn new(storage: S, seed: u64) -> Self {
        Self { storage, histories: BTreeMap::new(), number: 0, seed }
    }

    /// Returns the storage.
    pub const fn storage(&mut self) -> &mut S {
        &mut self.storage
    }

    /// Executes the operations of a batch, in order.
    #[must_use]
    pub fn run(&mut self, batch: &Batch, now: Now) -> Replies {
        let operations = batch.operations.iter();
        let replies = operations
            .map(|operation| ReplyMessage::new(&self.execute(batch.node, operation, now)))
            .collect();
        Replies { format: FORMAT, now_ns: now.time.as_nanos(), replies }
    }

    /// Executes one operation of the client `node`.
    ///
    /// # Errors
    /// If the operation is invalid, or the storage has a value of another format.
    pub fn execute(
        &mut self,
        node: Option<u64>,
        operation: &OperationMessage,
        now: Now,
    ) -> Result<StoreResponse, StoreError> {
        // Not in the middle of an operation: what is not stored yet is written from here.
        if self.histories.len() > MAX_CACHED {
            self.histories.clear();
        }
        let decision = |decision| StoreResponse::Decision(decision);
        match operation {
            OperationMessage::Take { charges } => {
                self.decide(node, charges, DecisionMode::Take, Time::ZERO, now).map(decision)
            }
            OperationMessage::Peek { charges, for_take } => {
                if *for_take {
                    self.convert(node, charges, now)?;
                }
                self.decide(node, charges, DecisionMode::Peek, Time::ZERO, now).map(decision)
            }
            OperationMessage::Reserve { charges, horizon_ns, not_before_ns } => {
                let mode = DecisionMode::Reserve(Duration::from_nanos(*horizon_ns));
                self.decide(node, charges, mode, time(*not_before_ns), now).map(decision)
            }
            OperationMessage::Settle { corrections, receipt } => {
                let receipt = receipt.as_ref().map(ReceiptMessage::to_receipt).transpose()?;
                let settled = self.settle(node, corrections, receipt.as_ref(), now);
                settled.map(StoreResponse::Settled)
            }
            OperationMessage::Release { targets, receipt } => {
                let receipt = receipt.to_receipt()?;
                let slots = self.update_leases(node, targets, &receipt, LeaseAction::Release, now);
                slots.map(StoreResponse::Slots)
            }
            OperationMessage::Renew { targets, receipt } => {
                let receipt = receipt.to_receipt()?;
                let slots = self.update_leases(node, targets, &receipt, LeaseAction::Renew, now);
                slots.map(StoreResponse::Slots)
            }
            OperationMessage::Hold { target, span_ns } => {
                let held = self.hold(node, target, Duration::from_nanos(*span_ns), now.time);
                held.map(StoreResponse::HeldFor)
            }
            OperationMessage::Reset { target } => {
                let list = self.list(node, core::iter::once((target, 0)), now)?;
                let existed = list[0].bucket.stored.is_some();
                if existed {
                    self.storage.remove(Table::Buckets, &list[0].name);
                }
                Ok(StoreResponse::Reset(existed))
            }
        }
    }

    fn decide(
        &mut self,
        node: Option<u64>,
        charges: &[ChargeMessage],
        mode: DecisionMode,
        not_before: Time,
        now: Now,
    ) -> Result<Decision, StoreError> {
        let items = charges.iter().map(|charge| (&charge.on, i128::from(charge.cost)));
        let mut list = self.list(node, items, now)?;
        let is_full = |entry: &ListEntry| entry.has_slots() && entry.entry.leases() >= MAX_LEASES;
        if list.iter().any(|entry| entry.amount > 0 && is_full(entry)) {
            return Err(StoreError::Full);
        }
        let mut buckets = list.bucket_entries(now)?;
        let start = decide::earliest_start_from(&buckets, not_before, mode.horizon(), now);
        let Some(start) = start else {
            let outcomes = decide::denied_outcomes(&buckets, list.order(), now);
            if mode != DecisionMode::Peek {
                drop(buckets);
                self.write_converted(list, now)?;
            }
            return Ok(Decision::Denied(Denial::new(outcomes)));
        };
        decide::spend(&mut buckets, start, now);
        let outcomes = decide::granted_outcomes(&buckets, list.order(), now);
        if mode == DecisionMode::Peek {
            let grant = Grant::new(outcomes, Duration::ZERO, Receipt::default());
            return Ok(Decision::Allowed(grant));
        }
        let states: SmallVec<[State; 2]> =
            buckets.into_iter().map(|bucket| bucket.state()).collect();
        for (entry, &state) in list.iter_mut().zip(&states) {
            if entry.amount > 0 {
                self.spend(entry, state, now.time);
            }
        }
        let number = self.create_number();
        let record = |index: usize| list[index].record(number, states[index]);
        let receipt = Receipt::new(ISSUER, start, list.order().map(record));
        Ok(Decision::Allowed(Grant::new(outcomes, start.since(now.time), receipt)))
    }

    /// Converts the buckets of a list as a denied take does.
    fn convert(
        &mut self,
        node: Option<u64>,
        charges: &[ChargeMessage],
        now: Now,
    ) -> Result<(), StoreError> {
        let items = charges.iter().map(|charge| (&charge.on, i128::from(charge.cost)));
        let list = self.list(node, items, now)?;
        self.write_converted(list, now)
    }

    /// Writes buckets that a denied take changes: those that were converted to a changed policy, or
    /// repaired after the clock stepped back.
    fn write_converted(&mut self, mut list: List, now: Now) -> Result<(), StoreError> {
        for (index, state) in list.states_after_denial(now)? {
            list[index].set_state(state);
            self.write(&list[index]);
        }
        Ok(())
    }

    /// Writes a bucket that was charged.
    fn spend(&mut self, entry: &mut ListEntry, state: State, now: Time) {
        if let Policy::Concurrency(policy) = *entry.policy() {
            let (lease, slots) = (self.unique_number(), entry.cost());
            entry.lease = lease;
            entry.bucket.entry.acquire(lease, slots, policy.lease(), now);
        } else {
            entry.set_state(state);
        }
        entry.bucket.entry.drop_hold_before(now);
        self.write(entry);
    }

    fn settle(
        &mut self,
        node: Option<u64>,
        corrections: &[CorrectionMessage],
        receipt: Option<&Receipt>,
        now: Now,
    ) -> Result<Settlement, StoreError> {
        let items = corrections.iter().map(|correction| (&correction.on, correction.delta.into()));
        let mut list = self.list(node, items, now)?;
        if let Some(receipt) = receipt {
            self.check(receipt, &list)?;
        }
        let record_of = |list: &List, index| {
            receipt.and_then(|receipt| list.record_of(index, receipt).copied())
        };
        let mut released: SmallVec<[Option<u64>; 2]> = SmallVec::new();
        for index in 0..list.len() {
            let lease = match record_of(&list, index).map(|record| record.location) {
                Some(BucketLocation::Slot(lease)) => Some(lease),
                _ if list[index].has_slots() => None,
                _ => {
                    released.push(None);
                    continue;
                }
            };
            let delta = list[index].delta();
            let slots = lease.filter(|_| delta < 0);
            let entry = &mut list[index].bucket.entry;
            let slots = slots.map(|lease| entry.release(lease, delta.unsigned_abs()));
            released.push(Some(slots.unwrap_or(u64::MAX)));
        }
        let mut buckets = list.bucket_entries(now)?;
        let mut results: SmallVec<[EntrySettlement; 2]> = SmallVec::new();
        for (index, (bucket, entry)) in buckets.iter_mut().zip(list.iter()).enumerate() {
            let record = record_of(&list, index);
            let spend = record.as_ref().zip(receipt.map(Receipt::start));
            results.push(match released[index] {
                Some(u64::MAX) => EntrySettlement::without_effect(entry.delta()),
                Some(slots) => EntrySettlement::slots_released(slots),
                None => bucket.settle(entry.delta(), spend, entry.history.revision(), now),
            });
        }
        let settlement = decide::settlement(&buckets, &results, list.order(), now);
        let states: SmallVec<[State; 2]> =
            buckets.into_iter().map(|bucket| bucket.state()).collect();
        for (index, state) in states.into_iter().enumerate() {
            if list[index].amount == 0 {
                continue;
            }
            if released[index].is_none() {
                list[index].set_state(state);
            }
            self.write(&list[index]);
        }
        Ok(settlement)
    }

    fn update_leases(
        &mut self,
        node: Option<u64>,
        targets: &[TargetMessage],
        receipt: &Receipt,
        action: LeaseAction,
        now: Now,
    ) -> Result<u64, StoreError> {
        let mut list = self.list(node, targets.iter().map(|target| (target, 0)), now)?;
        self.check(receipt, &list)?;
        let mut slots = 0_u64;
        for index in 0..list.len() {
            let location = list.record_of(index, receipt).map(|record| record.location);
            let Some(BucketLocation::Slot(lease)) = location else { continue };
            let policy = *list[index].policy();
            let entry = &mut list[index].bucket.entry;
            // Slots are released even if the limit is no longer a concurrency limit.
            let updated = match (action, policy) {
                (LeaseAction::Release, _) => entry.release(lease, u64::MAX),
                (LeaseAction::Renew, Policy::Concurrency(policy)) => {
                    entry.renew(lease, policy.lease(), now.time)
                }
                (LeaseAction::Renew, _) => 0,
            };
            if updated > 0 {
                self.write(&list[index]);
            }
            slots = slots.saturating_add(updated);
        }
        Ok(slots)
    }

    fn hold(
        &mut self,
        node: Option<u64>,
        target: &TargetMessage,
        span: Duration,
        now: Time,
    ) -> Result<Duration, StoreError> {
        let mut list = self.list(node, core::iter::once((target, 0)), Now::at(now))?;
        let revision = list[0].history.revision();
        let until = now.after(span.min(MAX_SPAN));
        let until = list[0].bucket.entry.hold(until, revision, now);
        self.write(&list[0]);
        Ok(until.since(now))
    }

    /// Reads the buckets of a list.
    fn list<'m>(
        &mut self,
        node: Option<u64>,
        items: impl ExactSizeIterator<Item = (&'m TargetMessage, i128)> + Clone,
        now: Now,
    ) -> Result<List, StoreError> {
        decide::check_list(items.clone().map(|(target, _)| target.key()))?;
        let mut list = List::default();
        for (target, amount) in items {
            let history = self.history(node, &target.limit, now.time).map_err(rejected)?;
            list.add(target, amount, history).map_err(rejected)?;
        }
        for bucket in list.iter_mut() {
            bucket.stored = self.storage.read(Table::Buckets, &bucket.name);
            if let Some(value) = &bucket.stored {
                bucket.entry = Entry::decode(value).map_err(rejected)?;
                bucket.entry.expire(now.time);
            }
            bucket.effective = bucket.entry.effective_state(&bucket.history, now.time);
        }
        Ok(list)
    }

    /// Returns the history of a limit, with what is new in the message.
    fn history(
        &mut self,
        node: Option<u64>,
        message: &LimitMessage,
        now: Time,
    ) -> Result<Rc<History>, String> {
        let now_ns = now.as_nanos();
        let Some(name) = &message.name else { return History::inline(message).map(Rc::new) };
        if !self.histories.contains_key(name) {
            let (history, stored) = match self.storage.read(Table::Limits, name) {
                Some(value) if !name.is_empty() => (History::decode(name, &value)?, true),
                // Stored with the first bucket that is written under it.
                _ => (History::new(name, node, message, now_ns)?, false),
            };
            self.histories.insert(name.clone(), (Rc::new(history), stored));
        }
        let Some((history, stored)) = self.histories.get_mut(name) else {
            return Err("the policy history is lost".into());
        };
        if Rc::make_mut(history).learn(node, message, now_ns)? && *stored {
            self.storage.write(Table::Limits, name, &history.encode(), None);
        }
        Ok(history.clone())
    }

    /// Writes a bucket unless its stored value is the same, and the history of its limit if that is
    /// not stored yet.
    fn write(&mut self, entry: &ListEntry) {
        let value = entry.bucket.entry.encode();
        if value == entry.bucket.stored {
            return;
        }
        let limit = entry.history.limit();
        if let Some((history, stored)) = self.histories.get_mut(limit.identity())
            && !*stored
        {
            *stored = true;
            self.storage.write(Table::Limits, limit.identity(), &history.encode(), None);
        }
        match value {
            Some(value) => {
                let full_at = entry.bucket.entry.full_at(entry.policy());
                let full_at = full_at.map(|ns| ns.div_ceil(1_000_000));
                self.storage.write(Table::Buckets, &entry.name, &value, full_at);
            }
            None => self.storage.remove(Table::Buckets, &entry.name),
        }
    }

    /// Returns the number of this shard, zero if it has none yet.
    fn read_number(&mut self) -> u64 {
        if self.number == 0 {
            let stored = self.storage.read(Table::Limits, SHARD_NUMBER);
            let stored = stored.and_then(|value| value.try_into().ok());
            self.number = stored.map_or(0, u64::from_le_bytes);
        }
        self.number
    }

    /// Returns the number of this shard. A new one differs from that of an earlier life.
    fn create_number(&mut self) -> u64 {
        if self.read_number() == 0 {
            self.number = self.unique_number();
            self.storage.write(Table::Limits, SHARD_NUMBER, &self.number.to_le_bytes(), None);
        }
        self.number
    }

    /// Returns a number other than zero that was not returned before.
    fn unique_number(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(1);
        hash::mix(self.seed).max(1)
    }

    fn check(&mut self, receipt: &Receipt, list: &List) -> Result<(), ReceiptError> {
        let number = self.read_number();
        let buckets: SmallVec<[u64; 2]> =
            list.order().map(|index| list[index].number(number)).collect();
        receipt.check(ISSUER, buckets.into_iter())
    }
}
