//! Fast path for the common case: token buckets that are in the table, under the caller's
//! generation, whose keys are not held.
//!
//! It calls the arithmetic of the core directly. Anything else (a hold, a changed policy, another
//! kind of policy) is left untouched for the general path.
//!
//! A monotonic clock is read before the line is locked, so that the reading overlaps with fetching
//! the line. A slightly old reading never grants more. It may deny what a later reading would
//! allow, so a denial that would soon be a grant is decided again with a reading under the lock.
//! Other clocks are always read under the lock.

use std::time::Duration;

use tidegate_core::{
    BucketLocation, Charge, ChargeRecord, Decision, Denial, ExactTime, Grant, Key, Limit, Outcome,
    Outcomes, Policy, Receipt, Retry, State, Time, TokenBucket,
};

use crate::operation::bare_decision::BareDecision;
use crate::store::MemoryStore;
use crate::table::cell::{Cell, Fingerprint, Tag};
use crate::table::directory::Lookup;
use crate::table::line::LineGuard;
use crate::table::segment::Segment;

/// Maximum age of a reading when the line is locked. Longer than a thread is usually preempted for.
const MAX_READING_AGE: Duration = Duration::from_millis(100);

/// One charge on a token bucket, and the hash of its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FastCharge<'a> {
    bucket: &'a TokenBucket,
    cost: u64,
    generation: u32,
    hash: u64,
}

/// Result of a fast decision: the arrival times after it, and the time of the decision.
#[derive(Clone, Copy)]
struct FastResult<const N: usize> {
    tats: [ExactTime; N],
    allowed: bool,
    now: Time,
}

impl MemoryStore {
    /// Spends one charge or denies. `None` defers to the general path.
    #[inline]
    pub(crate) fn take_fast(
        &self,
        fast: FastCharge<'_>,
        found: Lookup,
        now: Option<Time>,
    ) -> Option<Decision> {
        self.charge(fast, found, now).map(|charged| self.decision(&[fast], charged))
    }

