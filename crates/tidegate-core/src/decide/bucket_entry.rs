//! One bucket of a decision: its policy, its state and the cost.
//!
//! A store creates an entry for each bucket it has locked, passes the entries to
//! [`decide`](crate::decide), and writes the states back. This is the only place that handles all
//! kinds of policy.

use core::time::Duration;

use crate::decision::{Outcome, Retry};
use crate::policy::Policy;
use crate::policy::bucket::TokenBucket;
use crate::policy::counter::{Concurrency, Quota, settle_used};
use crate::policy::exact::ExactTime;
use crate::receipt::ChargeRecord;
use crate::state::State;
use crate::time::{Now, Time, WallTime, Windows};

/// Whether and when a cost fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// From this instant on; may be reserved ahead.
    At(Time),
    /// Not at any instant that could be reserved.
    Blocked(Retry),
}

/// What a settlement did to one entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntrySettlement {
    /// The debt reached its maximum; the excess is forgiven.
    pub saturated: bool,
    /// A refund had no effect.
    pub dropped: bool,
    /// Whole tokens actually charged; negative if refunded.
    pub applied: i64,
}

impl EntrySettlement {
    /// The correction applied in full.
    const fn in_full(delta: i64) -> Self {
        Self { saturated: false, dropped: false, applied: delta }
    }

    /// Returns the result of releasing `given` slots of a lease.
    #[must_use]
    pub fn slots_released(given: u64) -> Self {
        let applied = i64::try_from(given).map_or(i64::MIN, |given| -given);
        Self { saturated: false, dropped: given == 0, applied }
    }

    /// Returns the result of a correction that had no effect.
    #[must_use]
    pub const fn without_effect(delta: i64) -> Self {
        Self { saturated: delta > 0, dropped: delta < 0, applied: 0 }
    }
}

/// One bucket of a decision.
#[derive(Clone, Copy, Debug)]
pub struct BucketEntry<'a> {
    policy: &'a Policy,
    state: State,
    held_until: Time,
    cost: u64,
    /// End of the calendar window in use, in seconds since the Unix epoch.
    window: u32,
    /// Time until enough leases will have expired for the cost.
    slots_free_in: Option<Duration>,
}

impl<'a> BucketEntry<'a> {
    /// Creates an entry for a bucket in `state`, held until `held_until` (zero: not held).
    #[must_use]
    #[inline]
    pub fn new(policy: &'a Policy, state: State, held_until: Time, cost: u64) -> Self {
        Self { policy, state, held_until, cost, window: 0, slots_free_in: None }
    }

    /// Selects the calendar window that contains the store's wall time. Returns `false` if none of
    /// the three does.
    ///
    /// If the clock has stepped back into an earlier window, usage recorded for the later one
    /// continues to count.
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

    /// Sets the time after which enough leases will have expired for the cost.
    #[must_use]
    pub fn slots_free_in(mut self, span: Option<Duration>) -> Self {
        self.slots_free_in = span;
        self
    }

    /// Sets the number of slots taken.
    pub fn set_taken(&mut self, taken: u64) {
        self.state = State::Concurrency { taken };
    }

    /// Lowers an arrival time that is too far ahead because the clock stepped back. Returns whether
    /// the state changed. If so, write it even if nothing is spent: otherwise the key stays locked
    /// out until the clock has caught up.
    pub fn repair(&mut self, now: Now) -> bool {
        let (Policy::Bucket(bucket), State::Bucket(tat)) = (self.policy, self.state) else {
            return false;
        };
        let repaired = bucket.effective_tat(tat, Time::ZERO, now.time);
        self.state = State::Bucket(repaired);
        repaired != tat
    }

