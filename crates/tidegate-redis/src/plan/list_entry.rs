//! The buckets of one list, each once, with what is asked of it.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::{
    Account, ChargeError, Now, Place, Policy, Receipt, ReceiptError, Stamp, State, StoreError,
    Target, Time, Windows,
};

use crate::error::Fault;
use crate::format::entry::Entry;
use crate::format::names::{Name, Names};
use crate::format::number::Reader;
use crate::format::script_args::script_args;
use crate::job::{Item, Verdict};
use crate::policy_history::PolicyHistory;

/// One bucket of a list.
#[derive(Debug)]
pub(crate) struct Seat<'a> {
    pub(crate) target: Target<'a>,
    pub(crate) name: Name,
    /// The policies of its limit; the newest decides.
    pub(crate) history: Arc<PolicyHistory>,
    /// Cost of a charge or delta of a correction; equal buckets are summed.
    pub(crate) amount: i128,
    /// The number of the lease that a charge on slots would get.
    pub(crate) lease: u64,
}

impl Seat<'_> {
    pub(crate) fn policy(&self) -> &Policy {
        self.history.limit().policy()
    }

    pub(crate) fn has_slots(&self) -> bool {
        matches!(self.policy(), Policy::Concurrency(_))
    }

    /// The cost of a charge.
    pub(crate) fn cost(&self) -> u64 {
        u64::try_from(self.amount).unwrap_or(u64::MAX)
    }

    /// The delta of a correction.
    pub(crate) fn delta(&self) -> i64 {
        i64::try_from(self.amount).unwrap_or(if self.amount < 0 { i64::MIN } else { i64::MAX })
    }

    /// The item of this bucket, with the script arguments for `amount`.
    pub(crate) fn item(
        &self,
        names: &Names,
        amount: u64,
        ttl: Option<std::time::Duration>,
    ) -> Result<Item, Fault> {
        let generation = self.history.generation();
        let args = script_args(self.policy(), generation, amount, self.target.windows, ttl)?;
        let other = self.has_slots().then(|| names.slots(&self.target));
        Ok(Item { entry: Some(self.name.clone()), other, args: Some(args), tail: SmallVec::new() })
    }
}

/// The seats of a list, and for each entry of the list its seat.
#[derive(Debug)]
pub(crate) struct Seats<'a> {
    pub(crate) list: SmallVec<[Seat<'a>; 2]>,
    order: SmallVec<[u8; 8]>,
}

