//! Turns small random numbers into valid scenarios, with the oracle's answers.
//!
//! The committed vectors and the property test share this interpretation. Smaller numbers mean
//! simpler steps, so that a failing case shrinks to a readable one. Steps whose outcome the
//! contract does not specify are left out.

mod limits;

use crate::oracle::Oracle;
use crate::scenario::replay::Scenario;
use crate::scenario::spec::{LimitSpec, PolicySpec};
use crate::scenario::step::{ChargeSpec, CorrectionSpec, Expected, Op, Step, Wait};
use crate::subject::Resolution;

pub use self::limits::{LimitSeed, PolicySeed, limit};

/// Scenarios end before this time, so that every instant fits 64 bits and every window 32.
const LATEST_NS: u64 = 60 * 365 * 86_400 * 1_000_000_000;
/// Maximum time between two steps.
const LONGEST_NS: u64 = 5 * 365 * 86_400 * 1_000_000_000;
const KEYS: [&str; 3] = ["a", "b", "c"];

/// Random numbers that determine one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepSeed {
    /// Determines how the clock moves.
    pub time: u32,
    /// Determines the operation and the number of buckets.
    pub op: u32,
    /// Determine the buckets and costs.
    pub charges: [u32; 4],
    /// Determines durations, signs and receipts.
    pub extra: u32,
}

/// Builds a scenario step by step.
#[derive(Debug)]
pub struct Composer {
    scenario: Scenario,
    oracle: Oracle,
    now: u64,
    last_wait: u64,
    /// Granted lists, by step.
    grants: Vec<(usize, Vec<ChargeSpec>)>,
}

impl Composer {
    /// Starts an empty scenario over these limits.
    #[must_use]
    pub fn new(name: &str, resolution: Resolution, limits: Vec<LimitSpec>) -> Self {
        let oracle = Oracle::new(limits.clone());
        let scenario = Scenario { name: name.to_owned(), resolution, limits, steps: Vec::new() };
        Self { scenario, oracle, now: 0, last_wait: 0, grants: Vec::new() }
    }

    /// Adds a step at `at_ns` with the oracle's answer, and returns the answer.
    ///
    /// # Panics
    /// If the contract does not specify the answer, or the clock cannot represent the time.
    pub fn push(&mut self, at_ns: u64, op: Op) -> &Expected {
        let name = &self.scenario.name;
        let unit = self.scenario.resolution.nanos();
        assert!(
            at_ns.is_multiple_of(unit),
            "{name}: {at_ns} is not a multiple of the clock's resolution"
        );
        assert!(!self.oracle.is_unspecified(&op), "{name}: the contract does not specify {op:?}");
        let earliest = self.oracle.earliest_now().min(self.now);
        assert!(at_ns >= earliest, "{name}: a store may have forgotten a bucket that {op:?} needs");
        self.now = at_ns;
        let expect = self.oracle.apply(at_ns, &op);
        let index = self.scenario.steps.len();
        match (&op, &expect) {
            (Op::Take { charges } | Op::Reserve { charges, .. }, Expected::Allowed { .. }) => {
                self.grants.push((index, charges.clone()));
            }
            (_, Expected::Denied { retry_ns: Wait::Ns(wait), .. }) => self.last_wait = *wait,
            _ => {}
        }
        self.scenario.steps.push(Step { at_ns, op, expect });
        &self.scenario.steps[index].expect
    }

    /// Adds the step that the numbers determine, if that step is valid here.
    pub fn add(&mut self, seed: &StepSeed) {
        let at_ns = self.time(seed.time);
        let Some(op) = self.op(seed) else { return };
        if !self.oracle.is_unspecified(&op) {
            self.push(at_ns, op);
        }
    }

    /// Returns the scenario.
    #[must_use]
    pub fn finish(self) -> Scenario {
        self.scenario
    }

    fn time(&self, number: u32) -> u64 {
        let (kind, value) = (number % 16, number / 16);
        let unit = self.scenario.resolution.nanos();
        let limit = self.pick_limit(value);
        let share = u64::from(value / 8 % 20);
        let step = match kind {
            0..=2 => 0,
            3..=5 => u64::from(value % 1_000) * unit,
            6..=8 => self.time_to_full(limit) / 16 * share,
            9 => self.time_of_one(limit).saturating_mul(share),
            10 | 11 => self.last_wait,
            // The last instant at which a denied charge is still denied.
            12 => (self.last_wait.div_ceil(unit) * unit).saturating_sub(unit),
            13 => self.time_to_full(limit).saturating_mul(share),
            _ => return self.time_back(self.time_to_full(limit) / 16 * share),
        };
        let step = step.min(LONGEST_NS).div_ceil(unit) * unit;
        if self.now + step > LATEST_NS { self.now } else { self.now + step }
    }

    fn time_back(&self, span: u64) -> u64 {
        let unit = self.scenario.resolution.nanos();
        let wanted = self.now.saturating_sub(span) / unit * unit;
        wanted.max(self.oracle.earliest_now().div_ceil(unit) * unit).min(self.now)
    }

