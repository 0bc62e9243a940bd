//! The common case without ceremony: charges on token buckets that are in the table already, under
//! the caller's generation, in shards without holds.
//!
//! The arithmetic is that of the core, called directly. Whatever is special (a new key, a hold, a
//! changed policy, another kind) is left to the general way, untouched.

use std::time::Duration;

use tidegate_core::{
    Bucket, Charge, Decision, Denial, Exact, Grant, Outcome, Outcomes, Place, Policy, Receipt,
    Retry, Stamp, State, Time,
};

use crate::shard::Shard;
use crate::store::MemoryStore;
use crate::sync::{MutexGuard, lock};

/// One charge, and where its bucket is.
#[derive(Clone, Copy)]
struct Plain<'a> {
    bucket: &'a Bucket,
    cost: u64,
    generation: u32,
    hash: u64,
    /// The place of its slot in the table of its shard.
    slot: usize,
    /// The arrival time that counts now, and whether the stored one was another.
    tat: Exact,
    repaired: bool,
}

/// What came of charges: the arrival times after them if all fit, and when that was.
type Charged<'a, const N: usize> = ([Plain<'a>; N], Option<[Exact; N]>, Time);

impl MemoryStore {
    /// Spends one charge, or denies. `None` leaves it to the general way.
    #[inline]
    pub(crate) fn take_plain(&self, charge: &Charge<'_>) -> Option<Decision> {
        self.charge(charge).map(|charged| self.decision(charged))
    }

    /// The same for two charges: both are spent or none.
    #[inline]
    pub(crate) fn take_plain_pair(&self, charges: [&Charge<'_>; 2]) -> Option<Decision> {
        self.charge_pair(charges).map(|charged| self.decision(charged))
    }

    /// Spends one charge, or denies, for those who need no receipt.
    #[inline]
    pub(crate) fn spend_plain(&self, charge: &Charge<'_>, outcomes: &mut Outcomes) -> Option<()> {
        self.charge(charge).map(|charged| tell(charged, outcomes))
    }

    /// The same for two charges: both are spent or none.
    #[inline]
    pub(crate) fn spend_plain_pair(
        &self,
        charges: [&Charge<'_>; 2],
        outcomes: &mut Outcomes,
    ) -> Option<()> {
        self.charge_pair(charges).map(|charged| tell(charged, outcomes))
    }

    #[inline]
    fn charge<'a>(&self, charge: &Charge<'a>) -> Option<Charged<'a, 1>> {
        let mut plain = self.plain(charge)?;
        let mut shard = lock(&self.shards[self.shard_of(plain.hash)].0);
        let now = self.clock.now();
        plain.find(&shard, now)?;
        let after = plain.fits(now);
        plain.write(&mut shard, after);
        Some(([plain], after.map(|after| [after]), now))
    }

    #[inline]
    fn charge_pair<'a>(&self, charges: [&Charge<'a>; 2]) -> Option<Charged<'a, 2>> {
        let (mut first, mut second) = (self.plain(charges[0])?, self.plain(charges[1])?);
        if first.hash == second.hash {
            return None;
        }
        let numbers = [self.shard_of(first.hash), self.shard_of(second.hash)];
        let mut shards = Pair::lock(self, numbers);
        let now = self.clock.now();
        first.find(shards.first(), now)?;
        second.find(shards.second(), now)?;
        let after = first.fits(now).zip(second.fits(now));
        first.write(shards.first(), after.map(|(first, _)| first));
        second.write(shards.second(), after.map(|(_, second)| second));
        Some(([first, second], after.map(<[Exact; 2]>::from), now))
    }

    #[inline]
    fn plain<'a>(&self, charge: &Charge<'a>) -> Option<Plain<'a>> {
        let (limit, cost) = (charge.target.limit, charge.cost);
        // A cost of zero spends nothing and always fits: another question.
        let (Policy::Bucket(bucket), true) = (limit.policy(), cost > 0) else { return None };
        let hash = self.hasher.bucket(limit, charge.target.key);
        let generation = limit.generation();
        Some(Plain { bucket, cost, generation, hash, slot: 0, tat: Exact::ZERO, repaired: false })
    }

    #[inline]
    fn decision<const N: usize>(&self, charged: Charged<'_, N>) -> Decision {
        let (plain, after, now) = charged;
        let mut outcomes = Outcomes::new();
        tell(charged, &mut outcomes);
        let Some(after) = after else { return Decision::Denied(Denial::new(outcomes)) };
        let stamps = plain.iter().zip(after).map(|(plain, after)| plain.stamp(after));
        let receipt = Receipt::new(self.issuer, now, stamps);
        Decision::Allowed(Grant::new(outcomes, Duration::ZERO, receipt))
    }
}