impl<'a> Seats<'a> {
    /// Seats for these targets, amounts and histories.
    pub(crate) fn new(
        names: &Names,
        entries: impl Iterator<Item = (Target<'a>, i128, Arc<PolicyHistory>)>,
        mut lease: impl FnMut() -> u64,
    ) -> Self {
        let mut seats = Self { list: SmallVec::new(), order: SmallVec::new() };
        for (target, amount, history) in entries {
            let name = names.entry(&target);
            let known = seats.list.iter().position(|seat| seat.name == name);
            let index = known.unwrap_or_else(|| {
                seats.list.push(Seat { target, name, history, amount: 0, lease: lease() });
                seats.list.len() - 1
            });
            seats.list[index].amount += amount;
            // A list has at most 16 entries.
            seats.order.push(u8::try_from(index).unwrap_or(u8::MAX));
        }
        seats
    }

    /// For each entry of the list, the index of its seat.
    pub(crate) fn order(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        self.order.iter().map(|&index| usize::from(index))
    }

    /// The stamp that a receipt holds for a seat: that of its first entry.
    pub(crate) fn stamp_of<'r>(&self, index: usize, receipt: &'r Receipt) -> Option<&'r Stamp> {
        let entry = self.order().position(|seat| seat == index)?;
        receipt.stamps().get(entry)
    }

    /// For each entry of the list how its charge left its bucket.
    pub(crate) fn stamps(&self, states: &[State]) -> impl Iterator<Item = Stamp> {
        self.order().map(|index| {
            let seat = &self.list[index];
            let place = if seat.has_slots() && seat.amount > 0 {
                Place::Slot(seat.lease)
            } else {
                Place::Own
            };
            let (bucket, generation) = (seat.name.number(), seat.history.stamp());
            Stamp { bucket, place, generation, state: states[index] }
        })
    }

    /// The calendar quotas among them have windows.
    pub(crate) fn check_windows(&self) -> Result<(), ChargeError> {
        let missing = |seat: &Seat<'_>| {
            matches!(seat.policy(), Policy::Quota(_)) && seat.target.windows.is_none()
        };
        self.list
            .iter()
            .position(missing)
            .map_or(Ok(()), |index| Err(ChargeError::NoWindows(index)))
    }

    /// What the server says of the list. Windows that do not hold its time are the caller's fault.
    pub(crate) fn verdict(&self, reader: &mut Reader<'_>, now: Now) -> Result<Verdict, StoreError> {
        let verdict = Verdict::read(reader)?;
        if verdict != Verdict::OtherWindows {
            return Ok(verdict);
        }
        let strange = |windows: Windows| windows.end_of(now.wall).is_none();
        let index = self.list.iter().position(|seat| seat.target.windows.is_some_and(strange));
        Err(ChargeError::OtherWindows(index.unwrap_or(0)).into())
    }

    /// The accounts to decide on, of what the server found.
    pub(crate) fn accounts(
        &self,
        found: &[Found],
        now: Now,
    ) -> Result<SmallVec<[Account<'_>; 2]>, ChargeError> {
        let mut accounts = SmallVec::with_capacity(self.list.len());
        for (index, (seat, found)) in self.list.iter().zip(found).enumerate() {
            let effective_state = found.entry.effective_state(&seat.history, now.time);
            let policy = seat.policy();
            let mut account = Account::new(
                policy,
                effective_state.state,
                effective_state.held_until,
                seat.cost(),
            );
            if let (Policy::Quota(_), Some(windows)) = (policy, &seat.target.windows)
                && !account.open_window(windows, now)
            {
                return Err(ChargeError::OtherWindows(index));
            }
            if let Some(slots) = found.slots {
                account.set_taken(slots.taken);
                let free_in = slots.free_at.map(|time| time.since(now.time));
                account = account.slots_free_in(free_in);
            }
            accounts.push(account);
        }
        Ok(accounts)
    }

    /// The first seat whose entry is of a newer policy than this node knows, and its number.
    pub(crate) fn newer(&self, found: &[Found]) -> Option<(usize, u64)> {
        let numbers = found.iter().map(|found| found.entry.newest());
        let mut pairs = self.list.iter().zip(numbers).enumerate();
        let newer = pairs.find(|(_, (seat, number))| seat.history.is_behind(*number));
        newer.map(|(index, (_, number))| (index, number))
    }
}

/// What the server found for a seat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) entry: Entry,
    pub(crate) slots: Option<Slots>,
}

/// Slots taken, and when enough of them will have run out by themselves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    pub(crate) taken: u64,
    pub(crate) free_at: Option<Time>,
}

/// Reads what the server found for every seat.
pub(crate) fn found(
    seats: &Seats<'_>,
    reader: &mut Reader<'_>,
) -> Result<SmallVec<[Found; 2]>, Fault> {
    let mut all = SmallVec::with_capacity(seats.list.len());
    for seat in &seats.list {
        let entry = Entry::read(reader)?;
        let slots = if seat.has_slots() {
            let (taken, free_at) = (reader.number()?, reader.number()?);
            let free_at = (free_at > 0).then(|| Time::from_nanos(free_at.saturating_mul(1_000)));
            Some(Slots { taken, free_at })
        } else {
            None
        };
        all.push(Found { entry, slots });
    }
    Ok(all)
}

/// Refuses a receipt of another store, or for other buckets than these.
pub(crate) fn check_receipt<'t>(
    receipt: &Receipt,
    issuer: u64,
    targets: impl ExactSizeIterator<Item = &'t Target<'t>>,
    names: &Names,
) -> Result<(), StoreError> {
    if receipt.issuer() != issuer {
        return Err(ReceiptError::Issuer.into());
    }
    if receipt.stamps().len() != targets.len() {
        return Err(ReceiptError::Mismatch.into());
    }
    let mut pairs = receipt.stamps().iter().zip(targets);
    if pairs.all(|(stamp, target)| stamp.bucket == names.entry(target).number()) {
        Ok(())
    } else {
        Err(ReceiptError::Mismatch.into())
    }
}
