//! A concurrency limit that adapts to the outcomes of calls.
//!
//! It grows only after it was reached without push-back (calls rejected as throttled or
//! overloaded), and shrinks once per burst of push-back: calls that started before a decrease do
//! not count against the smaller limit. It remembers where it was pushed back, climbs to just below
//! that, and probes beyond it only now and then, so it settles instead of oscillating. Time and
//! calls are arguments; nothing here has side effects.
//!
//! Until the first push-back it doubles: with every round of answers, and four times per second
//! while calls wait for a slot, because the answers to long calls come too late to learn from.

use std::time::Duration;

use tidegate_core::Time;

/// How a call with a permit ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PermitOutcome {
    /// It was answered.
    Success,
    /// The server rejected it as too much, perhaps with a time to retry after. Holding the keys
    /// until then is up to the caller: only the caller knows which keys the time applies to.
    Throttled {
        /// The time to retry after.
        retry_after: Option<Duration>,
    },
    /// The server was overloaded.
    Overloaded,
    /// It failed for a reason unrelated to load.
    Failed,
    /// It was cancelled, or its outcome is unknown. Counts neither way.
    #[default]
    Ignored,
}

/// Bounds, thresholds and step sizes of an adaptive limit. By default it shrinks by a fifth when
/// more than 5 % of calls are pushed back, and grows by a fifth when at most 1 % are, regardless of
/// latency. Until the first push-back it doubles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tuning {
    /// Smallest limit, at least 1.
    pub floor: u64,
    /// Initial limit.
    pub start: u64,
    /// Largest limit.
    pub cap: u64,
    /// The limit shrinks when more than this share of calls is pushed back, in thousandths.
    pub decrease_above: u32,
    /// What remains of the limit after it shrinks, in thousandths; at least one slot is removed.
    pub decrease_to: u32,
    /// The limit grows when at most this share of calls is pushed back, in thousandths.
    pub increase_below: u32,
    /// What the limit grows to, in thousandths of the old limit; at least one slot is added.
    pub increase_to: u32,
    /// The limit grows only while the average latency is at most this. `None`: latency does not
    /// matter.
    pub max_latency: Option<Duration>,
}

impl Tuning {
    /// Default tuning between 1 and `cap`, starting at `start`.
    ///
    /// ```
    /// use tidegate::Engine;
    /// use tidegate::pacer::{Pacer, Tuning};
    /// let pacer = Pacer::builder(&Engine::new()).adaptive(Tuning::new(4, 64)).build();
    /// assert_eq!(pacer.gauges().concurrency, Some(4));
    /// ```
    #[must_use]
    pub const fn new(start: u64, cap: u64) -> Self {
        Self {
            floor: 1,
            start,
            cap,
            decrease_above: 50,
            decrease_to: 800,
            increase_below: 10,
            increase_to: 1_200,
            max_latency: None,
        }
    }
}

impl Tuning {
    /// Whether more than this many thousandths of the calls of a round were pushed back.
    fn is_above(round: Round, per_mille: u32) -> bool {
        u128::from(round.pushed_back) * 1_000 > u128::from(round.answered) * u128::from(per_mille)
    }

    fn decreased(&self, limit: u64) -> u64 {
        scaled(limit, self.decrease_to).min(limit.saturating_sub(1))
    }

    fn increased(&self, limit: u64) -> u64 {
        scaled(limit, self.increase_to).max(limit.saturating_add(1))
    }
}

fn scaled(limit: u64, per_mille: u32) -> u64 {
    let scaled = u128::from(limit) * u128::from(per_mille) / 1_000;
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// When a call started, and under which limit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallStart {
    epoch: u64,
    /// `None` if the limit did not adapt then.
    started_at: Option<Time>,
}

/// How long calls wait for a slot before the limit doubles, if nothing was ever pushed back. A
/// rejection arrives sooner than that.
const DOUBLING_DELAY: Duration = Duration::from_millis(250);
/// How long calls wait below a known ceiling before the limit goes half of the way to it.
const APPROACH_DELAY: Duration = Duration::from_secs(10);

/// Rounds without push-back just below the ceiling before the limit probes beyond it.
const MIN_CALM_ROUNDS: u64 = 8;
const MAX_CALM_ROUNDS: u64 = 256;

/// Number of answers in a sample.
const SAMPLE_SIZE: u64 = 100;
/// Fewest push-backs that make the limit shrink.
const MIN_PUSH_BACKS: u64 = 3;

/// Number of answers, and how many of them were push-backs.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    answered: u64,
    pushed_back: u64,
}

/// Weight of the latest call in the moving average of the latency: one in this many.
const LATENCY_WEIGHT: u32 = 8;

