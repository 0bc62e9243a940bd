//! One bucket during an operation, for all kinds of policy.

use super::entry::State;
use super::exact_policy::{ExactPolicy, Rational, ceil, from_nanos};
use crate::scenario::spec::PolicySpec;
use crate::scenario::step::{ExpectedOutcome, Wait};

const SECOND: u64 = 1_000_000_000;

/// The state of one bucket after a spend.
#[derive(Clone, Debug)]
pub(super) struct Stamp {
    pub(super) limit: usize,
    pub(super) key: String,
    pub(super) generation: usize,
    /// Whether the charge cost anything.
    pub(super) spent: bool,
    pub(super) state: State,
}

/// One bucket during an operation.
#[derive(Clone, Debug)]
pub(super) struct WorkingBucket {
    pub(super) limit: usize,
    pub(super) key: String,
    pub(super) generation: usize,
    pub(super) state: State,
    pub(super) cost: u128,
    policy: PolicySpec,
    exact: Option<ExactPolicy>,
    pub(super) held_until: Option<u64>,
    /// End of the current calendar window, in seconds.
    window: u64,
    now: u64,
}

/// The effect of a settlement on one bucket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settled {
    pub(super) saturated: bool,
    pub(super) dropped: bool,
}

/// Arguments of [`WorkingBucket::open`].
pub(super) struct BucketInputs<'a> {
    pub(super) limit: usize,
    pub(super) key: &'a str,
    pub(super) generation: usize,
    pub(super) policy: &'a PolicySpec,
    pub(super) window_s: Option<u32>,
    pub(super) state: State,
    pub(super) held_until: Option<u64>,
    pub(super) now: u64,
}

impl WorkingBucket {
    pub(super) fn open(inputs: BucketInputs<'_>) -> Self {
        let BucketInputs { limit, key, generation, policy, window_s, state, held_until, now } =
            inputs;
        let (window, state) = match window_s {
            Some(length) => current_window(u64::from(length), state, now),
            None => (0, state),
        };
        Self {
            limit,
            key: key.to_owned(),
            generation,
            state,
            cost: 0,
            policy: policy.clone(),
            exact: ExactPolicy::of(policy),
            held_until,
            window,
            now,
        }
    }

    fn capacity(&self) -> u128 {
        self.policy.capacity().into()
    }

    fn gap(&self, exact: &ExactPolicy) -> Rational {
        exact.gap_with_hold(self.state.stored(), self.held_until, self.now)
    }

    fn window_left(&self) -> u64 {
        (self.window * SECOND).saturating_sub(self.now)
    }

    /// Caps a stored instant that is so far ahead that the clock must have stepped refund. Returns
    /// whether it changed.
    pub(super) fn repair(&mut self, now: u64) -> bool {
        let (Some(exact), Some(stored)) = (&self.exact, self.state.stored()) else { return false };
        let Some(repaired) = exact.repaired(stored, now) else { return false };
        self.state = State::Bucket(repaired);
        true
    }

    /// The instant at which the cost fits, or the wait if it cannot be reserved.
    pub(super) fn fit(&self) -> Result<u64, Wait> {
        if self.cost == 0 {
            return Ok(self.now);
        }
        if let Some(exact) = &self.exact {
            let wait = exact.wait(&self.gap(exact), self.cost).ok_or(Wait::Never)?;
            return Ok(self.now + wait);
        }
        let room = self.capacity().saturating_sub(self.state.used().into());
        let wait = if self.cost > self.capacity() {
            Some(Wait::Never)
        } else if self.cost > room {
            Some(match self.policy {
                PolicySpec::Quota { .. } => Wait::Ns(self.window_left()),
                PolicySpec::Concurrency { .. } => Wait::OnRelease,
                _ => Wait::Never,
            })
        } else {
            None
        };
        let held = self.held_until.filter(|&until| until > self.now);
        let held = held.map(|until| Wait::Ns(until - self.now));
        // `None` is less than any wait.
        wait.max(held).map_or(Ok(self.now), Err)
    }

    /// The wait of this cost alone; `None` if it fits now.
    pub(super) fn retry(&self) -> Option<Wait> {
        match self.fit() {
            Ok(start) if start == self.now => None,
            Ok(start) => Some(Wait::Ns(start - self.now)),
            Err(wait) => Some(wait),
        }
    }

    /// The maximum wait of a reservation that this bucket permits.
    pub(super) fn max_wait(&self) -> u64 {
        match (&self.exact, &self.policy) {
            _ if self.cost == 0 => u64::MAX,
            (Some(exact), _) => exact.horizon_ns(),
            // A reservation must start before the current window ends.
            (None, PolicySpec::Quota { .. }) => self.window_left().saturating_sub(1),
            (None, _) => u64::MAX,
        }
    }

