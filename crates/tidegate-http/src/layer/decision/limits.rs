//! The limits of a layer, charged together or not at all.
//!
//! Only this module calls limiters. It knows nothing of responses.

use smallvec::SmallVec;
use tidegate::{Decision, Engine, LimitSnapshot, Outcome, Policy, StoreError};
use tidegate_core::{ChargeError, MAX_CHARGES};

use super::rule::{ActualCost, Cost, LimitRule};
use crate::head::Head;
use crate::key::{KeyText, MissingKeyError};

/// The rules of a layer, in their order.
#[derive(Clone, Default)]
pub(crate) struct Limits {
    rules: Vec<LimitRule>,
    cost: Option<Cost>,
    settle: Option<ActualCost>,
}

/// Charge of a request to one rule.
#[derive(Clone)]
pub(crate) struct RuleCharge {
    pub(crate) rule: usize,
    pub(crate) key: KeyText,
    pub(crate) cost: u64,
}

/// Charges of a request, without the rules that do not apply to it.
pub(crate) type Charges = SmallVec<[RuleCharge; 1]>;
/// Current limits of the charged rules.
pub(crate) type Snapshots = SmallVec<[LimitSnapshot; 2]>;

impl Limits {
    /// Adds a rule.
    ///
    /// # Panics
    /// Panics if there are too many rules, or if the rule is on a different store than the others:
    /// no store could decide both.
    pub(crate) fn add(&mut self, rule: LimitRule) {
        assert!(self.rules.len() < MAX_CHARGES, "a layer has at most {MAX_CHARGES} limits");
        if let Some(first) = self.rules.first() {
            let same = first.limiter.engine().store().ptr_eq(rule.limiter.engine().store());
            assert!(
                same,
                "limits of a layer are decided together and need one store; create them all with one \
                 Engine"
            );
        }
        self.rules.push(rule);
    }

    pub(crate) fn set_cost(&mut self, cost: Cost) {
        self.cost = Some(cost);
    }

    pub(crate) fn set_settle(&mut self, actual: ActualCost) {
        self.settle = Some(actual);
    }

    pub(crate) fn rules(&self) -> &[LimitRule] {
        &self.rules
    }

    /// Returns the engine that decides all rules; `None` without rules.
    pub(crate) fn engine(&self) -> Option<&Engine> {
        self.rules.first().map(|rule| rule.limiter.engine())
    }

    /// Collects the charges of a request.
    pub(crate) fn charges(
        &self,
        head: &Head<'_>,
        charges: &mut Charges,
    ) -> Result<(), MissingKeyError> {
        for (index, rule) in self.rules.iter().enumerate() {
            if let Some(key) = rule.key(head)? {
                let cost = self.cost_of(rule, head);
                charges.push(RuleCharge { rule: index, key, cost });
            }
        }
        Ok(())
    }

    /// Returns the cost to charge up front. A cost that is settled later is at least 1: zero is
    /// never denied, so a limit in debt would refuse no request.
    fn cost_of(&self, rule: &LimitRule, head: &Head<'_>) -> u64 {
        let cost = rule.cost.as_ref().or(self.cost.as_ref()).map_or(1, |cost| cost(head));
        if cost == 0 && self.settles_by(rule) && !counts_slots(rule.limiter.limit().policy()) {
            1
        } else {
            cost
        }
    }

    pub(crate) fn rule(&self, charge: &RuleCharge) -> &LimitRule {
        &self.rules[charge.rule]
    }

    /// Returns the current limits, in the order of the charges.
    pub(crate) fn snapshots(&self, charges: &[RuleCharge]) -> Snapshots {
        charges.iter().map(|charge| self.rule(charge).limiter.snapshot()).collect()
    }

    /// Returns the function for the actual cost of rules without one of their own.
    pub(crate) const fn settle(&self) -> Option<&ActualCost> {
        self.settle.as_ref()
    }

    /// Returns whether any of these charges is settled later.
    pub(crate) fn settles(&self, charges: &[RuleCharge]) -> bool {
        charges.iter().any(|charge| self.settles_by(self.rule(charge)))
    }

    fn settles_by(&self, rule: &LimitRule) -> bool {
        self.settle.is_some() || rule.settle.is_some()
    }

    /// Fast path: decides a single charge to a token bucket without a receipt, if it is not settled
    /// later. Returns `None`, without any effect, if the charge does not qualify.
    #[inline]
    pub(crate) fn spend(&self, charges: &[RuleCharge]) -> Option<(Outcome, LimitSnapshot)> {
        let [charge] = charges else { return None };
        let rule = self.rule(charge);
        if self.settles_by(rule) {
            return None;
        }
        let snapshot = rule.limiter.snapshot();
        let outcome = rule.limiter.take_bare(&snapshot, charge.key.as_str(), charge.cost)?;
        Some((outcome, snapshot))
    }

    /// Decides; ready at the first poll on a local store.
    pub(crate) async fn decide(&self, charges: &[RuleCharge]) -> Result<Decision, StoreError> {
        if let [charge] = charges {
            let limiter = &self.rule(charge).limiter;
            return limiter.take(charge.key.as_str()).cost(charge.cost).await;
        }
        let engine = self.engine().ok_or(ChargeError::Empty)?;
        let list = charges
            .iter()
            .map(|charge| self.rule(charge).limiter.charge(charge.key.as_str(), charge.cost));
        engine.take(list).await
    }
}

/// Returns whether a policy counts slots, which are released as a whole and not settled.
pub(crate) const fn counts_slots(policy: &Policy) -> bool {
    matches!(policy, Policy::Concurrency(_))
}

/// Returns whether any of these limits counts slots.
pub(crate) fn holds_slots(snapshots: &[LimitSnapshot]) -> bool {
    snapshots.iter().any(|snapshot| counts_slots(snapshot.limit().policy()))
}
