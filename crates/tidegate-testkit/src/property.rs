//! Property test: a store must answer every step of a random scenario as the oracle does.
//!
//! A failing scenario is shrunk and printed step by step in the format of the vector file, so that
//! it can be added there. Seeds are fixed, so runs are reproducible.

use std::ops::Range;

use proptest::array::uniform4;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::scenario::compose::{Composer, LimitSeed, PolicySeed, StepSeed, limit};
use crate::scenario::replay::{Difference, Scenario, run};
use crate::subject::{Contract, Resolution, Subject, block_on};

/// Whether this is a soak run: `TIDEGATE_SOAK` is set.
#[must_use]
pub fn is_soak_run() -> bool {
    std::env::var_os("TIDEGATE_SOAK").is_some()
}

/// Size of a property test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Number of scenarios.
    pub cases: u32,
    /// Maximum number of steps in a scenario; the average is half of it.
    pub steps: usize,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for Effort {
    /// About a hundred thousand steps; in a soak run (`TIDEGATE_SOAK` is set) fifty times as many,
    /// with a different seed each time.
    fn default() -> Self {
        if !is_soak_run() {
            return Self { cases: 3_500, steps: 80, seed: 1 };
        }
        let seed = u64::from(std::process::id());
        Self { cases: 175_000, steps: 80, seed }
    }
}

/// Ranges of the random numbers that determine a scenario.
struct SeedRanges {
    /// Kinds of limits.
    kind: Range<u32>,
    /// Largest number of revisions of a limit.
    revisions: usize,
    /// Numbers that determine debt, horizon and mode of change of a policy.
    rest: Range<u32>,
    /// Operations, and their numbers of buckets.
    op: Range<u32>,
}

impl SeedRanges {
    const fn of(contract: Contract) -> Self {
        match contract {
            Contract::Store => Self { kind: 0..36, revisions: 4, rest: 0..8_192, op: 0..128 },
            // Token buckets and strict windows that keep their policy, and takes of one charge. Not
            // peeks: their waits may be a nanosecond too long.
            Contract::TakeStore => Self { kind: 0..9, revisions: 1, rest: 0..7_680, op: 0..12 },
        }
    }
}

/// Generates scenarios of up to `steps` steps over up to three limits, with the oracle's answers.
pub fn scenarios(
    contract: Contract,
    resolution: Resolution,
    steps: usize,
) -> impl Strategy<Value = Scenario> {
    let ranges = SeedRanges::of(contract);
    let policy = (0..4_096_u32, 0..4_096_u32, ranges.rest)
        .prop_map(|(rate, capacity, rest)| PolicySeed { rate, capacity, rest });
    let limit_seed = (ranges.kind, vec(policy, 1..=ranges.revisions))
        .prop_map(|(kind, policies)| LimitSeed { kind, policies });
    let step = (0..65_536_u32, ranges.op, uniform4(0..65_536_u32), 0..4_096_u32)
        .prop_map(|(time, op, charges, extra)| StepSeed { time, op, charges, extra });
    let max_steps = steps.max(1);
    (vec(limit_seed, 1..=3), vec(step, 1..=max_steps)).prop_map(move |(limits, steps)| {
        let limits = limits.iter().enumerate();
        let limits = limits.map(|(index, seed)| limit(format!("property.l{index}"), seed));
        let mut composer = Composer::new("property", resolution, limits.collect());
        for step in &steps {
            composer.add(step);
        }
        composer.finish()
    })
}

/// Checks a store against the oracle within its contract, with a new subject per scenario. Returns
/// the number of steps compared.
///
/// # Panics
/// If an answer differs; the message has the steps up to there.
pub fn check_against_oracle<S: Subject>(factory: impl Fn() -> S, effort: Effort) -> usize {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&effort.seed.to_le_bytes());
    let config = Config { cases: effort.cases, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let compared = std::cell::Cell::new(0);
    let subject = factory();
    let scenarios = scenarios(subject.contract(), subject.resolution(), effort.steps);
    let result = runner.run(&scenarios, |scenario| {
        compared.set(compared.get() + scenario.steps.len());
        let subject = factory();
        block_on(run(&subject, &scenario))
            .map_err(|difference| TestCaseError::fail(difference.to_string()))
    });
    match result {
        Ok(()) => compared.get(),
        Err(TestError::Fail(_, scenario)) => {
            let difference = block_on(run(&factory(), &scenario)).err();
            panic!("{}", report(&scenario, difference.as_ref()))
        }
        Err(TestError::Abort(reason)) => panic!("the property test was aborted: {reason}"),
    }
}

/// Formats the scenario up to the difference, one step per line.
fn report(scenario: &Scenario, difference: Option<&Difference>) -> String {
    let mut text = String::from("a store and the oracle differ\n");
    for (index, limit) in scenario.limits.iter().enumerate() {
        text += &format!("limit {index}: {}\n", serde_json::to_string(limit).unwrap_or_default());
    }
    let last = difference.map_or(scenario.steps.len(), |difference| difference.step + 1);
    for (index, step) in scenario.steps.iter().take(last).enumerate() {
        text += &format!("step {index}: {}\n", serde_json::to_string(step).unwrap_or_default());
    }
    match difference {
        Some(difference) => text += &difference.problem,
        None => text += "the second run passed: the store is not deterministic",
    }
    text
}
