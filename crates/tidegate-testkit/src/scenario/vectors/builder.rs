//! Shorthand for writing a scenario. Settlements, holds and resets apply to its first limit, and
//! times are whole milliseconds, so that every clock can represent them.

use crate::scenario::compose::Composer;
use crate::scenario::replay::Scenario;
use crate::scenario::spec::LimitSpec;
use crate::scenario::step::{ChargeSpec, CorrectionSpec, Op};
use crate::subject::Resolution;

/// Builds a scenario whose limit names start with its name.
pub(super) struct ScenarioBuilder(Composer);

impl ScenarioBuilder {
    pub(super) fn new(name: &str, limits: Vec<LimitSpec>) -> Self {
        let limits = limits.into_iter().map(|mut limit| {
            limit.name = limit.name.map(|short| format!("{name}.{short}"));
            limit
        });
        Self(Composer::new(name, Resolution::Ms, limits.collect()))
    }

    pub(super) fn take(&mut self, at_ns: u64, charges: &[(usize, &str, u64)]) {
        self.0.push(at_ns, Op::Take { charges: list(charges) });
    }

    pub(super) fn peek(&mut self, at_ns: u64, charges: &[(usize, &str, u64)]) {
        self.0.push(at_ns, Op::Peek { charges: list(charges) });
    }

    pub(super) fn reserve(&mut self, at_ns: u64, charges: &[(usize, &str, u64)], horizon_ns: u64) {
        self.0.push(at_ns, Op::Reserve { charges: list(charges), horizon_ns });
    }

    pub(super) fn settle(&mut self, at_ns: u64, key: &str, delta: i64, receipt: Option<usize>) {
        let corrections = vec![CorrectionSpec(0, key.to_owned(), delta)];
        self.0.push(at_ns, Op::Settle { corrections, receipt });
    }

    pub(super) fn hold(&mut self, at_ns: u64, key: &str, span_ns: u64) {
        self.0.push(at_ns, Op::Hold { limit: 0, key: key.to_owned(), span_ns });
    }

    pub(super) fn reset(&mut self, at_ns: u64, key: &str) {
        self.0.push(at_ns, Op::Reset { limit: 0, key: key.to_owned() });
    }

    pub(super) fn push(&mut self, at_ns: u64, op: Op) {
        self.0.push(at_ns, op);
    }

    pub(super) fn build(self) -> Scenario {
        self.0.finish()
    }
}

fn list(charges: &[(usize, &str, u64)]) -> Vec<ChargeSpec> {
    charges.iter().map(|&(limit, key, cost)| ChargeSpec(limit, key.to_owned(), cost)).collect()
}