    fn op(&self, seed: &StepSeed) -> Option<Op> {
        let (kind, count) = (seed.op % 32, seed.op / 32 % 4 + 1);
        let charges = || self.charges(&seed.charges[..count as usize]);
        let limit = self.pick_limit(seed.charges[0]);
        let key = KEYS[(seed.charges[0] / 8 % 3) as usize].to_owned();
        let share = u64::from(seed.extra % 40);
        Some(match kind {
            0..=11 => Op::Take { charges: charges() },
            12 | 13 => Op::Peek { charges: charges() },
            14..=18 => Op::Reserve {
                charges: charges(),
                horizon_ns: self.rounded(self.time_to_full(limit) / 8 * share),
            },
            19 | 20 => self.settle(&charges(), seed.extra, None)?,
            21 | 22 => {
                let (step, charges) = self.pick_grant(seed.extra)?;
                self.settle(charges, seed.extra, Some(step))?
            }
            23..=25 => {
                let (step, charges) = self.pick_grant(seed.extra)?;
                cancel(charges, step)?
            }
            26 => Op::Release { receipt: self.pick_grant(seed.extra)?.0 },
            27 | 28 => {
                let span = self.rounded(self.time_to_full(limit) / 16 * share);
                Op::Hold { limit, key, span_ns: span.min(LONGEST_NS) }
            }
            29 => Op::Reset { limit, key },
            _ => {
                let revisions = self.scenario.limits[limit].revisions.len();
                if self.oracle.revision(limit) + 1 >= revisions {
                    return None;
                }
                Op::Revise { limit }
            }
        })
    }

    fn charges(&self, seeds: &[u32]) -> Vec<ChargeSpec> {
        let mut charges: Vec<ChargeSpec> = Vec::new();
        for &seed in seeds {
            let limit = self.pick_limit(seed);
            let key = KEYS[(seed / 8 % 3) as usize];
            // A receipt names one lease per bucket, so a list takes slots of a bucket only once.
            let slots = matches!(self.policy(limit), PolicySpec::Concurrency { .. });
            if !(slots && charges.iter().any(|c| c.0 == limit && c.1 == key)) {
                charges.push(ChargeSpec(limit, key.to_owned(), self.cost(limit, seed / 32)));
            }
        }
        charges
    }

    fn cost(&self, limit: usize, number: u32) -> u64 {
        let capacity = self.policy(limit).capacity();
        let value = u64::from(number / 8);
        match number % 8 {
            0..=3 => value % 3 + 1,
            4 => 0,
            5 => (capacity / 16).max(1) * (value % 17),
            6 => capacity,
            _ if value.is_multiple_of(4) => capacity + 1,
            _ => capacity.div_ceil(2),
        }
    }

    fn settle(&self, charges: &[ChargeSpec], extra: u32, receipt: Option<usize>) -> Option<Op> {
        let mut corrections = Vec::new();
        for (index, ChargeSpec(limit, key, cost)) in charges.iter().enumerate() {
            let back = (extra >> index) & 1 == 0;
            let amount = match (extra >> 4) % 4 {
                0 => 1,
                1 => *cost,
                2 => cost.div_ceil(2),
                _ => self.policy(*limit).capacity() * 3,
            };
            let amount = i64::try_from(amount).ok()?;
            corrections.push(CorrectionSpec(
                *limit,
                key.clone(),
                if back { -amount } else { amount },
            ));
        }
        Some(Op::Settle { corrections, receipt })
    }

    fn pick_limit(&self, number: u32) -> usize {
        number as usize % self.scenario.limits.len()
    }

    /// Picks one of the latest grants, which are the most interesting.
    fn pick_grant(&self, number: u32) -> Option<(usize, &[ChargeSpec])> {
        let back = number as usize / 64 % self.grants.len().clamp(1, 6);
        let (step, charges) = self.grants.iter().nth_back(back)?;
        Some((*step, charges))
    }

    fn policy(&self, limit: usize) -> &PolicySpec {
        &self.scenario.limits[limit].revisions[self.oracle.revision(limit)].policy
    }

    fn time_to_full(&self, limit: usize) -> u64 {
        limits::time_to_full(self.policy(limit), self.scenario.limits[limit].window_s)
    }

    fn time_of_one(&self, limit: usize) -> u64 {
        (self.time_to_full(limit) / self.policy(limit).capacity()).max(1)
    }

    fn rounded(&self, span: u64) -> u64 {
        let unit = self.scenario.resolution.nanos();
        span.min(LONGEST_NS).div_ceil(unit) * unit
    }
}

fn cancel(charges: &[ChargeSpec], step: usize) -> Option<Op> {
    let back = |ChargeSpec(limit, key, cost): &ChargeSpec| {
        Some(CorrectionSpec(*limit, key.clone(), -i64::try_from(*cost).ok()?))
    };
    let corrections = charges.iter().map(back).collect::<Option<_>>()?;
    Some(Op::Settle { corrections, receipt: Some(step) })
}
