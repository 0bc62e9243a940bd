//! A minimal store, one lock and one map around the core's decisions. It shows that the core agrees
//! with the oracle, and that a store can pass the suite.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::decide::EntrySettlement;
use tidegate_core::list::MergedList;
use tidegate_core::{
    BucketEntry, BucketLocation, Charge, ChargeError, ChargeRecord, Correction, Decision, Denial,
    Grant, Limit, Now, Operation, Outcomes, Policy, Receipt, ReceiptError, Settlement, State,
    Store, StoreError, StoreResponse, StoreResponses, Submission, Target, Time, WallTime, decide,
};
use tidegate_testkit::subject::{BoxFuture, Resolution, Subject};

type Id = (String, Option<String>, String);

#[derive(Clone, Copy, Debug)]
struct Lease {
    slots: u64,
    ends: Option<Time>,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    generation: u32,
    state: State,
    held_until: Time,
    hold_generation: u32,
    leases: BTreeMap<u64, Lease>,
}

impl Entry {
    /// Whether the hold expired under another revision, so that it is converted like tokens.
    fn hold_is_carried(&self, generation: u32, now: Now) -> bool {
        let held = self.held_until;
        held > Time::ZERO && held <= now.time && self.hold_generation != generation
    }

    fn drop_carried_hold(&mut self, generation: u32, now: Now) {
        if self.hold_is_carried(generation, now) {
            self.held_until = Time::ZERO;
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    entries: BTreeMap<Id, Entry>,
    /// The newest known revision of each limit.
    limits: BTreeMap<String, Limit>,
    numbers: BTreeMap<Id, u64>,
    leases: u64,
}

/// The store and its clock.
#[derive(Debug)]
pub(crate) struct PlainStore {
    issuer: u64,
    clock: AtomicU64,
    inner: Mutex<Inner>,
}

impl PlainStore {
    pub(crate) fn new() -> Self {
        static ISSUED: AtomicU64 = AtomicU64::new(1);
        let issuer = ISSUED.fetch_add(1, Ordering::Relaxed);
        Self { issuer, clock: AtomicU64::new(0), inner: Mutex::default() }
    }
}

impl Subject for PlainStore {
    fn store(&self) -> &dyn Store {
        self
    }

    fn resolution(&self) -> Resolution {
        Resolution::Ns
    }

    fn set_time(&self, nanos: u64) -> BoxFuture<'_, ()> {
        self.clock.store(nanos, Ordering::SeqCst);
        Box::pin(std::future::ready(()))
    }
}

impl Store for PlainStore {
    fn submit<'a>(
        &'a self,
        operations: &'a [Operation<'a>],
        answers: &'a mut StoreResponses,
    ) -> Submission<'a> {
        let mut inner = self.inner.lock().expect("no thread panicked in the store");
        for operation in operations {
            let nanos = self.clock.load(Ordering::SeqCst);
            let now = Now { time: Time::from_nanos(nanos), wall: WallTime::from_nanos(nanos) };
            answers.push(inner.answer(operation, self.issuer, now));
        }
        Submission::Ready
    }
}

impl Inner {
    fn answer(
        &mut self,
        operation: &Operation<'_>,
        issuer: u64,
        now: Now,
    ) -> Result<StoreResponse, StoreError> {
        match *operation {
            Operation::Take(charges) => self.decide(charges, Some(Duration::ZERO), issuer, now),
            Operation::Peek(charges) => self.decide(charges, None, issuer, now),
            Operation::Reserve { charges, horizon } => {
                self.decide(charges, Some(horizon), issuer, now)
            }
            Operation::Settle { corrections, receipt } => {
                self.settle(corrections, receipt, issuer, now)
            }
            Operation::Release { targets, receipt } => {
                self.each_lease(targets, receipt, issuer, now, |leases, id, _| {
                    leases.remove(&id).map_or(0, |lease| lease.slots)
                })
            }
            Operation::Renew { targets, receipt } => {
                self.each_lease(targets, receipt, issuer, now, |leases, id, ends| {
                    leases.get_mut(&id).map_or(0, |lease| {
                        lease.ends = ends;
                        lease.slots
                    })
                })
            }
            Operation::Hold { target, span } => {
                decide::check_list([target.key])?;
                let generation = self.newest(target.limit).generation();
                let entry = self.entries.entry(id(&target)).or_default();
                if entry.state == State::Fresh {
                    entry.generation = generation;
                }
                entry.held_until = entry.held_until.max(now.time.after(span));
                entry.hold_generation = generation;
                Ok(StoreResponse::HeldFor(entry.held_until.since(now.time)))
            }
            Operation::Reset { target } => {
                decide::check_list([target.key])?;
                let limit = self.newest(target.limit);
                let (state, held) = self.open(&id(&target), &limit, now);
                let mut account = BucketEntry::new(limit.policy(), state, held, 0);
                open_window(&mut account, &target, 0, now)?;
                let outcome = account.outcome(now, None);
                self.entries.remove(&id(&target));
                let forgot = outcome.remaining < outcome.capacity || held > now.time;
                Ok(StoreResponse::Reset(forgot))
            }
            _ => unreachable!("an operation that this store does not know"),
        }
    }

