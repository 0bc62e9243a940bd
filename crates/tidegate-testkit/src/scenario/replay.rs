//! Replays a scenario on a store and reports where the answers differ.
//!
//! The expected answers come from the scenario. Only the calendar windows are computed here,
//! because the contract makes that the caller's task.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_core::{
    Charge, Correction, Decision, Limit, Operation, Outcome, Receipt, Retry, StoreResponse, Target,
    Windows,
};

use crate::scenario::spec::{LimitSpec, PolicySpec};
use crate::scenario::step::{ChargeSpec, Expected, ExpectedOutcome, ORIGIN_NS, Op, Step, Wait};
use crate::subject::{Contract, Resolution, Subject, execute};

/// Limits, and operations on them with expected answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scenario {
    /// A name of `[a-z0-9-]`, which makes keys and limit names unique.
    pub name: String,
    /// Every timestamp is a multiple of this.
    pub resolution: Resolution,
    /// The limits.
    pub limits: Vec<LimitSpec>,
    /// The steps.
    pub steps: Vec<Step>,
}

impl Scenario {
    /// Returns the smallest contract that a store must implement to answer all steps.
    #[must_use]
    pub fn contract(&self) -> Contract {
        let is_bucket = |limit: &LimitSpec| match &*limit.revisions {
            [only] => {
                matches!(only.policy, PolicySpec::Bucket { .. } | PolicySpec::StrictWindow { .. })
            }
            _ => false,
        };
        let is_single = |step: &Step| match &step.op {
            Op::Take { charges } | Op::Peek { charges } => {
                charges.iter().all(|charge| (charge.0, &charge.1) == (charges[0].0, &charges[0].1))
            }
            _ => false,
        };
        let takes_only = self.limits.iter().all(is_bucket) && self.steps.iter().all(is_single);
        if takes_only { Contract::TakeStore } else { Contract::Store }
    }
}

/// An answer of a store that differs from the expected one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The scenario.
    pub scenario: String,
    /// The index of the step.
    pub step: usize,
    /// The step, as in the vector file.
    pub step_json: String,
    /// Expected and observed answer, or the error.
    pub problem: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} step {}: {}\n  {}", self.scenario, self.step, self.problem, self.step_json)
    }
}

impl std::error::Error for Difference {}

/// Replays a scenario and stops at the first difference.
///
/// # Errors
/// The first difference.
///
/// # Panics
/// If the scenario itself is invalid: it has a policy that the core rejects, or names a receipt of
/// a step that returned none.
pub async fn run(subject: &dyn Subject, scenario: &Scenario) -> Result<(), Difference> {
    let mut replay = Replay::new(subject, scenario);
    for (index, step) in scenario.steps.iter().enumerate() {
        let problem = match replay.step(index, step).await {
            Ok(observed) if agree(&step.expect, &observed) => continue,
            Ok(observed) => format!("expected {:?}\n  observed {observed:?}", step.expect),
            Err(problem) => problem,
        };
        let step_json = serde_json::to_string(step).unwrap_or_default();
        return Err(Difference {
            scenario: scenario.name.clone(),
            step: index,
            step_json,
            problem,
        });
    }
    Ok(())
}

fn agree(expected: &Expected, observed: &Expected) -> bool {
    match (expected, observed) {
        (Expected::Reset(None), Expected::Reset(_)) => true,
        _ => expected == observed,
    }
}

/// A spend that a later step may refer to.
struct Spend {
    receipt: Receipt,
    charges: Vec<ChargeSpec>,
}

struct Replay<'s> {
    subject: &'s dyn Subject,
    scope: &'s str,
    specs: &'s [LimitSpec],
    /// Each limit in each of its revisions.
    limits: Vec<Vec<Limit>>,
    current: Vec<usize>,
    spends: BTreeMap<usize, Spend>,
}

impl<'s> Replay<'s> {
    fn new(subject: &'s dyn Subject, scenario: &'s Scenario) -> Self {
        let limits = scenario.limits.iter().map(LimitSpec::to_limits).collect::<Result<_, _>>();
        Self {
            subject,
            scope: &scenario.name,
            specs: &scenario.limits,
            limits: limits.expect("the core rejects a limit of the scenario"),
            current: vec![0; scenario.limits.len()],
            spends: BTreeMap::new(),
        }
    }

    async fn step(&mut self, index: usize, step: &Step) -> Result<Expected, String> {
        let now = ORIGIN_NS + step.at_ns;
        self.subject.set_time(now).await;
        match &step.op {
            Op::Take { charges } | Op::Peek { charges } | Op::Reserve { charges, .. } => {
                self.decide(index, &step.op, charges, now).await
            }
            Op::Settle { corrections, receipt } => {
                let keys: Vec<String> = corrections.iter().map(|c| self.key(&c.1)).collect();
                let corrections: Vec<Correction<'_>> = corrections
                    .iter()
                    .zip(&keys)
                    .map(|(c, key)| Correction { target: self.target(c.0, key, now), delta: c.2 })
                    .collect();
                let receipt = receipt.map(|step| &self.spends[&step].receipt);
                let outcomes = self.capacities(corrections.iter().map(|c| c.target));
                let settle = Operation::Settle { corrections: &corrections, receipt };
                observed(self.execute(settle).await?, &outcomes)
            }
            Op::Release { receipt } => {
                let Spend { receipt, charges } = &self.spends[receipt];
                let keys: Vec<String> = charges.iter().map(|c| self.key(&c.1)).collect();
                let targets: Vec<Target<'_>> =
                    charges.iter().zip(&keys).map(|(c, key)| self.target(c.0, key, now)).collect();
                observed(
                    self.execute(Operation::Release { targets: &targets, receipt }).await?,
                    &[],
                )
            }
            Op::Hold { limit, key, span_ns } => {
                let key = self.key(key);
                let (target, span) =
                    (self.target(*limit, &key, now), Duration::from_nanos(*span_ns));
                observed(self.execute(Operation::Hold { target, span }).await?, &[])
            }
            Op::Reset { limit, key } => {
                let key = self.key(key);
                let target = self.target(*limit, &key, now);
                observed(self.execute(Operation::Reset { target }).await?, &[])
            }
            Op::Revise { limit } => {
                self.current[*limit] += 1;
                Ok(Expected::Nothing)
            }
        }
    }

