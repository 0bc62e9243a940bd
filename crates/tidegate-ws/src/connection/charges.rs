//! The charges of one message, collected before the store call.
//!
//! A connection reuses the entries of one list. So a message denied by up to two limits allocates
//! nothing but its reply; more than two charges do not fit on the stack.

use std::fmt::Write;

use tidegate::{Decision, Limiter, Request};

use crate::context::IngressContext;
use crate::gate::rule::MessageRule;
use crate::key::KeyParts;

/// One charge: a limiter, a key and a cost.
#[derive(Clone)]
pub(crate) struct MessageCharge {
    /// Index of the limiter in the gate.
    pub(crate) limiter_index: usize,
    pub(crate) key: String,
    pub(crate) is_connection_key: bool,
    pub(crate) cost: u64,
}

/// Error of a cost that is not positive.
pub(crate) struct BadCost;

/// The charges of one message.
#[derive(Default)]
pub(crate) struct MessageCharges {
    list: Vec<MessageCharge>,
    used: usize,
}

impl MessageCharges {
    /// Removes all charges and keeps their allocations.
    pub(crate) const fn clear(&mut self) {
        self.used = 0;
    }

    /// Adds the charges of the rules for a message. Calls the functions of the application.
    pub(crate) fn add_rules<D>(
        &mut self,
        rules: &[MessageRule<D>],
        zero_is_free: bool,
        context: &IngressContext<'_, D>,
    ) -> Result<(), BadCost> {
        for rule in rules.iter().filter_map(|rule| rule.choose(context)) {
            match u64::try_from(rule.cost_of(context)) {
                Ok(0) if zero_is_free => {}
                Ok(0) | Err(_) => return Err(BadCost),
                Ok(cost) => self.add(rule.limiter_index, &rule.key_of(context), cost),
            }
        }
        Ok(())
    }

    pub(crate) fn add(&mut self, limiter_index: usize, key: &KeyParts<'_>, cost: u64) {
        if self.used == self.list.len() {
            self.list.push(MessageCharge {
                limiter_index,
                key: String::new(),
                is_connection_key: false,
                cost,
            });
        }
        let charge = &mut self.list[self.used];
        self.used += 1;
        (charge.limiter_index, charge.cost, charge.is_connection_key) =
            (limiter_index, cost, key.is_connection_key());
        charge.key.clear();
        // Writing to a string does not fail.
        let _ = write!(charge.key, "{key}");
    }

    pub(crate) fn list(&self) -> &[MessageCharge] {
        &self.list[..self.used]
    }

    /// Copies the charges, for a task to own.
    pub(crate) fn to_owned_charges(&self) -> Self {
        Self { list: self.list().to_vec(), used: self.used }
    }

    /// Builds the request to the store; `None` if there is nothing to charge.
    pub(crate) fn request<'a>(&'a self, limiters: &'a [Limiter]) -> Option<Request<'a, Decision>> {
        match self.list() {
            [] => None,
            // Calling the limiter directly respects the waiters of its pacer.
            [charge] => Some(limiters[charge.limiter_index].take(&charge.key).cost(charge.cost)),
            [first, ..] => {
                let list = self.list().iter();
                let charges = list
                    .map(|charge| limiters[charge.limiter_index].charge(&charge.key, charge.cost));
                Some(limiters[first.limiter_index].engine().take(charges))
            }
        }
    }
}
