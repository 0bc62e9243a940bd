//! The calls under way of models and endpoints, over all accounts that share them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate::pacer::SlotGroup;

/// Groups of slots by the model pattern or endpoint that they are of. Accounts of one provider share
/// them, so that a limit holds over all keys. Cheap to clone; clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct SlotGroups(Arc<Mutex<HashMap<String, SlotGroup>>>);

impl SlotGroups {
    /// The group of this name, made with so many slots if there is none.
    pub(super) fn group(&self, name: &str, limit: u64) -> SlotGroup {
        let mut groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        groups.entry(name.to_owned()).or_insert_with(|| SlotGroup::new(limit)).clone()
    }
}
