//! A concurrency limit that finds its own size from what comes back.
//!
//! It grows only when it was reached and nothing was pushed back, and shrinks once per burst of
//! push-back: calls that left before a decrease are not counted against the smaller limit. It
//! remembers where it was pushed back, climbs to just below that, and looks beyond only now and
//! then; so it settles instead of swinging. Pure: time and calls come in as arguments.
//!
//! Until the first push-back it doubles: with every round of answers, and four times in a second that
//! calls wait for a slot, since the answers to long calls come too late to learn from.

use std::time::Duration;

use tidegate_core::Time;

/// How a call that held a permit ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallOutcome {
    /// It was answered.
    Success,
    /// The other side said that this was too much, perhaps with a time to come back. Holding the
    /// keys until then is the caller's: only it knows whom the time is meant for.
    Throttled {
        /// The time to come back after.
        retry_after: Option<Duration>,
    },
    /// The other side was overloaded.
    Overloaded,
    /// It failed for a reason that has nothing to do with load.
    Failed,
    /// It was cancelled, or nobody said. Counts neither way.
    #[default]
    Ignored,
}

/// Between which bounds an adaptive limit moves, when, and how far. Unless set otherwise it shrinks
/// by a fifth when more than 5 % of calls are pushed back, and grows by a fifth when at most 1 % are,
/// whatever the calls' duration. Until the first push-back it doubles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tuning {
    /// The smallest limit, at least 1.
    pub floor: u64,
    /// The limit to start with.
    pub start: u64,
    /// The largest limit.
    pub cap: u64,
    /// Shrinks when more than this part of the calls is pushed back, in thousandths.
    pub decrease_above: u32,
    /// What is left of the limit after shrinking, in thousandths; at least one slot goes.
    pub decrease_to: u32,
    /// Grows when at most this part of the calls is pushed back, in thousandths.
    pub increase_below: u32,
    /// What the limit becomes by growing, in thousandths; at least one slot is added.
    pub increase_to: u32,
    /// Grows only while calls take no longer than this on average. `None`: any duration will do.
    pub max_latency: Option<Duration>,
}

impl Tuning {
    /// From 1 to `cap`, beginning with `start`.
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

/// When a call left, and under which limit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Departure {
    epoch: u64,
    /// `None` if the limit did not adapt then.
    left: Option<Time>,
}

/// How long calls wait for a slot before the limit doubles, if nothing was ever pushed back. A
/// refusal comes sooner than that.
const DOUBLING: Duration = Duration::from_millis(250);
/// How long they wait below a ceiling, where something was pushed back, before the limit goes half of
/// the way to it.
const HALVING: Duration = Duration::from_secs(10);

/// How many clean rounds at the ceiling before looking beyond it.
const FIRST_PATIENCE: u64 = 8;
const MOST_PATIENCE: u64 = 256;

/// Answers that make a sample.
const SAMPLE: u64 = 100;
/// The fewest push-backs that are a reason to shrink.
const FEWEST: u64 = 3;

/// What came back: all answers, and those that pushed back.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    answered: u64,
    pushed_back: u64,
}

/// The last call weighs one part of so many in the mean duration of calls.
const MEAN_OF: u32 = 8;

