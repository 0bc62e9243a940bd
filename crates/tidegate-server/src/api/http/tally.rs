//! Decisions, counted by limit. A list that is allowed counts for each of its limits, one that is
//! denied for the one that binds.

use tidegate::{Decision, StoreError};

use super::request::List;
use crate::metrics::Verdict;

/// Counts a decision, and hands it on.
pub(super) fn of(
    decision: Result<Decision, StoreError>,
    list: &List<'_, u64>,
) -> Result<Decision, StoreError> {
    match &decision {
        Ok(Decision::Allowed(grant)) => {
            for (item, outcome) in list.items.iter().zip(&grant.outcomes) {
                item.metrics.decided(Verdict::Allowed);
                // What is left and what was spent make a whole bucket: nothing was known of it.
                if outcome.remaining.checked_add(item.amount) == Some(outcome.capacity) {
                    item.metrics.met_new_key();
                }
            }
        }
        Ok(decision) => {
            if let Some(item) = list.items.get(decision.binding()) {
                item.metrics.decided(Verdict::Denied);
            }
        }
        Err(_) => list.items.iter().for_each(|item| item.metrics.decided(Verdict::Failed)),
    }
    decision
}
