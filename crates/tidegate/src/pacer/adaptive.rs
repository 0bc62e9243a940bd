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

/// Bounds of an adaptive limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveBounds {
    /// The smallest limit, at least 1.
    pub floor: u64,
    /// The limit to start with.
    pub start: u64,
    /// The largest limit.
    pub cap: u64,
}

/// When an adaptive limit moves, and how far. The default shrinks by a fifth when more than 5 % of
/// calls are pushed back, and grows by a fifth when at most 1 % are, whatever the calls' duration.
/// Until the first push-back it doubles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tuning {
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

impl Default for Tuning {
    fn default() -> Self {
        Self {
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
    bounds: AdaptiveBounds,
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
    pub(crate) fn new(bounds: AdaptiveBounds, tuning: Tuning) -> Self {
        let floor = bounds.floor.max(1);
        let cap = bounds.cap.max(floor);
        let limit = bounds.start.clamp(floor, cap);
        let bounds = AdaptiveBounds { floor, start: limit, cap };
        Self {
            bounds,
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
    pub(crate) fn from_epoch(epoch: u64, bounds: AdaptiveBounds, tuning: Tuning) -> Self {
        Self { epoch, ..Self::new(bounds, tuning) }
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
        let bounds = AdaptiveBounds { start: limit, ..self.bounds };
        *self = Self { epoch: self.epoch + 1, ..Self::new(bounds, self.tuning) };
        self.limit
    }

    /// Takes over other bounds and another tuning. The limit stays where it is, within the bounds.
    pub(crate) fn reconfigure(&mut self, bounds: AdaptiveBounds, tuning: Tuning) {
        let fresh = Self::new(AdaptiveBounds { start: self.limit, ..bounds }, tuning);
        (self.bounds, self.tuning) =
            (AdaptiveBounds { start: bounds.start, ..fresh.bounds }, tuning);
        if fresh.limit != self.limit {
            self.set(fresh.limit);
        }
    }

    pub(crate) fn bounds(&self) -> AdaptiveBounds {
        self.bounds
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
        if self.is_slow() {
            return None;
        }
        let (next, pause) = match self.ceiling {
            Some(ceiling) => (self.limit + ceiling.saturating_sub(self.limit) / 2, HALVING),
            None => (self.limit.saturating_mul(2), DOUBLING),
        };
        let next = next.min(self.bounds.cap);
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
        self.limit = limit.clamp(self.bounds.floor, self.bounds.cap);
        self.proven = None;
        self.epoch += 1;
        self.round = Round::default();
        (self.reached, self.calm) = (false, 0);
        self.waiting_since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adaptive(start: u64) -> Adaptive {
        Adaptive::new(AdaptiveBounds { floor: 1, start, cap: 200 }, Tuning::default())
    }

    fn leave(adaptive: &mut Adaptive, in_flight: u64) -> Departure {
        adaptive.leaves(in_flight, Time::ZERO)
    }

    /// A provider that can serve `hidden` calls at once and pushes the others back. Every round
    /// all slots are used, and everything that left is answered before the next round.
    fn round(adaptive: &mut Adaptive, hidden: u64) -> u64 {
        let limit = adaptive.limit();
        let departures: Vec<Departure> =
            (1..=limit).map(|in_flight| leave(adaptive, in_flight)).collect();
        for (index, epoch) in (1..).zip(departures) {
            let pushed_back = CallOutcome::Throttled { retry_after: None };
            adaptive.ended(
                if index > hidden { pushed_back } else { CallOutcome::Success },
                epoch,
                Time::ZERO,
            );
        }
        adaptive.limit()
    }

    #[test]
    fn it_finds_a_hidden_limit_and_stays_there() {
        for hidden in [1, 2, 3, 7, 20, 64, 150] {
            let mut adaptive = adaptive(4);
            for _ in 0..2_000 {
                round(&mut adaptive, hidden);
            }
            let seen: Vec<u64> = (0..2_000).map(|_| round(&mut adaptive, hidden)).collect();
            let (low, high) = (seen.iter().min().unwrap(), seen.iter().max().unwrap());
            assert!(
                high - low <= 1,
                "hidden {hidden}: swings between {low} and {high} {:?}",
                &seen[..200]
            );
            let reach = hidden..=hidden + hidden / 20 + 1;
            assert!(reach.contains(high), "hidden {hidden}: settled at {low}..{high}");
            assert!(*low + 1 >= hidden, "hidden {hidden}: settled at {low}..{high}");
        }
    }

    #[test]
    fn a_burst_of_push_back_is_one_decrease() {
        let mut adaptive = adaptive(100);
        let departures: Vec<Departure> =
            (1..=100).map(|in_flight| leave(&mut adaptive, in_flight)).collect();
        for epoch in departures {
            adaptive.ended(CallOutcome::Overloaded, epoch, Time::ZERO);
        }
        assert_eq!(adaptive.limit(), 80, "a hundred push-backs, one decrease");
    }

    #[test]
    fn it_recovers_from_one() {
        let mut adaptive = adaptive(1);
        for _ in 0..500 {
            round(&mut adaptive, 50);
        }
        assert!((49..=53).contains(&adaptive.limit()), "{}", adaptive.limit());
        for _ in 0..500 {
            round(&mut adaptive, 1);
        }
        assert!(adaptive.limit() <= 2, "{}", adaptive.limit());
        for _ in 0..5_000 {
            round(&mut adaptive, 50);
        }
        assert!((49..=53).contains(&adaptive.limit()), "{}", adaptive.limit());
    }

    #[test]
    fn it_does_not_grow_unless_it_was_reached() {
        let mut adaptive = adaptive(10);
        for _ in 0..1_000 {
            let epoch = leave(&mut adaptive, 3);
            adaptive.ended(CallOutcome::Success, epoch, Time::ZERO);
        }
        assert_eq!(adaptive.limit(), 10);
    }

    #[test]
    fn failures_and_cancelled_calls_count_neither_way() {
        let mut adaptive = adaptive(10);
        for outcome in [CallOutcome::Failed, CallOutcome::Ignored] {
            for _ in 0..1_000 {
                let epoch = leave(&mut adaptive, 10);
                adaptive.ended(outcome, epoch, Time::ZERO);
            }
        }
        assert_eq!(adaptive.limit(), 10);
    }

    #[test]
    fn a_little_push_back_is_no_reason_to_shrink() {
        let mut adaptive = adaptive(100);
        for number in 0..1_000 {
            let epoch = leave(&mut adaptive, 100);
            let pushed_back = number % 40 == 39;
            let overloaded = CallOutcome::Overloaded;
            adaptive.ended(
                if pushed_back { overloaded } else { CallOutcome::Success },
                epoch,
                Time::ZERO,
            );
        }
        assert_eq!(adaptive.limit(), 100, "2.5 % is between the two bounds");
    }

    /// Calls that are pushed back by chance, whatever the limit, must not wear it down.
    #[test]
    fn noise_below_the_bound_does_not_wear_it_down() {
        for (per_mille, least) in [(5, 150), (10, 100), (20, 50)] {
            let mut adaptive = adaptive(100);
            let (mut random, mut sum, rounds) = (1_u64, 0, 2_000);
            for _ in 0..rounds {
                let limit = adaptive.limit();
                let departures: Vec<Departure> =
                    (1..=limit).map(|now| leave(&mut adaptive, now)).collect();
                for epoch in departures {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let pushed_back = (random >> 33) % 1_000 < per_mille;
                    let outcome = CallOutcome::Overloaded;
                    adaptive.ended(
                        if pushed_back { outcome } else { CallOutcome::Success },
                        epoch,
                        Time::ZERO,
                    );
                }
                sum += adaptive.limit();
            }
            let mean = sum / rounds;
            assert!(mean >= least, "{per_mille} in 1,000: mean limit {mean}");
        }
    }

    /// Long calls: none has been answered yet, and others wait.
    #[test]
    fn it_doubles_four_times_a_second_while_calls_wait_and_nothing_is_pushed_back() {
        let mut adaptive = adaptive(8);
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        assert_eq!(adaptive.slots_wanted(at(0)), Some(at(250)));
        assert_eq!(adaptive.slots_wanted(at(200)), Some(at(250)));
        assert_eq!(adaptive.limit(), 8);
        let limits: Vec<u64> = (1..=6)
            .map(|quarter| {
                adaptive.slots_wanted(at(quarter * 250));
                adaptive.limit()
            })
            .collect();
        assert_eq!(limits, [16, 32, 64, 128, 200, 200], "to the cap");
        assert_eq!(adaptive.slots_wanted(at(7_000)), None);
    }

    #[test]
    fn a_wait_that_ended_does_not_count() {
        let mut adaptive = adaptive(8);
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        adaptive.slots_wanted(at(0));
        adaptive.slots_free();
        assert_eq!(adaptive.slots_wanted(at(5_000)), Some(at(5_250)));
        assert_eq!(adaptive.limit(), 8);
    }

    #[test]
    fn a_doubling_that_is_pushed_back_is_undone_and_not_repeated() {
        let mut adaptive = adaptive(8);
        let at = |seconds: u64| Time::from_nanos(seconds * 1_000_000_000);
        adaptive.slots_wanted(at(0));
        adaptive.slots_wanted(at(1));
        assert_eq!(round(&mut adaptive, 12), 8, "16 were too many");
        adaptive.slots_wanted(at(2));
        adaptive.slots_wanted(at(11));
        assert_eq!(adaptive.limit(), 8);
        let limits: Vec<u64> = (1..=5)
            .map(|step| {
                adaptive.slots_wanted(at(2 + 10 * step));
                adaptive.limit()
            })
            .collect();
        assert_eq!(limits, [12, 14, 15, 15, 15], "to just below where it was pushed back");
    }

    #[test]
    fn bounds_are_kept() {
        let mut adaptive =
            Adaptive::new(AdaptiveBounds { floor: 3, start: 50, cap: 6 }, Tuning::default());
        assert_eq!(adaptive.limit(), 6);
        for _ in 0..100 {
            round(&mut adaptive, 1_000);
        }
        assert_eq!(adaptive.limit(), 6);
        for _ in 0..100 {
            round(&mut adaptive, 0);
        }
        assert_eq!(adaptive.limit(), 3);
    }

    #[test]
    fn steps_and_thresholds_are_as_tuned() {
        let bounds = AdaptiveBounds { floor: 1, start: 100, cap: 200 };
        let mut tuning = Tuning::default();
        (tuning.decrease_above, tuning.decrease_to, tuning.increase_to) = (300, 500, 1_500);
        let mut adaptive = Adaptive::new(bounds, tuning);
        assert_eq!(round(&mut adaptive, 80), 100, "a fifth is not more than 30 %");
        assert_eq!(round(&mut adaptive, 0), 50, "half is left");
        assert_eq!(round(&mut adaptive, 200), 75, "half of it more");
        tuning.increase_below = 0;
        let mut strict = Adaptive::new(bounds, tuning);
        let departures: Vec<Departure> = (1..=100).map(|now| leave(&mut strict, now)).collect();
        for (index, departure) in departures.into_iter().enumerate() {
            let outcome = if index == 0 { CallOutcome::Overloaded } else { CallOutcome::Success };
            strict.ended(outcome, departure, Time::ZERO);
        }
        assert_eq!(strict.limit(), 100, "one of a hundred is too many to grow");
    }
}
