//! The common case without ceremony: charges on token buckets that are in the table already, under
//! the caller's generation, of keys that are not held.
//!
//! The arithmetic is that of the core, called directly. Whatever is special (a new key, a hold, a
//! changed policy, another kind) is left to the general way, untouched.
//!
//! A clock that never runs backwards is read before the line is locked, so that its reading and
//! the fetching of the line go on at the same time. A reading that is a little old never grants
//! more; it may deny what another thread's later reading has left room for, so a denial that would
//! soon be none is decided again, by a reading under the lock. Of any other clock nothing is known,
//! and it is read under the lock.

use std::time::Duration;

use tidegate_core::{
    Bucket, Charge, Decision, Denial, Exact, Grant, Key, Limit, Outcome, Outcomes, Place, Policy,
    Receipt, Retry, Stamp, State, Time,
};

use crate::table::cell::{Cell, Fingerprint, Tag};
use crate::table::directory::LookedUp;
use crate::table::line::Held;
use crate::table::segment::Segment;
use crate::store::MemoryStore;
use crate::operation::verdict::Verdict;

/// How old a reading may have become before the line was locked: longer than a thread is usually
/// put aside for.
const STALE: Duration = Duration::from_millis(100);

/// One charge, and whose cell it is on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain<'a> {
    bucket: &'a Bucket,
    cost: u64,
    generation: u32,
    hash: u64,
}

/// What came of charges: the arrival times after the decision, and when that was made.
#[derive(Clone, Copy)]
struct Charged<const N: usize> {
    tats: [Exact; N],
    allowed: bool,
    now: Time,
}

impl MemoryStore {
    /// Spends one charge, or denies. `None` leaves it to the general way.
    #[inline]
    pub(crate) fn take_plain(
        &self,
        plain: Plain<'_>,
        found: LookedUp,
        now: Option<Time>,
    ) -> Option<Decision> {
        self.charge(plain, found, now).map(|charged| self.decision(&[plain], charged))
    }