    /// Returns the newest revision of a limit; a caller with an older one adopts it.
    fn newest(&mut self, limit: &Limit) -> Limit {
        let known = self.limits.entry(limit.identity().to_owned()).or_insert_with(|| limit.clone());
        if known.generation() < limit.generation() {
            *known = limit.clone();
        }
        known.clone()
    }

    fn number(&mut self, id: &Id) -> u64 {
        let next = self.numbers.len() as u64;
        *self.numbers.entry(id.clone()).or_insert(next)
    }

    /// Returns the state of an entry under the newest revision, without expired slots.
    fn open(&mut self, id: &Id, limit: &Limit, now: Now) -> (State, Time) {
        let Some(entry) = self.entries.get_mut(id) else { return (State::Fresh, Time::ZERO) };
        entry.leases.retain(|_, lease| lease.ends.is_none_or(|ends| ends > now.time));
        let state = if entry.leases.is_empty() && !matches!(entry.state, State::Concurrency { .. })
        {
            entry.state.converted_to(limit, entry.generation, now.time)
        } else {
            let taken = entry.leases.values().map(|lease| lease.slots).sum();
            State::Concurrency { taken }
        };
        // A hold that expired under an older policy is converted like tokens.
        let held = entry.held_until;
        if entry.hold_is_carried(limit.generation(), now) {
            let reopened = State::after_hold(limit, entry.hold_generation, held, now.time);
            return (state.stricter(reopened), Time::ZERO);
        }
        (state, held)
    }

    fn decide(
        &mut self,
        charges: &[Charge<'_>],
        horizon: Option<Duration>,
        issuer: u64,
        now: Now,
    ) -> Result<StoreResponse, StoreError> {
        decide::check_list(charges.iter().map(|charge| charge.target.key))?;
        let limits: Vec<Limit> = charges.iter().map(|c| self.newest(c.target.limit)).collect();
        // Each bucket by its id, and its first charge.
        let mut list: MergedList<(Id, usize)> = MergedList::new();
        for (index, charge) in charges.iter().enumerate() {
            let id = id(&charge.target);
            list.add(charge.cost.into(), |(known, _)| *known == id, || (id.clone(), index));
        }
        let mut accounts = Vec::new();
        for entry in list.iter() {
            let (id, first) = &entry.bucket;
            let (state, held) = self.open(id, &limits[*first], now);
            let account = BucketEntry::new(limits[*first].policy(), state, held, entry.cost());
            let free = self.slots_free_in(id, limits[*first].policy(), entry.cost(), now);
            let mut account = account.slots_free_in(free);
            open_window(&mut account, &charges[*first].target, *first, now)?;
            accounts.push(account);
        }
        let indices = || list.order();
        let start = decide::earliest_start(&accounts, horizon.unwrap_or_default(), now);
        let Some(start) = start else {
            let denial = Denial::new(decide::denied_outcomes(&accounts, indices(), now));
            for (entry, account) in list.iter().zip(&mut accounts) {
                let (id, first) = &entry.bucket;
                let generation = limits[*first].generation();
                let behind = self.entries.get(id).is_some_and(|entry| {
                    entry.generation != generation || entry.hold_is_carried(generation, now)
                });
                let slots = account.concurrency().is_some();
                if horizon.is_some() && (account.repair(now) || behind) && !slots {
                    self.write(id, account, generation, now);
                }
            }
            return Ok(StoreResponse::Decision(Decision::Denied(denial)));
        };
        decide::spend(&mut accounts, start, now);
        let outcomes = decide::granted_outcomes(&accounts, indices(), now);
        let mut records = Vec::new();
        if horizon.is_some() {
            let mut locations = Vec::new();
            for (entry, account) in list.iter().zip(&accounts) {
                let (id, first) = &entry.bucket;
                locations.push(self.write(id, account, limits[*first].generation(), now));
            }
            for index in list.order() {
                let (id, first) = &list[index].bucket;
                records.push(ChargeRecord {
                    bucket: self.number(id),
                    location: locations[index],
                    generation: limits[*first].generation(),
                    state: accounts[index].state(),
                });
            }
        }
        let receipt = Receipt::new(issuer, start, records);
        let grant = Grant::new(outcomes, start.since(now.time), receipt);
        Ok(StoreResponse::Decision(Decision::Allowed(grant)))
    }

    fn slots_free_in(&self, id: &Id, policy: &Policy, cost: u64, now: Now) -> Option<Duration> {
        let leases = &self.entries.get(id)?.leases;
        let mut taken: u64 = leases.values().map(|lease| lease.slots).sum();
        let mut ends: Vec<_> =
            leases.values().filter_map(|lease| Some((lease.ends?, lease.slots))).collect();
        ends.sort_unstable();
        ends.into_iter().find_map(|(end, slots)| {
            taken -= slots;
            (taken.saturating_add(cost) <= policy.capacity()).then(|| end.since(now.time))
        })
    }

    fn write(
        &mut self,
        id: &Id,
        account: &BucketEntry<'_>,
        generation: u32,
        now: Now,
    ) -> BucketLocation {
        if account.cost() == 0 {
            return BucketLocation::Own;
        }
        let entry = self.entries.entry(id.clone()).or_default();
        entry.drop_carried_hold(generation, now);
        (entry.generation, entry.state) = (generation, account.state());
        let Some(concurrency) = account.concurrency() else { return BucketLocation::Own };
        self.leases += 1;
        let ends = concurrency.lease().map(|lease| now.time.after(lease));
        entry.leases.insert(self.leases, Lease { slots: account.cost(), ends });
        BucketLocation::Slot(self.leases)
    }

    fn check_receipt<'a>(
        &mut self,
        receipt: &Receipt,
        targets: impl ExactSizeIterator<Item = &'a Target<'a>>,
        issuer: u64,
    ) -> Result<(), ReceiptError> {
        receipt.check(issuer, targets.map(|target| self.number(&id(target))))
    }