/// A limit that adapts.
#[derive(Clone, Debug)]
pub(crate) struct Adaptive {
    tuning: Tuning,
    limit: u64,
    /// How long calls take of late; `None` until one has been answered.
    latency: Option<Duration>,
    /// The smallest limit at which calls were pushed back.
    ceiling: Option<u64>,
    /// The last limit before large steps that calls were answered at.
    proven: Option<u64>,
    /// Since when calls wait for a slot under the present limit.
    waiting_since: Option<Time>,
    /// Calls that left under an earlier epoch say nothing about the present limit.
    epoch: u64,
    /// Whether the limit was reached since it last changed.
    reached: bool,
    /// What came back in this round: as many answers as the limit.
    round: Round,
    /// What came back in the last one or two hundred answers, whatever the limit was.
    sample: Round,
    before: Round,
    /// Clean rounds at the ceiling so far, and how many it takes.
    calm: u64,
    patience: u64,
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
            reached: false,
            round: Round::default(),
            sample: Round::default(),
            before: Round::default(),
            calm: 0,
            patience: FIRST_PATIENCE,
        }
    }

    /// A limit whose calls are told apart from those that left in earlier epochs.
    pub(crate) fn from_epoch(epoch: u64, tuning: Tuning) -> Self {
        Self { epoch, ..Self::new(tuning) }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Goes on from another limit, within the bounds, and forgets what was learned.
    /// The answer is the limit that counts.
    pub(crate) fn restart(&mut self, limit: u64) -> u64 {
        let tuning = Tuning { start: limit, ..self.tuning };
        *self = Self { epoch: self.epoch + 1, ..Self::new(tuning) };
        self.limit
    }

    /// Takes over another tuning. The limit stays where it is, within the bounds.
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

    /// The smallest limit at which calls were pushed back, if any were.
    pub(crate) fn pushed_back_at(&self) -> Option<u64> {
        self.ceiling
    }

    /// Whether calls take longer than the limit may grow with.
    pub(crate) fn is_slow(&self) -> bool {
        self.tuning.max_latency.is_some_and(|most| self.latency.is_some_and(|now| now > most))
    }

    /// A call leaves at `left` while so many are under way, itself included. The answer goes with it.
    pub(crate) fn leaves(&mut self, in_flight: u64, left: Time) -> Departure {
        self.reached |= in_flight >= self.limit;
        Departure { epoch: self.epoch, left: Some(left) }
    }

    /// Calls wait for a slot at `now`. Raises the limit if they have waited long enough, and says
    /// when it rises next if they wait until then; `None` if it does not.
    pub(crate) fn slots_wanted(&mut self, now: Time) -> Option<Time> {
        // Where it matters how long calls take, that is to be known first.
        let is_unknown = self.tuning.max_latency.is_some() && self.latency.is_none();
        if is_unknown || self.is_slow() {
            return None;
        }
        let (next, pause) = match self.ceiling {
            Some(ceiling) => (self.limit + ceiling.saturating_sub(self.limit) / 2, HALVING),
            None => (self.limit.saturating_mul(2), DOUBLING),
        };
        let next = next.min(self.tuning.cap);
        if self.limit >= next {
            return None;
        }
        let since = *self.waiting_since.get_or_insert(now);
        if now.since(since) < pause {
            return Some(since.after(pause));
        }
        // Nothing was answered since: what held before still is what held.
        let proven = self.proven.unwrap_or(self.limit);
        self.rise(next, proven);
        self.waiting_since = Some(now);
        self.slots_wanted(now)
    }

    /// No call waits for a slot.
    pub(crate) fn slots_free(&mut self) {
        self.waiting_since = None;
    }

    /// A call that left with this departure has ended.
    pub(crate) fn ended(&mut self, outcome: CallOutcome, departure: Departure, now: Time) {
        let Some(left) = departure.left else { return };
        if outcome == CallOutcome::Success {
            let (took, mean) = (now.since(left), self.latency);
            let mean = mean.map_or(took, |mean| mean - mean / MEAN_OF + took / MEAN_OF);
            self.latency = Some(mean);
        }
        if departure.epoch != self.epoch {
            return;
        }
        match outcome {
            CallOutcome::Success => {
                self.count(0);
                self.maybe_grow();
            }
            CallOutcome::Throttled { .. } | CallOutcome::Overloaded => {
                self.count(1);
                let sample = Round {
                    answered: self.before.answered + self.sample.answered,
                    pushed_back: self.before.pushed_back + self.sample.pushed_back,
                };
                // By default more than 5 % pushed back is too much, but a few answers say little. Many
                // say that 3 % are one too many. Where it was pushed back before, so do few.
                let most = self.tuning.decrease_above;
                let whole = sample.answered >= SAMPLE + SAMPLE / 2;
                if self.ceiling == Some(self.limit) {
                    if Tuning::is_above(self.round, most / 2) {
                        self.step_back();
                    }
                } else if sample.pushed_back >= FEWEST && Tuning::is_above(sample, most) {
                    self.shrink();
                } else if whole && Tuning::is_above(sample, most * 3 / 5) {
                    self.ceiling = Some(self.limit);
                    self.step_back();
                }
            }
            CallOutcome::Failed | CallOutcome::Ignored => {}
        }
    }

    fn count(&mut self, pushed_back: u64) {
        for counted in [&mut self.round, &mut self.sample] {
            counted.answered += 1;
            counted.pushed_back += pushed_back;
        }
        if self.sample.answered >= SAMPLE {
            self.before = std::mem::take(&mut self.sample);
        }
    }

    /// After a round of as many answers as the limit, of which hardly any were pushed back.
    fn maybe_grow(&mut self) {
        if self.round.answered < self.limit.max(4) {
            return;
        }
        let clean = !Tuning::is_above(self.round, self.tuning.increase_below);
        let grow = clean && self.reached && !self.is_slow();
        self.round = Round::default();
        self.reached = false;
        if !grow {
            return;
        }
        let limit = match self.ceiling {
            // Well below where it was pushed back: a fifth more, at least one.
            Some(ceiling) if self.limit + 1 < ceiling => {
                self.tuning.increased(self.limit).min(ceiling - 1)
            }
            // Just below it: wait, then look beyond.
            Some(ceiling) if self.limit < ceiling => {
                self.calm += 1;
                if self.calm < self.patience {
                    return;
                }
                self.limit + 1
            }
            // It holds where it was pushed back before: that is history.
            Some(_) => {
                self.ceiling = None;
                self.patience = FIRST_PATIENCE;
                self.limit + 1
            }
            // Nothing was ever pushed back: what answers a round may answer two.
            None => return self.rise(self.limit.saturating_mul(2), self.limit),
        };
        self.set(limit);
    }

    /// Rises by a large step, which is undone if it is pushed back. Calls that left before it may be
    /// pushed back after it, and count.
    fn rise(&mut self, limit: u64, proven: u64) {
        let (epoch, waiting_since) = (self.epoch, self.waiting_since);
        self.set(limit);
        (self.epoch, self.proven, self.waiting_since) = (epoch, Some(proven), waiting_since);
    }

    /// Once per epoch: back to what held before it was doubled, else by a part and at least one.
    fn shrink(&mut self) {
        let less = self.tuning.decreased(self.limit);
        let limit = self.proven.take().filter(|proven| *proven < self.limit);
        self.ceiling = Some(self.limit);
        self.patience = FIRST_PATIENCE;
        (self.sample, self.before) = (Round::default(), Round::default());
        self.set(limit.unwrap_or(less));
    }

    /// A look beyond was one too far: back by one, and the next look is later.
    fn step_back(&mut self) {
        self.patience = (self.patience * 2).min(MOST_PATIENCE);
        (self.sample, self.before) = (Round::default(), Round::default());
        self.set(self.limit - 1);
    }

    fn set(&mut self, limit: u64) {
        self.limit = limit.clamp(self.tuning.floor, self.tuning.cap);
        self.proven = None;
        self.epoch += 1;
        self.round = Round::default();
        (self.reached, self.calm) = (false, 0);
        self.waiting_since = None;
    }
}

#[cfg(test)]
mod tests;
