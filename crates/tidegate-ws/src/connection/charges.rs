//! The charges of one message, collected before they are decided.
//!
//! A connection reuses the entries of one list. So a message denied by a limit allocates nothing but
//! its reply; with several on one store, the engine also lists their charges.

use std::fmt::Write;

use crate::context::IngressContext;
use crate::gate::limiters::{DecidedBy, Limiters};
use crate::gate::rule::MessageRule;
use crate::key::KeyParts;

/// One charge: a limiter, a key and a cost.
#[derive(Clone)]
pub(crate) struct MessageCharge {
    /// Index of the limiter in the gate.
    pub(crate) limiter_index: usize,
    pub(crate) key: String,
    pub(crate) is_connection_key: bool,
    pub(crate) decided_by: DecidedBy,
    pub(crate) cost: u64,
}

/// A cost is not positive: only the ceiling is charged.
pub(crate) struct BadCost;

/// The charges of one message, in the order in which their stores decide.
#[derive(Default)]
pub(crate) struct MessageCharges {
    list: Vec<MessageCharge>,
    used: usize,
}

impl MessageCharges {
    /// Collects the charges for a frame: those of the rules if it is a message, and that of the
    /// ceiling. Calls the functions of the application. After an error, the ceiling is the only
    /// charge.
    pub(crate) fn collect<D>(
        &mut self,
        (limiters, rules): (&Limiters, &[MessageRule<D>]),
        zero_is_free: bool,
        message: Option<&IngressContext<'_, D>>,
        connection_key: &KeyParts<'_>,
    ) -> Result<(), BadCost> {
        self.used = 0;
        let collected = match message {
            Some(context) => self.add_rules((limiters, rules), zero_is_free, context),
            None => Ok(()),
        };
        if collected.is_err() {
            self.used = 0;
        }
        if let Some(limiter_index) = limiters.ceiling() {
            self.add(limiters, limiter_index, connection_key, 1);
        }
        self.list[..self.used].sort_by_key(|charge| charge.decided_by);
        collected
    }

    fn add_rules<D>(
        &mut self,
        (limiters, rules): (&Limiters, &[MessageRule<D>]),
        zero_is_free: bool,
        context: &IngressContext<'_, D>,
    ) -> Result<(), BadCost> {
        for rule in rules.iter().filter_map(|rule| rule.choose(context)) {
            match u64::try_from(rule.cost_of(context)) {
                Ok(0) if zero_is_free => {}
                Ok(0) | Err(_) => return Err(BadCost),
                Ok(cost) => self.add(limiters, rule.limiter_index, &rule.key_of(context), cost),
            }
        }
        Ok(())
    }

    fn add(&mut self, limiters: &Limiters, limiter_index: usize, key: &KeyParts<'_>, cost: u64) {
        let is_connection_key = key.is_connection_key();
        let decided_by = limiters.decided_by(limiter_index, is_connection_key);
        if self.used == self.list.len() {
            let key = String::new();
            self.list.push(MessageCharge {
                limiter_index,
                key,
                is_connection_key,
                decided_by,
                cost,
            });
        }
        let charge = &mut self.list[self.used];
        self.used += 1;
        charge.key.clear();
        // Writing to a string does not fail.
        let _ = write!(charge.key, "{key}");
        let key = std::mem::take(&mut charge.key);
        *charge = MessageCharge { limiter_index, key, is_connection_key, decided_by, cost };
    }

    pub(crate) fn list(&self) -> &[MessageCharge] {
        &self.list[..self.used]
    }

    /// Returns the charges by store, in the order of the decisions.
    pub(crate) fn by_store(&self) -> impl Iterator<Item = &[MessageCharge]> {
        self.list().chunk_by(|one, next| one.decided_by == next.decided_by)
    }
}