    /// Spends the cost with effect from `start`, in step `step`.
    pub(super) fn spend(&mut self, start: u64, step: usize) {
        if self.cost == 0 {
            return;
        }
        if let Some(exact) = &self.exact {
            let gap = self.gap(exact);
            self.state = State::Bucket(exact.spent(&gap, self.cost, start, self.now));
            return;
        }
        // A cost that fits is at max_used the capacity, which has 64 bits.
        let cost = u64::try_from(self.cost).unwrap_or(u64::MAX);
        let used = self.state.used() + cost;
        self.state = match (&self.policy, std::mem::take(&mut self.state)) {
            (PolicySpec::Quota { .. }, _) => State::Quota { ends: self.window, used },
            (PolicySpec::Concurrency { .. }, State::Slots(mut slots)) => {
                slots.insert(step, cost);
                State::Slots(slots)
            }
            (PolicySpec::Concurrency { .. }, _) => State::Slots([(step, cost)].into()),
            (_, _) => State::Allowance { used },
        };
    }

    /// Corrects an earlier spend; `spend` is its stamp and the instant at which it takes effect.
    pub(super) fn settle(&mut self, delta: i64, spend: Option<(&Stamp, u64)>) -> Settled {
        if let Some(exact) = self.exact.clone() {
            return self.settle_bucket(&exact, delta, spend);
        }
        let used = self.state.used();
        let amount = self.policy.capacity();
        // Both counted policies permit a debt equal to their amount.
        let max_used = amount.saturating_mul(2).max(used);
        let wanted = i128::from(used) + i128::from(delta);
        let next = u64::try_from(wanted.max(0)).unwrap_or(u64::MAX).min(max_used);
        let saturated = delta > 0 && wanted > i128::from(max_used);
        match self.policy {
            PolicySpec::Quota { .. } => {
                let same_window = |(stamp, _): (&Stamp, u64)| matches!(stamp.state, State::Quota { ends, .. } if ends == self.window);
                if delta < 0 && !spend.is_none_or(same_window) {
                    return Settled { saturated: false, dropped: true };
                }
                self.state = State::Quota { ends: self.window, used: next };
            }
            PolicySpec::Allowance { .. } => self.state = State::Allowance { used: next },
            _ => return Settled { saturated: delta > 0, dropped: false },
        }
        Settled { saturated, dropped: false }
    }

    fn settle_bucket(
        &mut self,
        exact: &ExactPolicy,
        delta: i64,
        spend: Option<(&Stamp, u64)>,
    ) -> Settled {
        let tokens = u128::from(delta.unsigned_abs());
        let gap = exact.gap(self.state.stored(), self.now);
        if delta > 0 {
            let (gap, saturated) = exact.charged(&gap, tokens);
            self.state = State::Bucket(from_nanos(self.now) + gap);
            return Settled { saturated, dropped: false };
        }
        if delta == 0 {
            return Settled::default();
        }
        let zero = from_nanos(0);
        let mut refund = exact.span(tokens);
        if let Some((stamp, _)) = spend.filter(|&(_, start)| start > self.now) {
            let (State::Bucket(then), true) = (&stamp.state, stamp.generation == self.generation)
            else {
                return Settled { saturated: false, dropped: true };
            };
            let depended_on = self.state.stored().map_or(zero.clone(), |stored| stored - then);
            refund -= depended_on.max(zero.clone());
            if refund <= zero {
                return Settled { saturated: false, dropped: true };
            }
        }
        if gap > zero {
            self.state = State::Bucket(from_nanos(self.now) + (gap - refund).max(zero));
        }
        Settled::default()
    }

    /// The outcome of a charge on this bucket.
    pub(super) fn outcome(&self, retry_ns: Option<Wait>) -> ExpectedOutcome {
        if let Some(exact) = &self.exact {
            let gap = self.gap(exact);
            let reset_ns = Some(ceil(&gap));
            return ExpectedOutcome { remaining: exact.remaining(&gap), reset_ns, retry_ns };
        }
        let held = self.held_until.is_some_and(|until| until > self.now);
        let left = self.policy.capacity().saturating_sub(self.state.used());
        let reset_ns = matches!(self.policy, PolicySpec::Quota { .. }).then(|| self.window_left());
        ExpectedOutcome { remaining: if held { 0 } else { left }, reset_ns, retry_ns }
    }
}

/// Returns the current window and what was used in it. If the clock has stepped refund, the next
/// window stays current, as long as the caller names it.
fn current_window(length: u64, state: State, now: u64) -> (u64, State) {
    let present = (now / SECOND / length + 1) * length;
    match state {
        // The caller names the windows before and after the current one.
        State::Quota { ends, .. } if ends == present + length => (ends, state),
        State::Quota { ends, .. } if ends != present => (present, State::Fresh),
        state => (present, state),
    }
}
