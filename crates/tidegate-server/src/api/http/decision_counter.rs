//! Counts decisions by limit. An allowed list counts for each of its limits, a denied one for the
//! limit that denied it.

use tidegate::{Decision, StoreError};

use super::request::List;
use crate::metrics::DecisionOutcome;

/// Counts a decision and returns it.
pub(super) fn count(
    decision: Result<Decision, StoreError>,
    list: &List<'_, u64>,
) -> Result<Decision, StoreError> {
    match &decision {
        Ok(Decision::Allowed(grant)) => {
            for (item, outcome) in list.items.iter().zip(&grant.outcomes) {
                item.metrics.count(DecisionOutcome::Allowed);
                // If the remaining amount plus the cost is the capacity, the bucket was full or
                // new.
                if outcome.remaining.checked_add(item.amount) == Some(outcome.capacity) {
                    item.metrics.count_new_key();
                }
            }
        }
        Ok(decision) => {
            if let Some(item) = list.items.get(decision.binding()) {
                item.metrics.count(DecisionOutcome::Denied);
            }
        }
        Err(_) => list.items.iter().for_each(|item| item.metrics.count(DecisionOutcome::Failed)),
    }
    decision
}