    fn settle(
        &mut self,
        corrections: &[Correction<'_>],
        receipt: Option<&Receipt>,
        issuer: u64,
        now: Now,
    ) -> Result<StoreResponse, StoreError> {
        decide::check_list(corrections.iter().map(|correction| correction.target.key))?;
        if let Some(receipt) = receipt {
            self.check_receipt(receipt, corrections.iter().map(|c| &c.target), issuer)?;
        }
        let (mut outcomes, mut saturated, mut dropped) = (Outcomes::new(), 0, 0);
        let mut applied = Vec::new();
        for (index, correction) in corrections.iter().enumerate() {
            let limit = self.newest(correction.target.limit);
            let id = id(&correction.target);
            let (state, held) = self.open(&id, &limit, now);
            let mut account = BucketEntry::new(limit.policy(), state, held, 0);
            open_window(&mut account, &correction.target, index, now)?;
            let spend = receipt.map(|receipt| (&receipt.charges()[index], receipt.start()));
            let settled = if account.concurrency().is_some() {
                let settled =
                    self.give_slots_back(&id, correction.delta, spend.map(|spend| spend.0));
                if let (State::Concurrency { taken }, _) = self.open(&id, &limit, now) {
                    account.set_taken(taken);
                }
                settled
            } else {
                account.settle(correction.delta, spend, limit.generation(), now)
            };
            saturated += usize::from(settled.saturated);
            dropped += usize::from(settled.dropped);
            applied.push(settled.applied);
            outcomes.push(account.outcome(now, None));
            let entry = self.entries.entry(id).or_default();
            entry.drop_carried_hold(limit.generation(), now);
            let state = account.state();
            let state = if state.is_fresh(now) { State::Fresh } else { state };
            (entry.generation, entry.state) = (limit.generation(), state);
        }
        Ok(StoreResponse::Settled(Settlement::new(outcomes, saturated, dropped, applied.into())))
    }

    /// Returns slots of a lease by a correction, which cannot take more.
    fn give_slots_back(
        &mut self,
        id: &Id,
        delta: i64,
        record: Option<&ChargeRecord>,
    ) -> EntrySettlement {
        let lease = match (record.map(|record| record.location), self.entries.get_mut(id)) {
            (Some(BucketLocation::Slot(lease)), Some(entry)) if delta < 0 => {
                entry.leases.get_mut(&lease)
            }
            _ => None,
        };
        let Some(lease) = lease else { return EntrySettlement::without_effect(delta) };
        let given = lease.slots.min(delta.unsigned_abs());
        lease.slots -= given;
        EntrySettlement::slots_released(given)
    }

    fn each_lease(
        &mut self,
        targets: &[Target<'_>],
        receipt: &Receipt,
        issuer: u64,
        now: Now,
        act: impl Fn(&mut BTreeMap<u64, Lease>, u64, Option<Time>) -> u64,
    ) -> Result<StoreResponse, StoreError> {
        decide::check_list(targets.iter().map(|target| target.key))?;
        self.check_receipt(receipt, targets.iter(), issuer)?;
        let mut slots = 0;
        for (target, record) in targets.iter().zip(receipt.charges()) {
            let (BucketLocation::Slot(lease), id) = (record.location, id(target)) else { continue };
            let limit = self.newest(target.limit);
            let _ = self.open(&id, &limit, now);
            let Policy::Concurrency(policy) = limit.policy() else { continue };
            let ends = policy.lease().map(|lease| now.time.after(lease));
            if let Some(entry) = self.entries.get_mut(&id) {
                slots += act(&mut entry.leases, lease, ends);
            }
        }
        Ok(StoreResponse::Slots(slots))
    }
}

fn id(target: &Target<'_>) -> Id {
    let group = target.key.group().map(str::to_owned);
    (target.limit.identity().to_owned(), group, target.key.name().to_owned())
}

fn open_window(
    account: &mut BucketEntry<'_>,
    target: &Target<'_>,
    index: usize,
    now: Now,
) -> Result<(), ChargeError> {
    if !matches!(account.policy(), Policy::Quota(_)) {
        return Ok(());
    }
    let windows = target.windows.ok_or(ChargeError::NoWindows(index))?;
    if account.open_window(&windows, now) { Ok(()) } else { Err(ChargeError::OtherWindows(index)) }
}