    /// Returns the state to write back.
    #[must_use]
    #[inline]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Returns the policy.
    #[must_use]
    pub const fn policy(&self) -> &'a Policy {
        self.policy
    }

    /// Returns the cost.
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
                match bucket.earliest(self.effective_tat(bucket, now), self.cost, now.time) {
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

    /// Returns whether the charge may take effect at `start`: not in a later calendar window.
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
                State::Bucket(bucket.spend(self.effective_tat(bucket, now), self.cost, start))
            }
            Policy::Quota(_) => State::Quota { ends: self.window, used },
            Policy::Allowance(_) => State::Allowance { used },
            Policy::Concurrency(_) => State::Concurrency { taken: used },
        };
    }

    /// Corrects an earlier charge by `delta` tokens. `spend` is its record and the start time of
    /// its receipt; `generation` is the current one.
    ///
    /// Slots are not settled here: the store releases those of a receipt itself, and without a
    /// receipt nothing is released.
    pub fn settle(
        &mut self,
        delta: i64,
        spend: Option<(&ChargeRecord, Time)>,
        generation: u32,
        now: Now,
    ) -> EntrySettlement {
        if delta == 0 {
            return EntrySettlement::default();
        }
        match *self.policy {
            Policy::Bucket(bucket) => self.settle_bucket(&bucket, delta, spend, generation, now),
            Policy::Quota(quota) => self.settle_quota(quota, delta, spend),
            Policy::Allowance(allowance) => {
                let amount = allowance.amount();
                let before = self.used();
                let (used, saturated) = settle_used(before, delta, amount.saturating_mul(2));
                self.state = State::Allowance { used };
                EntrySettlement { saturated, dropped: false, applied: difference(used, before) }
            }
            Policy::Concurrency(_) => EntrySettlement::without_effect(delta),
        }
    }

    fn settle_bucket(
        &mut self,
        bucket: &TokenBucket,
        delta: i64,
        spend: Option<(&ChargeRecord, Time)>,
        generation: u32,
        now: Now,
    ) -> EntrySettlement {
        let tokens = delta.unsigned_abs();
        let tat = self.tat();
        if delta > 0 {
            let (charged, saturated) = bucket.charge(tat, tokens, now.time);
            self.state = State::Bucket(charged);
            if !saturated {
                return EntrySettlement::in_full(delta);
            }
            let applied = i64::try_from(bucket.tokens_between(tat, charged, now.time));
            return EntrySettlement {
                saturated,
                dropped: false,
                applied: applied.unwrap_or(i64::MAX),
            };
        }
        let built_on = match spend {
            Some((record, start)) if start > now.time => match record.state {
                State::Bucket(then) if record.generation == generation => {
                    bucket.charged_since(tat, then)
                }
                // Arrival times of different generations cannot be compared: refund nothing.
                _ => ExactTime::MAX,
            },
            _ => ExactTime::ZERO,
        };
        let dropped = bucket.span(tokens) <= built_on;
        if dropped {
            return EntrySettlement::without_effect(delta);
        }
        if tat != ExactTime::ZERO {
            self.state = State::Bucket(bucket.refund(tat, tokens, built_on, now.time));
        }
        let kept = i64::try_from(bucket.tokens_ceil(built_on)).unwrap_or(i64::MAX);
        EntrySettlement::in_full(delta.saturating_add(kept))
    }

    fn settle_quota(
        &mut self,
        quota: Quota,
        delta: i64,
        spend: Option<(&ChargeRecord, Time)>,
    ) -> EntrySettlement {
        let earlier = spend.is_some_and(|(record, _)| match record.state {
            State::Quota { ends, .. } => ends != self.window,
            _ => true,
        });
        if delta < 0 && earlier {
            return EntrySettlement::without_effect(delta);
        }
        let most = quota.amount().saturating_add(quota.max_debt());
        let before = self.used();
        let (used, saturated) = settle_used(before, delta, most);
        self.state = State::Quota { ends: self.window, used };
        EntrySettlement { saturated, dropped: false, applied: difference(used, before) }
    }

    /// Returns the state at `now` as an outcome with the given `retry`.
    #[must_use]
    #[inline]
    pub fn outcome(&self, now: Now, retry: Option<Retry>) -> Outcome {
        match self.policy {
            Policy::Bucket(bucket) => {
                let effective = self.effective_tat(bucket, now);
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

    /// Returns when the cost alone would fit; `None` if it fits now.
    #[must_use]
    #[inline]
    pub fn retry(&self, now: Now) -> Option<Retry> {
        match self.fit(now) {
            Fit::At(time) if time <= now.time => None,
            Fit::At(time) => Some(Retry::After(time.since(now.time))),
            Fit::Blocked(retry) => Some(retry),
        }
    }

    /// Returns the policy if it is a concurrency limit.
    #[must_use]
    pub const fn concurrency(&self) -> Option<&'a Concurrency> {
        match self.policy {
            Policy::Concurrency(concurrency) => Some(concurrency),
            _ => None,
        }
    }

    #[inline]
    fn tat(&self) -> ExactTime {
        match self.state {
            State::Bucket(tat) => tat,
            _ => ExactTime::ZERO,
        }
    }

    #[inline]
    fn effective_tat(&self, bucket: &TokenBucket, now: Now) -> ExactTime {
        bucket.effective_tat(self.tat(), self.held_until, now.time)
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
