//! One bucket of a decision: its policy, its state, and what is asked of it.
//!
//! A store opens an entry for each bucket it has locked, lets [`decide`](crate::decide) work on
//! them, and writes the states back. All kinds of policy meet here and nowhere else.

use core::time::Duration;

use crate::decision::{Outcome, Retry};
use crate::policy::Policy;
use crate::policy::bucket::Bucket;
use crate::policy::counter::{Concurrency, Quota, settle_used};
use crate::policy::exact::Exact;
use crate::receipt::Stamp;
use crate::state::State;
use crate::time::{Now, Time, WallTime, Windows};

/// Whether and when a cost fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// From this instant on.
    At(Time),
    /// Not at an instant that could be booked.
    Blocked(Retry),
}

/// What a settlement did to one entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// The debt reached its bound; the rest is forgiven.
    pub saturated: bool,
    /// A refund had no effect at all.
    pub dropped: bool,
    /// Whole tokens that were really charged, or given back if negative.
    pub applied: i64,
}

impl Settled {
    /// Done as asked.
    const fn in_full(delta: i64) -> Self {
        Self { saturated: false, dropped: false, applied: delta }
    }

    /// So many slots of a lease were given back.
    #[must_use]
    pub fn slots_back(given: u64) -> Self {
        let applied = i64::try_from(given).map_or(i64::MIN, |given| -given);
        Self { saturated: false, dropped: given == 0, applied }
    }

    /// For slots, which are not settled: nothing was done.
    #[must_use]
    pub const fn nothing_of(delta: i64) -> Self {
        Self { saturated: delta > 0, dropped: delta < 0, applied: 0 }
    }
}

/// One bucket of a decision.
#[derive(Clone, Copy, Debug)]
pub struct Account<'a> {
    policy: &'a Policy,
    state: State,
    held_until: Time,
    cost: u64,
    /// End of the calendar window that counts, in Unix seconds.
    window: u32,
    /// When enough slots will have run out by themselves.
    slots_free_in: Option<Duration>,
}

impl<'a> Account<'a> {
    /// The entry of a bucket in this state, held until `held_until` (zero: not held).
    #[must_use]
    #[inline]
    pub fn new(policy: &'a Policy, state: State, held_until: Time, cost: u64) -> Self {
        Self { policy, state, held_until, cost, window: 0, slots_free_in: None }
    }

    /// With the calendar window that holds the store's wall time. `false` if none of them does.
    ///
    /// A state of a later window counts on while the clock has stepped back into an earlier one.
    #[must_use]
    pub fn open_window(&mut self, windows: &Windows, now: Now) -> bool {
        let Some(present) = windows.end_of(now.wall) else { return false };
        self.window = present;
        if let State::Quota { ends, .. } = self.state {
            if ends > present && windows.has_window_ending(ends) {
                self.window = ends;
            } else if ends != present {
                self.state = State::Fresh;
            }
        }
        true
    }

    /// With the time after which enough slots will have run out for the cost.
    #[must_use]
    pub fn slots_free_in(mut self, span: Option<Duration>) -> Self {
        self.slots_free_in = span;
        self
    }

    /// With this many slots taken.
    pub fn set_taken(&mut self, taken: u64) {
        self.state = State::Concurrency { taken };
    }

    /// Brings an arrival time back that a clock which stepped back left too far ahead. `true` if
    /// that changed the state: it is then to be written even though nothing is spent, or the key
    /// would stay locked out for as long as the clock has to catch up.
    pub fn repair(&mut self, now: Now) -> bool {
        let (Policy::Bucket(bucket), State::Bucket(tat)) = (self.policy, self.state) else {
            return false;
        };
        let honest = bucket.effective(tat, Time::ZERO, now.time);
        self.state = State::Bucket(honest);
        honest != tat
    }

    /// The state to write back.
    #[must_use]
    #[inline]
    pub const fn state(&self) -> State {
        self.state
    }