/// A limit that adapts.
#[derive(Clone, Debug)]
pub(crate) struct Adaptive {
    tuning: Tuning,
    limit: u64,
    /// Average latency of recent calls; `None` until one has been answered.
    latency: Option<Duration>,
    /// Smallest limit at which calls were pushed back.
    ceiling: Option<u64>,
    /// The last limit, before large steps, under which calls were answered.
    proven: Option<u64>,
    /// Since when calls wait for a slot under the current limit.
    waiting_since: Option<Time>,
    /// Calls that started in an earlier epoch say nothing about the current limit.
    epoch: u64,
    /// Whether the limit was reached since it last changed.
    was_reached: bool,
    /// The current round: as many answers as the limit.
    round: Round,
    /// The latest one or two hundred answers, whatever the limit was: the current sample and the
    /// previous one.
    sample: Round,
    previous_sample: Round,
    /// Consecutive rounds without push-back just below the ceiling, and how many are required.
    calm_rounds: u64,
    required_calm_rounds: u64,
}

impl Adaptive {
    pub(crate) fn new(mut tuning: Tuning) -> Self {
        tuning.floor = tuning.floor.max(1);
        tuning.cap = tuning.cap.max(tuning.floor);
        let limit = tuning.start.clamp(tuning.floor, tuning.cap);
        tuning.start = limit;
        Self {
            tuning,
            limit,
            latency: None,
            ceiling: None,
            proven: None,
            waiting_since: None,
            epoch: 0,
            was_reached: false,
            round: Round::default(),
            sample: Round::default(),
            previous_sample: Round::default(),
            calm_rounds: 0,
            required_calm_rounds: MIN_CALM_ROUNDS,
        }
    }

