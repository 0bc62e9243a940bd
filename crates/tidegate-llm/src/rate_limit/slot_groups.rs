//! Concurrency limits of models and endpoints, shared by accounts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate::pacer::SlotGroup;

/// Slot groups by model pattern or endpoint. Accounts of one provider share them, so that a limit
/// applies to all keys together. Cheap to clone; clones share the groups.
#[derive(Clone, Debug, Default)]
pub(super) struct SlotGroups(Arc<Mutex<HashMap<String, SlotGroup>>>);

impl SlotGroups {
    /// Returns the group `name`, created with `limit` slots if there is none.
    pub(super) fn group(&self, name: &str, limit: u64) -> SlotGroup {
        let mut groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        groups.entry(name.to_owned()).or_insert_with(|| SlotGroup::new(limit)).clone()
    }
}