    /// The policy that decides.
    #[must_use]
    pub const fn policy(&self) -> &'a Policy {
        self.policy
    }

    /// The cost asked for.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    #[inline]
    pub(crate) fn fit(&self, now: Now) -> Fit {
        if self.cost == 0 {
            return Fit::At(now.time);
        }
        match self.policy {
            Policy::Bucket(bucket) => {
                match bucket.earliest(self.effective(bucket, now), self.cost, now.time) {
                    Some(time) => Fit::At(time),
                    None => Fit::Blocked(Retry::Never),
                }
            }
            policy => self.fit_counted(policy, now),
        }
    }

    fn fit_counted(&self, policy: &Policy, now: Now) -> Fit {
        let left = policy.capacity().saturating_sub(self.used());
        let wait = if self.cost > policy.capacity() {
            Some(Retry::Never)
        } else if self.cost > left {
            Some(match policy {
                Policy::Quota(_) => Retry::After(self.window_left(now)),
                Policy::Concurrency(_) => self.slots_free_in.map_or(Retry::OnRelease, Retry::After),
                Policy::Bucket(_) | Policy::Allowance(_) => Retry::Never,
            })
        } else {
            None
        };
        let hold =
            (self.held_until > now.time).then(|| Retry::After(self.held_until.since(now.time)));
        match wait.max(hold) {
            Some(retry) => Fit::Blocked(retry),
            None => Fit::At(now.time),
        }
    }

    /// Whether a reservation may start at `start`: not in a later calendar window.
    pub(crate) fn can_start_at(&self, start: Time, now: Now) -> bool {
        self.cost == 0
            || !matches!(self.policy, Policy::Quota(_))
            || start.since(now.time) < self.window_left(now)
            || start == now.time
    }

    /// Spends the cost as of `start`.
    #[inline]
    pub(crate) fn spend(&mut self, start: Time, now: Now) {
        if self.cost == 0 {
            return;
        }
        let used = self.used().saturating_add(self.cost);
        self.state = match self.policy {
            Policy::Bucket(bucket) => {
                State::Bucket(bucket.spend(self.effective(bucket, now), self.cost, start))
            }
            Policy::Quota(_) => State::Quota { ends: self.window, used },
            Policy::Allowance(_) => State::Allowance { used },
            Policy::Concurrency(_) => State::Concurrency { taken: used },
        };
    }

    /// Corrects an earlier spend by `delta`. `spend` is its stamp and the start of its receipt;
    /// `generation` is the present one.
    ///
    /// Slots are not settled here: giving back those of a receipt is the store's affair, and
    /// without a receipt nothing is given back.
    pub fn settle(
        &mut self,
        delta: i64,
        spend: Option<(&Stamp, Time)>,
        generation: u32,
        now: Now,
    ) -> Settled {
        if delta == 0 {
            return Settled::default();
        }
        match *self.policy {
            Policy::Bucket(bucket) => self.settle_bucket(&bucket, delta, spend, generation, now),
            Policy::Quota(quota) => self.settle_quota(quota, delta, spend),
            Policy::Allowance(allowance) => {
                let amount = allowance.amount();
                let before = self.used();
                let (used, saturated) = settle_used(before, delta, amount.saturating_mul(2));
                self.state = State::Allowance { used };
                Settled { saturated, dropped: false, applied: difference(used, before) }
            }
            Policy::Concurrency(_) => Settled::nothing_of(delta),
        }
    }

    fn settle_bucket(
        &mut self,
        bucket: &Bucket,
        delta: i64,
        spend: Option<(&Stamp, Time)>,
        generation: u32,
        now: Now,
    ) -> Settled {
        let tokens = delta.unsigned_abs();
        let tat = self.tat();
        if delta > 0 {
            let (charged, saturated) = bucket.charge(tat, tokens, now.time);
            self.state = State::Bucket(charged);
            if !saturated {
                return Settled::in_full(delta);
            }
            let applied = i64::try_from(bucket.tokens_between(tat, charged, now.time));
            return Settled { saturated, dropped: false, applied: applied.unwrap_or(i64::MAX) };
        }
        let built_on = match spend {
            Some((stamp, start)) if start > now.time => match stamp.state {
                State::Bucket(then) if stamp.generation == generation => bucket.built_on(tat, then),
                // The stamp of another generation cannot be compared: give nothing back.
                _ => Exact::MAX,
            },
            _ => Exact::ZERO,
        };
        let dropped = bucket.span(tokens) <= built_on;
        if dropped {
            return Settled::nothing_of(delta);
        }
        if tat != Exact::ZERO {
            self.state = State::Bucket(bucket.refund(tat, tokens, built_on, now.time));
        }
        let kept = i64::try_from(bucket.tokens_ceil(built_on)).unwrap_or(i64::MAX);
        Settled::in_full(delta.saturating_add(kept))
    }

    fn settle_quota(&mut self, quota: Quota, delta: i64, spend: Option<(&Stamp, Time)>) -> Settled {
        let earlier = spend.is_some_and(|(stamp, _)| match stamp.state {
            State::Quota { ends, .. } => ends != self.window,
            _ => true,
        });
        if delta < 0 && earlier {
            return Settled::nothing_of(delta);
        }
        let most = quota.amount().saturating_add(quota.max_debt());
        let before = self.used();
        let (used, saturated) = settle_used(before, delta, most);
        self.state = State::Quota { ends: self.window, used };
        Settled { saturated, dropped: false, applied: difference(used, before) }
    }

    /// How the entry stands at `now`, with the wait for its cost.
    #[must_use]
    #[inline]
    pub fn outcome(&self, now: Now, retry: Option<Retry>) -> Outcome {
        match self.policy {
            Policy::Bucket(bucket) => {
                let effective = self.effective(bucket, now);
                Outcome::new(
                    bucket.capacity(),
                    bucket.remaining(effective, now.time),
                    Some(bucket.reset(effective, now.time)),
                    retry,
                )
            }
            policy => {
                let left = policy.capacity().saturating_sub(self.used());
                let remaining = if self.held_until > now.time { 0 } else { left };
                let reset = match policy {
                    Policy::Quota(_) => Some(self.window_left(now)),
                    _ => None,
                };
                Outcome::new(policy.capacity(), remaining, reset, retry)
            }
        }
    }

    /// The wait for the cost alone; `None` if it fits now.
    #[must_use]
    #[inline]
    pub fn retry(&self, now: Now) -> Option<Retry> {
        match self.fit(now) {
            Fit::At(time) if time <= now.time => None,
            Fit::At(time) => Some(Retry::After(time.since(now.time))),
            Fit::Blocked(retry) => Some(retry),
        }
    }

    /// The concurrency policy, if it is one.
    #[must_use]
    pub const fn concurrency(&self) -> Option<&'a Concurrency> {
        match self.policy {
            Policy::Concurrency(concurrency) => Some(concurrency),
            _ => None,
        }
    }

    #[inline]
    fn tat(&self) -> Exact {
        match self.state {
            State::Bucket(tat) => tat,
            _ => Exact::ZERO,
        }
    }

    #[inline]
    fn effective(&self, bucket: &Bucket, now: Now) -> Exact {
        bucket.effective(self.tat(), self.held_until, now.time)
    }

    fn used(&self) -> u64 {
        match self.state {
            State::Quota { used, .. } | State::Allowance { used } => used,
            State::Concurrency { taken } => taken,
            State::Fresh | State::Bucket(_) => 0,
        }
    }

    fn window_left(&self, now: Now) -> Duration {
        WallTime::from_secs(self.window).since(now.wall)
    }
}

fn difference(after: u64, before: u64) -> i64 {
    let difference = i128::from(after) - i128::from(before);
    i64::try_from(difference).unwrap_or(if difference < 0 { i64::MIN } else { i64::MAX })
}
