//! What an accepted change has come to.

use tidegate_config::{Changed, Effective, Overrides, Plan, Source, Warning};

use super::Current;
use crate::database::{Audit, Stored};

/// An accepted change: what differs since, and what people should look at.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// The settings that differ, or for which something else was asked.
    pub(crate) changes: Vec<Changed>,
    /// Warnings that were not there before.
    pub(crate) warnings: Vec<Warning>,
    /// What other processes wrote, in their order, if it was taken over from them.
    pub(crate) history: Vec<Audit>,
}

impl Applied {
    /// The way from what is in force to another plan.
    pub(super) fn of(before: &Current, plan: &Plan, effective: &[Effective]) -> Self {
        let known = &before.plan.warnings;
        let new = plan.warnings.iter().filter(|warning| !known.contains(warning));
        Self {
            changes: tidegate_config::diff(&before.effective, effective),
            warnings: new.cloned().collect(),
            history: Vec::new(),
        }
    }

    /// With what was written to the database and is in force neither before nor after: a key that
    /// only another version knows, say.
    pub(super) fn with_written(mut self, before: &Stored, after: &Stored, kept_by: Source) -> Self {
        let overrides = |stored: &Stored| Overrides::from_iter(stored.settings.clone());
        let written = overrides(before).diff(&overrides(after), kept_by);
        let is_told = |key: &str| self.changes.iter().any(|told| told.key == key);
        let untold: Vec<_> = written.into_iter().filter(|it| !is_told(&it.key)).collect();
        self.changes.extend(untold);
        self
    }

    /// With what is remembered of the changes of others, the oldest first.
    pub(super) fn with_history(mut self, history: Vec<Audit>) -> Self {
        self.history = history;
        self
    }
}
