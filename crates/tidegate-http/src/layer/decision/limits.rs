//! The limits of a layer, charged together or not at all.
//!
//! Only this module calls limiters. It knows nothing of responses.

use smallvec::SmallVec;
use tidegate::{Decision, Engine, Outcome, Policy, Snapshot, StoreError};
use tidegate_core::{ChargeError, MAX_CHARGES};

use super::rule::{Cost, Real, Rule};
use crate::head::Head;
use crate::key::{KeyText, Unkeyed};

/// The rules of a layer, in their order.
#[derive(Clone, Default)]
pub(crate) struct Limits {
    rules: Vec<Rule>,
    cost: Option<Cost>,
    settle: Option<Real>,
}

/// Charge of a request to one rule.
#[derive(Clone)]
pub(crate) struct Charged {
    pub(crate) rule: usize,
    pub(crate) key: KeyText,
    pub(crate) cost: u64,
}

/// Charges of a request, without the rules that do not apply to it.
pub(crate) type Charges = SmallVec<[Charged; 1]>;
/// Current limits of the charged rules.
pub(crate) type Snapshots = SmallVec<[Snapshot; 2]>;

impl Limits {
    /// Adds a rule.
    ///
    /// # Panics
    /// Panics if there are too many rules, or if the rule is on a different store than the others:
    /// no store could decide both.
    pub(crate) fn add(&mut self, rule: Rule) {
        assert!(self.rules.len() < MAX_CHARGES, "a layer has at most {MAX_CHARGES} limits");
        if let Some(first) = self.rules.first() {
            let same = first.limiter.engine().store().is_same(rule.limiter.engine().store());
            assert!(
                same,
                "the limits of a layer are decided together, so they need one store: make them all with one \
                 Engine"
            );
        }
        self.rules.push(rule);
    }

    pub(crate) fn set_cost(&mut self, cost: Cost) {
        self.cost = Some(cost);
    }

    pub(crate) fn set_settle(&mut self, real: Real) {
        self.settle = Some(real);
    }

    pub(crate) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns the engine that decides all rules; `None` without rules.
    pub(crate) fn engine(&self) -> Option<&Engine> {
        self.rules.first().map(|rule| rule.limiter.engine())
    }

    /// Collects the charges of a request.
    pub(crate) fn charges(&self, head: &Head<'_>, charges: &mut Charges) -> Result<(), Unkeyed> {
        for (index, rule) in self.rules.iter().enumerate() {
            if let Some(key) = rule.key(head)? {
                let cost = self.cost_of(rule, head);
                charges.push(Charged { rule: index, key, cost });
            }
        }
        Ok(())
    }

    /// Returns the cost to charge up front. A cost that is settled later is at least 1: zero is
    /// never denied, so a limit in debt would refuse no request.
    fn cost_of(&self, rule: &Rule, head: &Head<'_>) -> u64 {
        let cost = rule.cost.as_ref().or(self.cost.as_ref()).map_or(1, |cost| cost(head));
        if cost == 0 && self.settles_by(rule) && !counts_slots(rule.limiter.limit().policy()) {
            1
        } else {
            cost
        }
    }

    pub(crate) fn rule(&self, charged: &Charged) -> &Rule {
        &self.rules[charged.rule]
    }

    /// Returns the current limits, in the order of the charges.
    pub(crate) fn snapshots(&self, charges: &[Charged]) -> Snapshots {
        charges.iter().map(|charged| self.rule(charged).limiter.snapshot()).collect()
    }

    /// Returns the function for the actual cost of rules without one of their own.
    pub(crate) const fn settle(&self) -> Option<&Real> {
        self.settle.as_ref()
    }

    /// Returns whether any of these charges is settled later.
    pub(crate) fn settles(&self, charges: &[Charged]) -> bool {
        charges.iter().any(|charged| self.settles_by(self.rule(charged)))
    }

    fn settles_by(&self, rule: &Rule) -> bool {
        self.settle.is_some() || rule.settle.is_some()
    }

    /// Fast path: decides a single charge to a token bucket without a receipt, if it is not settled
    /// later. Returns `None`, without any effect, if the charge does not qualify.
    #[inline]
    pub(crate) fn spend(&self, charges: &[Charged]) -> Option<(Outcome, Snapshot)> {
        let [one] = charges else { return None };
        let rule = self.rule(one);
        if self.settles_by(rule) {
            return None;
        }
        let terms = rule.limiter.snapshot();
        let outcome = rule.limiter.spend(&terms, one.key.as_str(), one.cost)?;
        Some((outcome, terms))
    }

    /// Decides; ready at the first poll on a local store.
    pub(crate) async fn decide(&self, charges: &[Charged]) -> Result<Decision, StoreError> {
        if let [one] = charges {
            let limiter = &self.rule(one).limiter;
            return limiter.take(one.key.as_str()).cost(one.cost).await;
        }
        let engine = self.engine().ok_or(ChargeError::Empty)?;
        let list = charges
            .iter()
            .map(|charged| self.rule(charged).limiter.charge(charged.key.as_str(), charged.cost));
        engine.take(list).await
    }
}

/// Returns whether a policy counts slots, which are released as a whole and not settled.
pub(crate) const fn counts_slots(policy: &Policy) -> bool {
    matches!(policy, Policy::Concurrency(_))
}

/// Returns whether any of these limits counts slots.
pub(crate) fn holds_slots(snapshots: &[Snapshot]) -> bool {
    snapshots.iter().any(|terms| counts_slots(terms.limit().policy()))
}