    /// Spends one charge or denies, without a receipt. `None` defers to the general path.
    #[inline(always)]
    pub(crate) fn spend_fast<'l>(
        &self,
        fast: FastCharge<'l>,
        found: Lookup,
        now: Option<Time>,
    ) -> Option<BareDecision<'l>> {
        let FastResult { tats: [tat], allowed, now } = self.charge(fast, found, now)?;
        Some(BareDecision::from_bucket(fast.bucket, fast.cost, tat, now, allowed))
    }

    /// Spends all charges or none. `None` defers to the general path.
    #[inline]
    pub(crate) fn take_list_fast<const N: usize>(
        &self,
        charges: &[Charge<'_>; N],
    ) -> Option<Decision> {
        self.charge_list(charges).map(|(fast, charged)| self.decision(&fast, charged))
    }

    /// Spends all charges or none, without a receipt, and pushes the outcomes. `None` defers to the
    /// general path.
    #[inline]
    pub(crate) fn spend_list_fast<const N: usize>(
        &self,
        charges: &[Charge<'_>; N],
        outcomes: &mut Outcomes,
    ) -> Option<()> {
        self.charge_list(charges).map(|(fast, charged)| charged.push_outcomes(&fast, outcomes))
    }

    /// Prepares a charge for the fast path; `None` if it is not eligible.
    #[inline]
    pub(crate) fn fast_charge<'a>(&self, charge: &Charge<'a>) -> Option<FastCharge<'a>> {
        self.fast_charge_of(charge.target.limit, charge.target.key, charge.cost)
    }

    #[inline(always)]
    pub(crate) fn fast_charge_of<'l>(
        &self,
        limit: &'l Limit,
        key: Key<'_>,
        cost: u64,
    ) -> Option<FastCharge<'l>> {
        // The general path reports invalid keys.
        key.check().ok()?;
        FastCharge::new(limit, cost, || self.hasher.bucket(limit, key))
    }

    /// Returns the time if the clock is monotonic and may be read before the line is locked.
    #[inline(always)]
    pub(crate) fn now_before_lock(&self) -> Option<Time> {
        self.clock.is_monotonic().then(|| self.clock.now())
    }

    #[inline(always)]
    fn charge(
        &self,
        fast: FastCharge<'_>,
        found: Lookup,
        now: Option<Time>,
    ) -> Option<FastResult<1>> {
        let (segment, mut line) = self.table.lock_found(fast.fingerprint(), found);
        if self.side_table.may_be_held(fast.hash) {
            return None;
        }
        match line.find(fast.tag()) {
            Some(cell) => self.charge_cell(fast, &mut line, cell, now),
            None if line.probe_len() == 0 => self.insert_new(fast, segment, line),
            None => {
                let (mut further, cell) = self.table.lock_spilled(fast.tag(), segment, &line)?;
                self.charge_cell(fast, &mut further, cell, now)
            }
        }
    }

    /// Charges a key that is not in the table, if nothing else is unusual about it.
    #[inline(never)]
    fn insert_new(
        &self,
        fast: FastCharge<'_>,
        segment: Segment,
        mut line: LineGuard<'_>,
    ) -> Option<FastResult<1>> {
        #[cfg(all(test, shuttle))]
        if self.table.is_forced_full() {
            return None;
        }
        // The general path remembers revised limits. The key may also be here under another
        // generation.
        if fast.generation > 0 || line.find_key(fast.fingerprint()).is_some() {
            return None;
        }
        let vacant = line.find_vacant()?;
        let header = self.table.header(segment);
        // The key may have been evicted as full just now. A reading from before that would grant
        // the same tokens twice.
        let now = self.clock.now_ordered();
        if !header.has_room(segment) || now < header.times().shared_debt_until {
            return None;
        }
        let tat = fast.bucket.try_spend(ExactTime::ZERO, fast.cost, now)?;
        line.set(vacant, Cell::from_bucket(fast.tag(), tat));
        header.add_key();
        header.note_full_at(Time::from_nanos(tat.ns));
        Some(FastResult { tats: [tat], allowed: true, now })
    }

    #[inline(always)]
    fn charge_cell(
        &self,
        fast: FastCharge<'_>,
        line: &mut LineGuard<'_>,
        cell: usize,
        now: Option<Time>,
    ) -> Option<FastResult<1>> {
        let stored = line.cell(cell).tat();
        let early = now.is_some();
        let (before, mut now) = self.effective(&fast, stored, now);
        let mut after = fast.bucket.try_spend(before, fast.cost, now);
        if after.is_none() && early {
            (after, now) = self.decide_with_new_reading(fast, before, now)?;
        }
        let tat = after.unwrap_or(before);
        if tat != stored {
            line.set(cell, Cell::from_bucket(fast.tag(), tat));
            self.note_lowered(&fast, stored, tat);
        }
        Some(FastResult { tats: [tat], allowed: after.is_some(), now })
    }

    /// Decides a charge again that an early reading denied, if a later reading may allow it. `None`
    /// defers to the general path.
    #[cold]
    #[inline(never)]
    fn decide_with_new_reading(
        &self,
        fast: FastCharge<'_>,
        tat: ExactTime,
        now: Time,
    ) -> Option<(Option<ExactTime>, Time)> {
        if fast.is_too_far_ahead(tat, now) {
            return None;
        }
        if !fast.fits_soon(tat, now) {
            return Some((None, now));
        }
        let now = self.clock.now_ordered().max(now);
        Some((fast.bucket.try_spend(tat, fast.cost, now), now))
    }

    fn charge_list<'a, const N: usize>(
        &self,
        charges: &[Charge<'a>; N],
    ) -> Option<([FastCharge<'a>; N], FastResult<N>)> {
        let mut fast = [self.fast_charge(&charges[0])?; N];
        for index in 1..N {
            fast[index] = self.fast_charge(&charges[index])?;
            // The general path merges two charges on one bucket.
            let same = |other: &FastCharge<'_>| other.fingerprint() == fast[index].fingerprint();
            if fast[..index].iter().any(same) {
                return None;
            }
        }
        for fast in fast {
            self.table.look_up_and_prefetch(fast.fingerprint());
        }
        let now = self.now_before_lock();
        let mut cells = self.table.lock_buckets(fast.map(|fast| fast.tag()))?;
        if fast.iter().any(|fast| self.side_table.may_be_held(fast.hash)) {
            return None;
        }
        let early = now.is_some();
        let mut now = now.unwrap_or_else(|| self.clock.now_ordered());
        let tats: [ExactTime; N] = std::array::from_fn(|index| {
            let (bucket, stored) = (fast[index].bucket, cells.tat(index));
            // See `effective`.
            if early {
                bucket.normalize(stored)
            } else {
                bucket.effective_tat(stored, Time::ZERO, now)
            }
        });
        let all_fit_soon =
            |now: Time| early && fast.iter().zip(tats).all(|(fast, tat)| fast.fits_soon(tat, now));
        let mut afters = spend_all(&fast, &tats, now);
        let mut too_far_ahead =
            fast.iter().zip(tats).filter(|(fast, tat)| fast.is_too_far_ahead(*tat, now));
        if afters.is_none() && early && too_far_ahead.next().is_some() {
            return None;
        }
        if afters.is_none() && all_fit_soon(now) {
            now = self.clock.now_ordered().max(now);
            afters = spend_all(&fast, &tats, now);
        }
        let (allowed, tats) = (afters.is_some(), afters.unwrap_or(tats));
        for (index, fast) in fast.iter().enumerate() {
            let stored = cells.tat(index);
            if tats[index] != stored {
                cells.set_tat(index, fast.tag(), tats[index]);
                self.note_lowered(fast, stored, tats[index]);
            }
        }
        Some((fast, FastResult { tats, allowed, now }))
    }

    /// Returns the effective arrival time and the time of the decision.
    #[inline(always)]
    fn effective(
        &self,
        fast: &FastCharge<'_>,
        stored: ExactTime,
        now: Option<Time>,
    ) -> (ExactTime, Time) {
        match now {
            // A monotonic clock leaves no arrival time too far ahead, and this reading may be older
            // than what another thread has written. If it is too far ahead nevertheless, the denial
            // path detects it.
            Some(now) => (fast.bucket.normalize(stored), now),
            None => {
                let now = self.clock.now_ordered();
                (fast.bucket.effective_tat(stored, Time::ZERO, now), now)
            }
        }
    }

    /// Notes that a key will be full earlier than was known, because the clock stepped back.
    #[inline(always)]
    fn note_lowered(&self, fast: &FastCharge<'_>, stored: ExactTime, tat: ExactTime) {
        if tat < stored {
            let segment = self.table.directory.stable_segment(fast.fingerprint());
            self.table.header(segment).note_full_at(Time::from_nanos(tat.ns));
        }
    }

    #[inline]
    fn decision<const N: usize>(
        &self,
        fast: &[FastCharge<'_>; N],
        charged: FastResult<N>,
    ) -> Decision {
        let mut outcomes = Outcomes::new();
        charged.push_outcomes(fast, &mut outcomes);
        if !charged.allowed {
            return Decision::Denied(Denial::new(outcomes));
        }
        let records = fast.iter().zip(charged.tats).map(|(fast, tat)| fast.record(tat));
        let receipt = Receipt::new(self.issuer, charged.now, records);
        Decision::Allowed(Grant::new(outcomes, Duration::ZERO, receipt))
    }
}

/// Returns the arrival times after all charges, if all fit.
#[inline]
fn spend_all<const N: usize>(
    fast: &[FastCharge<'_>; N],
    tats: &[ExactTime; N],
    now: Time,
) -> Option<[ExactTime; N]> {
    let mut afters = *tats;
    for (after, fast) in afters.iter_mut().zip(fast) {
        *after = fast.bucket.try_spend(*after, fast.cost, now)?;
    }
    Some(afters)
}

impl<const N: usize> FastResult<N> {
    /// Pushes the outcome of each charge.
    #[inline]
    fn push_outcomes(&self, fast: &[FastCharge<'_>; N], outcomes: &mut Outcomes) {
        for (fast, tat) in fast.iter().zip(self.tats) {
            let retry = if self.allowed { None } else { fast.retry(tat, self.now) };
            outcomes.push(fast.outcome(tat, self.now, retry));
        }
    }
}

impl<'l> FastCharge<'l> {
    /// Creates a charge; `None` if it is not eligible for the fast path.
    #[inline(always)]
    pub(crate) fn new(limit: &'l Limit, cost: u64, hash: impl FnOnce() -> u64) -> Option<Self> {
        // A cost of zero spends nothing and always fits; the general path handles it.
        let (Policy::Bucket(bucket), true) = (limit.policy(), cost > 0) else { return None };
        Some(FastCharge { bucket, cost, generation: limit.generation(), hash: hash() })
    }

    #[inline]
    pub(crate) const fn fingerprint(&self) -> Fingerprint {
        Fingerprint::from_hash(self.hash)
    }

    #[inline]
    const fn tag(&self) -> Tag {
        Tag::bucket(self.fingerprint(), self.generation)
    }

    /// Returns whether an arrival time is further ahead than any spend under this policy can leave
    /// it: it was written under another policy of the same generation.
    fn is_too_far_ahead(&self, tat: ExactTime, now: Time) -> bool {
        self.bucket.effective_tat(tat, Time::ZERO, now.after(MAX_READING_AGE)) != tat
    }

    /// Returns whether the charge would fit if the reading had the maximum age.
    #[inline]
    fn fits_soon(&self, tat: ExactTime, now: Time) -> bool {
        self.bucket.try_spend(tat, self.cost, now.after(MAX_READING_AGE)).is_some()
    }

    #[inline]
    fn outcome(&self, tat: ExactTime, now: Time, retry: Option<Retry>) -> Outcome {
        let (remaining, reset) = (self.bucket.remaining(tat, now), self.bucket.reset(tat, now));
        Outcome::new(self.bucket.capacity(), remaining, Some(reset), retry)
    }

    /// Returns when the charge alone would fit; `None` if it fits now.
    fn retry(&self, tat: ExactTime, now: Time) -> Option<Retry> {
        match self.bucket.earliest(tat, self.cost, now) {
            Some(time) if time <= now => None,
            Some(time) => Some(Retry::After(time.since(now))),
            None => Some(Retry::Never),
        }
    }

    #[inline]
    fn record(&self, after: ExactTime) -> ChargeRecord {
        let (bucket, generation) = (self.hash, self.generation);
        ChargeRecord {
            bucket,
            location: BucketLocation::Own,
            generation,
            state: State::Bucket(after),
        }
    }
}