    async fn decide(
        &mut self,
        index: usize,
        op: &Op,
        specs: &[ChargeSpec],
        now: u64,
    ) -> Result<Expected, String> {
        let keys: Vec<String> = specs.iter().map(|c| self.key(&c.1)).collect();
        let charges: Vec<Charge<'_>> = specs
            .iter()
            .zip(&keys)
            .map(|(c, key)| Charge { target: self.target(c.0, key, now), cost: c.2 })
            .collect();
        let operation = match op {
            Op::Reserve { horizon_ns, .. } => {
                Operation::Reserve { charges: &charges, horizon: Duration::from_nanos(*horizon_ns) }
            }
            Op::Peek { .. } => Operation::Peek(&charges),
            _ => Operation::Take(&charges),
        };
        let capacities = self.capacities(charges.iter().map(|c| c.target));
        let answer = self.execute(operation).await?;
        if let (StoreResponse::Decision(Decision::Allowed(grant)), false) =
            (&answer, matches!(op, Op::Peek { .. }))
        {
            let spend = Spend { receipt: grant.receipt.clone(), charges: specs.to_vec() };
            self.spends.insert(index, spend);
        }
        observed(answer, &capacities)
    }

    async fn execute(&self, operation: Operation<'_>) -> Result<StoreResponse, String> {
        execute(self.subject.store(), operation).await.map_err(|error| format!("error: {error}"))
    }

    fn key(&self, key: &str) -> String {
        format!("{}:{key}", self.scope)
    }

    fn target<'a>(&'a self, limit: usize, key: &'a str, now: u64) -> Target<'a> {
        let target = Target::new(&self.limits[limit][self.current[limit]], key);
        match self.specs[limit].window_s {
            Some(length) => target.with_windows(windows(length, now)),
            None => target,
        }
    }

    fn capacities<'a>(&self, targets: impl Iterator<Item = Target<'a>>) -> Vec<u64> {
        targets.map(|target| target.limit.policy().capacity()).collect()
    }
}

/// The windows of `length` seconds around the wall time `now`.
///
/// # Panics
/// If a bound does not fit 32 bits of seconds; scenarios end before the year 2100.
#[must_use]
pub fn windows(length: u32, now: u64) -> Windows {
    let present = now / 1_000_000_000 / u64::from(length);
    let bound = |index: u64| {
        let seconds = (present + index).saturating_sub(1) * u64::from(length);
        u32::try_from(seconds).expect("a wall time before 2106")
    };
    Windows::new([bound(0), bound(1), bound(2), bound(3)]).expect("bounds in order")
}

/// Converts an answer to the form in a scenario. The capacities must be those of the policies in
/// force.
fn observed(answer: StoreResponse, capacities: &[u64]) -> Result<Expected, String> {
    let expected_outcomes = |outcomes: &[Outcome]| -> Result<Vec<ExpectedOutcome>, String> {
        if outcomes.len() != capacities.len() {
            return Err(format!("{} outcomes for {} charges", outcomes.len(), capacities.len()));
        }
        outcomes
            .iter()
            .zip(capacities)
            .map(|(outcome, &capacity)| expected_outcome(outcome, capacity))
            .collect()
    };
    Ok(match answer {
        StoreResponse::Decision(Decision::Allowed(grant)) => Expected::Allowed {
            by: grant.binding,
            wait_ns: nanos(grant.wait),
            charges: expected_outcomes(&grant.outcomes)?,
        },
        StoreResponse::Decision(Decision::Denied(denial)) => Expected::Denied {
            by: denial.binding,
            retry_ns: wait(denial.retry),
            charges: expected_outcomes(&denial.outcomes)?,
        },
        StoreResponse::Settled(settlement) => Expected::Settled {
            saturated: settlement.saturated,
            dropped: settlement.dropped,
            charges: expected_outcomes(&settlement.outcomes)?,
        },
        StoreResponse::HeldFor(span) => Expected::Held(nanos(span)),
        StoreResponse::Reset(forgot) => Expected::Reset(Some(forgot)),
        StoreResponse::Slots(slots) => Expected::Slots(slots),
        other => return Err(format!("unknown answer: {other:?}")),
    })
}

fn expected_outcome(outcome: &Outcome, capacity: u64) -> Result<ExpectedOutcome, String> {
    if outcome.capacity != capacity {
        return Err(format!("expected capacity {capacity} in {outcome:?}"));
    }
    Ok(ExpectedOutcome {
        remaining: outcome.remaining,
        reset_ns: outcome.reset.map(nanos),
        retry_ns: outcome.retry.map(wait),
    })
}

fn wait(retry: Retry) -> Wait {
    match retry {
        Retry::After(span) => Wait::Ns(nanos(span)),
        Retry::OnRelease => Wait::OnRelease,
        _ => Wait::Never,
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