    /// The same without a receipt.
    #[inline(always)]
    pub(crate) fn spend_plain<'l>(
        &self,
        plain: Plain<'l>,
        found: LookedUp,
        now: Option<Time>,
    ) -> Option<Verdict<'l>> {
        let Charged { tats: [tat], allowed, now } = self.charge(plain, found, now)?;
        Some(Verdict::of_bucket(plain.bucket, plain.cost, tat, now, allowed))
    }

    /// Spends all of some charges or none.
    #[inline]
    pub(crate) fn take_plain_list<const N: usize>(
        &self,
        charges: &[Charge<'_>; N],
    ) -> Option<Decision> {
        self.charge_list(charges).map(|(plain, charged)| self.decision(&plain, charged))
    }

    /// The same without a receipt; pushes the outcomes.
    #[inline]
    pub(crate) fn spend_plain_list<const N: usize>(
        &self,
        charges: &[Charge<'_>; N],
        outcomes: &mut Outcomes,
    ) -> Option<()> {
        self.charge_list(charges).map(|(plain, charged)| charged.tell(&plain, outcomes))
    }

    /// What is plain about a charge; `None` if nothing is.
    #[inline]
    pub(crate) fn plain<'a>(&self, charge: &Charge<'a>) -> Option<Plain<'a>> {
        self.plain_of(charge.target.limit, charge.target.key, charge.cost)
    }

    #[inline(always)]
    pub(crate) fn plain_of<'l>(
        &self,
        limit: &'l Limit,
        key: Key<'_>,
        cost: u64,
    ) -> Option<Plain<'l>> {
        Plain::new(limit, cost, || self.hasher.bucket(limit, key))
    }

    /// The time, if it may be read before anything is locked.
    #[inline(always)]
    pub(crate) fn early_now(&self) -> Option<Time> {
        self.clock.is_steady().then(|| self.clock.now())
    }

    #[inline(always)]
    fn charge(&self, plain: Plain<'_>, found: LookedUp, now: Option<Time>) -> Option<Charged<1>> {
        let (segment, mut line) = self.table.lock_found(plain.fingerprint(), found);
        if self.besides.may_hold(plain.hash) {
            return None;
        }
        match line.find(plain.tag()) {
            Some(cell) => self.charge_cell(plain, &mut line, cell, now),
            None if line.reach() == 0 => self.welcome(plain, segment, line),
            None => {
                let (mut further, cell) = self.table.lock_further(plain.tag(), segment, &line)?;
                self.charge_cell(plain, &mut further, cell, now)
            }
        }
    }

    /// Charges a key that is not in the table, if nothing but that is special about it.
    #[inline(never)]
    fn welcome(
        &self,
        plain: Plain<'_>,
        segment: Segment,
        mut line: Held<'_>,
    ) -> Option<Charged<1>> {
        #[cfg(all(test, shuttle))]
        if self.table.is_full_by_force() {
            return None;
        }
        // A revised limit is to be remembered, and a key may be here under another generation.
        if plain.generation > 0 || line.find_key(plain.fingerprint()).is_some() {
            return None;
        }
        let vacancy = line.vacancy()?;
        let header = self.table.header(segment);
        // The key may have been here until a moment ago, and full then: a time from before that
        // would give it something twice.
        let now = self.clock.now_after();
        if !header.has_room(segment) || now < header.times().owing_until {
            return None;
        }
        let tat = plain.bucket.try_spend(Exact::ZERO, plain.cost, now)?;
        line.set(vacancy, Cell::of_bucket(plain.tag(), tat));
        header.add_key();
        header.note_full_at(Time::from_nanos(tat.ns));
        Some(Charged { tats: [tat], allowed: true, now })
    }

    #[inline(always)]
    fn charge_cell(
        &self,
        plain: Plain<'_>,
        line: &mut Held<'_>,
        cell: usize,
        now: Option<Time>,
    ) -> Option<Charged<1>> {
        let stored = line.cell(cell).tat();
        let early = now.is_some();
        let (before, mut now) = self.effective(&plain, stored, now);
        let mut after = plain.bucket.try_spend(before, plain.cost, now);
        if after.is_none() && early {
            (after, now) = self.decide_again(plain, before, now)?;
        }
        let tat = after.unwrap_or(before);
        if tat != stored {
            line.set(cell, Cell::of_bucket(plain.tag(), tat));
            self.note_lowered(&plain, stored, tat);
        }
        Some(Charged { tats: [tat], allowed: after.is_some(), now })
    }

    /// Decides a charge again that an early reading has denied, if a later one may allow it. `None`
    /// leaves it to the general way.
    #[cold]
    #[inline(never)]
    fn decide_again(
        &self,
        plain: Plain<'_>,
        tat: Exact,
        now: Time,
    ) -> Option<(Option<Exact>, Time)> {
        if plain.is_absurd(tat, now) {
            return None;
        }
        if !plain.fits_soon(tat, now) {
            return Some((None, now));
        }
        let now = self.clock.now_after().max(now);
        Some((plain.bucket.try_spend(tat, plain.cost, now), now))
    }

    fn charge_list<'a, const N: usize>(
        &self,
        charges: &[Charge<'a>; N],
    ) -> Option<([Plain<'a>; N], Charged<N>)> {
        let mut plain = [self.plain(&charges[0])?; N];
        for index in 1..N {
            plain[index] = self.plain(&charges[index])?;
            // Two charges on one bucket are one charge: a question for the general way.
            let same = |other: &Plain<'_>| other.fingerprint() == plain[index].fingerprint();
            if plain[..index].iter().any(same) {
                return None;
            }
        }
        for plain in plain {
            self.table.fetch(plain.fingerprint());
        }
        let now = self.early_now();
        let mut spots = self.table.lock_buckets(plain.map(|plain| plain.tag()))?;
        if plain.iter().any(|plain| self.besides.may_hold(plain.hash)) {
            return None;
        }
        let early = now.is_some();
        let mut now = now.unwrap_or_else(|| self.clock.now_after());
        let tats: [Exact; N] = std::array::from_fn(|index| {
            let (bucket, stored) = (plain[index].bucket, spots.tat(index));
            // As for one.
            if early { bucket.in_rate(stored) } else { bucket.effective(stored, Time::ZERO, now) }
        });
        let all_fit_soon = |now: Time| {
            early && plain.iter().zip(tats).all(|(plain, tat)| plain.fits_soon(tat, now))
        };
        let mut afters = spend_all(&plain, &tats, now);
        let mut absurd = plain.iter().zip(tats).filter(|(plain, tat)| plain.is_absurd(*tat, now));
        if afters.is_none() && early && absurd.next().is_some() {
            return None;
        }
        if afters.is_none() && all_fit_soon(now) {
            now = self.clock.now_after().max(now);
            afters = spend_all(&plain, &tats, now);
        }
        let (allowed, tats) = (afters.is_some(), afters.unwrap_or(tats));
        for (index, plain) in plain.iter().enumerate() {
            let stored = spots.tat(index);
            if tats[index] != stored {
                spots.set_tat(index, plain.tag(), tats[index]);
                self.note_lowered(plain, stored, tats[index]);
            }
        }
        Some((plain, Charged { tats, allowed, now }))
    }

    /// The arrival time that counts, and the moment.
    #[inline(always)]
    fn effective(&self, plain: &Plain<'_>, stored: Exact, now: Option<Time>) -> (Exact, Time) {
        match now {
            // A steady clock leaves nothing too far ahead, and this reading may be older than what
            // another thread has written. What is too far ahead all the same is noticed when it
            // is denied.
            Some(now) => (plain.bucket.in_rate(stored), now),
            None => {
                let now = self.clock.now_after();
                (plain.bucket.effective(stored, Time::ZERO, now), now)
            }
        }
    }

    /// A key may be full earlier than was known: its clock stepped back.
    #[inline(always)]
    fn note_lowered(&self, plain: &Plain<'_>, stored: Exact, tat: Exact) {
        if tat < stored {
            let segment = self.table.directory.settled(plain.fingerprint());
            self.table.header(segment).note_full_at(Time::from_nanos(tat.ns));
        }
    }

    #[inline]
    fn decision<const N: usize>(&self, plain: &[Plain<'_>; N], charged: Charged<N>) -> Decision {
        let mut outcomes = Outcomes::new();
        charged.tell(plain, &mut outcomes);
        if !charged.allowed {
            return Decision::Denied(Denial::new(outcomes));
        }
        let stamps = plain.iter().zip(charged.tats).map(|(plain, tat)| plain.stamp(tat));
        let receipt = Receipt::new(self.issuer, charged.now, stamps);
        Decision::Allowed(Grant::new(outcomes, Duration::ZERO, receipt))
    }
}

/// The arrival times after all charges, if all fit.
#[inline]
fn spend_all<const N: usize>(
    plain: &[Plain<'_>; N],
    tats: &[Exact; N],
    now: Time,
) -> Option<[Exact; N]> {
    let mut afters = *tats;
    for (after, plain) in afters.iter_mut().zip(plain) {
        *after = plain.bucket.try_spend(*after, plain.cost, now)?;
    }
    Some(afters)
}

impl<const N: usize> Charged<N> {
    /// Pushes the outcome of each charge.
    #[inline]
    fn tell(&self, plain: &[Plain<'_>; N], outcomes: &mut Outcomes) {
        for (plain, tat) in plain.iter().zip(self.tats) {
            let retry = if self.allowed { None } else { plain.retry(tat, self.now) };
            outcomes.push(plain.outcome(tat, self.now, retry));
        }
    }
}

impl<'l> Plain<'l> {
    /// What is plain about a charge of a key with this hash; `None` if nothing is.
    #[inline(always)]
    pub(crate) fn new(limit: &'l Limit, cost: u64, hash: impl FnOnce() -> u64) -> Option<Self> {
        // A cost of zero spends nothing and always fits: another question.
        let (Policy::Bucket(bucket), true) = (limit.policy(), cost > 0) else { return None };
        Some(Plain { bucket, cost, generation: limit.generation(), hash: hash() })
    }

    #[inline]
    pub(crate) const fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.hash)
    }

    #[inline]
    const fn tag(&self) -> Tag {
        Tag::bucket(self.fingerprint(), self.generation)
    }

    /// Whether an arrival time is further ahead than any spend under this policy can have left it: it
    /// was written under another one of the same generation.
    fn is_absurd(&self, tat: Exact, now: Time) -> bool {
        self.bucket.effective(tat, Time::ZERO, now.after(STALE)) != tat
    }

    /// Whether the charge fits if the reading is as old as it may be.
    #[inline]
    fn fits_soon(&self, tat: Exact, now: Time) -> bool {
        self.bucket.try_spend(tat, self.cost, now.after(STALE)).is_some()
    }

    #[inline]
    fn outcome(&self, tat: Exact, now: Time, retry: Option<Retry>) -> Outcome {
        let (remaining, reset) = (self.bucket.remaining(tat, now), self.bucket.reset(tat, now));
        Outcome::new(self.bucket.capacity(), remaining, Some(reset), retry)
    }

    /// The wait for the charge alone; `None` if it fits now.
    fn retry(&self, tat: Exact, now: Time) -> Option<Retry> {
        match self.bucket.earliest(tat, self.cost, now) {
            Some(time) if time <= now => None,
            Some(time) => Some(Retry::After(time.since(now))),
            None => Some(Retry::Never),
        }
    }

    #[inline]
    fn stamp(&self, after: Exact) -> Stamp {
        let (bucket, generation) = (self.hash, self.generation);
        Stamp { bucket, place: Place::Own, generation, state: State::Bucket(after) }
    }
}