    /// Starts at this epoch, so that calls of earlier epochs do not count.
    pub(crate) fn from_epoch(epoch: u64, tuning: Tuning) -> Self {
        Self { epoch, ..Self::new(tuning) }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Restarts from another limit, within the bounds, and forgets what was learned. Returns the
    /// limit in force.
    pub(crate) fn restart(&mut self, limit: u64) -> u64 {
        let tuning = Tuning { start: limit, ..self.tuning };
        *self = Self { epoch: self.epoch + 1, ..Self::new(tuning) };
        self.limit
    }

    /// Replaces the tuning. The limit stays where it is, within the new bounds.
    pub(crate) fn reconfigure(&mut self, tuning: Tuning) {
        let fresh = Self::new(Tuning { start: self.limit, ..tuning });
        self.tuning = Tuning { start: tuning.start, ..fresh.tuning };
        if fresh.limit != self.limit {
            self.set(fresh.limit);
        }
    }

    pub(crate) const fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// Smallest limit at which calls were pushed back, if any.
    pub(crate) fn pushed_back_at(&self) -> Option<u64> {
        self.ceiling
    }

    /// Whether latency is too high for the limit to grow.
    pub(crate) fn is_slow(&self) -> bool {
        self.tuning.max_latency.is_some_and(|most| self.latency.is_some_and(|now| now > most))
    }

    /// Records that a call starts while `in_flight` calls are in flight, including itself. Pass the
    /// result to [`call_ended`](Self::call_ended).
    pub(crate) fn call_started(&mut self, in_flight: u64, started_at: Time) -> CallStart {
        self.was_reached |= in_flight >= self.limit;
        CallStart { epoch: self.epoch, started_at: Some(started_at) }
    }

    /// Records that calls wait for a slot at `now`. Raises the limit if they have waited long
    /// enough. Returns when it will rise next if they still wait then; `None` if it will not.
    pub(crate) fn slots_wanted(&mut self, now: Time) -> Option<Time> {
        // Where latency matters, it must be known first.
        let is_unknown = self.tuning.max_latency.is_some() && self.latency.is_none();
        if is_unknown || self.is_slow() {
            return None;
        }
        let (next, pause) = match self.ceiling {
            Some(ceiling) => (self.limit + ceiling.saturating_sub(self.limit) / 2, APPROACH_DELAY),
            None => (self.limit.saturating_mul(2), DOUBLING_DELAY),
        };
        let next = next.min(self.tuning.cap);
        if self.limit >= next {
            return None;
        }
        let since = *self.waiting_since.get_or_insert(now);
        if now.since(since) < pause {
            return Some(since.after(pause));
        }
        // Nothing was answered since, so the last proven limit is still the one before.
        let proven = self.proven.unwrap_or(self.limit);
        self.grow_to(next, proven);
        self.waiting_since = Some(now);
        self.slots_wanted(now)
    }

    /// Records that no call waits for a slot.
    pub(crate) fn slots_free(&mut self) {
        self.waiting_since = None;
    }

    /// Records the end of a call.
    pub(crate) fn call_ended(&mut self, outcome: PermitOutcome, call_start: CallStart, now: Time) {
        let Some(started_at) = call_start.started_at else { return };
        if outcome == PermitOutcome::Success {
            let (took, mean) = (now.since(started_at), self.latency);
            let mean =
                mean.map_or(took, |mean| mean - mean / LATENCY_WEIGHT + took / LATENCY_WEIGHT);
            self.latency = Some(mean);
        }
        if call_start.epoch != self.epoch {
            return;
        }
        match outcome {
            PermitOutcome::Success => {
                self.count(0);
                self.maybe_grow();
            }
            PermitOutcome::Throttled { .. } | PermitOutcome::Overloaded => {
                self.count(1);
                let sample = Round {
                    answered: self.previous_sample.answered + self.sample.answered,
                    pushed_back: self.previous_sample.pushed_back + self.sample.pushed_back,
                };
                // By default more than 5 % is too much, but a few answers say little. In a large
                // sample 3 % is too much. Where calls were pushed back before, so is half of the
                // threshold.
                let most = self.tuning.decrease_above;
                let is_large_sample = sample.answered >= SAMPLE_SIZE + SAMPLE_SIZE / 2;
                if self.ceiling == Some(self.limit) {
                    if Tuning::is_above(self.round, most / 2) {
                        self.step_back();
                    }
                } else if sample.pushed_back >= MIN_PUSH_BACKS && Tuning::is_above(sample, most) {
                    self.shrink();
                } else if is_large_sample && Tuning::is_above(sample, most * 3 / 5) {
                    self.ceiling = Some(self.limit);
                    self.step_back();
                }
            }
            PermitOutcome::Failed | PermitOutcome::Ignored => {}
        }
    }

    fn count(&mut self, pushed_back: u64) {
        for counted in [&mut self.round, &mut self.sample] {
            counted.answered += 1;
            counted.pushed_back += pushed_back;
        }
        if self.sample.answered >= SAMPLE_SIZE {
            self.previous_sample = std::mem::take(&mut self.sample);
        }
    }

    /// Grows after a round of as many answers as the limit, if hardly any were pushed back.
    fn maybe_grow(&mut self) {
        if self.round.answered < self.limit.max(4) {
            return;
        }
        let clean = !Tuning::is_above(self.round, self.tuning.increase_below);
        let grow = clean && self.was_reached && !self.is_slow();
        self.round = Round::default();
        self.was_reached = false;
        if !grow {
            return;
        }
        let limit = match self.ceiling {
            // Well below the ceiling: a fifth more, at least one.
            Some(ceiling) if self.limit + 1 < ceiling => {
                self.tuning.increased(self.limit).min(ceiling - 1)
            }
            // Just below the ceiling: wait, then probe beyond it.
            Some(ceiling) if self.limit < ceiling => {
                self.calm_rounds += 1;
                if self.calm_rounds < self.required_calm_rounds {
                    return;
                }
                self.limit + 1
            }
            // The limit holds where it was pushed back before: forget the ceiling.
            Some(_) => {
                self.ceiling = None;
                self.required_calm_rounds = MIN_CALM_ROUNDS;
                self.limit + 1
            }
            // Nothing was ever pushed back: double.
            None => return self.grow_to(self.limit.saturating_mul(2), self.limit),
        };
        self.set(limit);
    }

    /// Grows by a large step, which is undone if calls are pushed back. Calls that started before
    /// the step may be pushed back after it, and count.
    fn grow_to(&mut self, limit: u64, proven: u64) {
        let (epoch, waiting_since) = (self.epoch, self.waiting_since);
        self.set(limit);
        (self.epoch, self.proven, self.waiting_since) = (epoch, Some(proven), waiting_since);
    }

    /// Shrinks, once per epoch: to the last proven limit before doubling, else by a part and at
    /// least one.
    fn shrink(&mut self) {
        let less = self.tuning.decreased(self.limit);
        let limit = self.proven.take().filter(|proven| *proven < self.limit);
        self.ceiling = Some(self.limit);
        self.required_calm_rounds = MIN_CALM_ROUNDS;
        (self.sample, self.previous_sample) = (Round::default(), Round::default());
        self.set(limit.unwrap_or(less));
    }

    /// The probe beyond the ceiling was pushed back: go back by one, and wait longer before the
    /// next.
    fn step_back(&mut self) {
        self.required_calm_rounds = (self.required_calm_rounds * 2).min(MAX_CALM_ROUNDS);
        (self.sample, self.previous_sample) = (Round::default(), Round::default());
        self.set(self.limit - 1);
    }

    fn set(&mut self, limit: u64) {
        self.limit = limit.clamp(self.tuning.floor, self.tuning.cap);
        self.proven = None;
        self.epoch += 1;
        self.round = Round::default();
        (self.was_reached, self.calm_rounds) = (false, 0);
        self.waiting_since = None;
    }
}

#[cfg(test)]
mod tests;