/// Pushes the outcome of each charge.
#[inline]
fn tell<const N: usize>((plain, after, now): Charged<'_, N>, outcomes: &mut Outcomes) {
    for (index, plain) in plain.iter().enumerate() {
        outcomes.push(match after {
            Some(after) => plain.outcome(after[index], now, None),
            None => plain.outcome(plain.tat, now, plain.retry(now)),
        });
    }
}

impl Plain<'_> {
    /// Finds the slot of the bucket and the arrival time that counts. `None` if anything is
    /// special.
    #[inline]
    fn find(&mut self, shard: &Shard, now: Time) -> Option<()> {
        let (slot, stored) = shard.find_plain(self.hash, self.generation)?;
        self.slot = slot;
        self.tat = self.bucket.effective(stored, Time::ZERO, now);
        self.repaired = self.tat != stored;
        Some(())
    }

    /// The arrival time after the charge, if it fits now.
    #[inline]
    fn fits(&self, now: Time) -> Option<Exact> {
        let after = self.bucket.spend(self.tat, self.cost, now);
        self.bucket.fits(after, now).then_some(after)
    }

    /// Writes the arrival time after the charge; or what a clock that stepped back has left too far
    /// ahead is brought back, if nothing is spent.
    #[inline]
    fn write(&self, shard: &mut Shard, after: Option<Exact>) {
        if let Some(tat) = after.or(self.repaired.then_some(self.tat)) {
            shard.write_plain(self.slot, tat);
        }
    }

    #[inline]
    fn outcome(&self, tat: Exact, now: Time, retry: Option<Retry>) -> Outcome {
        let (remaining, reset) = (self.bucket.remaining(tat, now), self.bucket.reset(tat, now));
        Outcome::new(self.bucket.capacity(), remaining, Some(reset), retry)
    }

    /// The wait for the charge alone; `None` if it fits now.
    fn retry(&self, now: Time) -> Option<Retry> {
        match self.bucket.earliest(self.tat, self.cost, now) {
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

/// The shards of two buckets, locked in the order of their numbers; one lock if they share one.
struct Pair<'s> {
    lower: MutexGuard<'s, Shard>,
    upper: Option<MutexGuard<'s, Shard>>,
    /// Whether the first bucket is in the upper one.
    swapped: bool,
}

impl<'s> Pair<'s> {
    #[inline]
    fn lock(store: &'s MemoryStore, [first, second]: [usize; 2]) -> Self {
        let lower = lock(&store.shards[first.min(second)].0);
        let upper = (first != second).then(|| lock(&store.shards[first.max(second)].0));
        Self { lower, upper, swapped: first > second }
    }

    #[inline]
    fn first(&mut self) -> &mut Shard {
        self.get(self.swapped)
    }

    #[inline]
    fn second(&mut self) -> &mut Shard {
        self.get(!self.swapped)
    }

    #[inline]
    fn get(&mut self, upper: bool) -> &mut Shard {
        match &mut self.upper {
            Some(shard) if upper => shard,
            _ => &mut self.lower,
        }
    }
}
