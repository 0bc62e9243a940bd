//! The effects of an accepted change.

use tidegate_config::{Config, EffectiveSetting, Overrides, SettingChange, Source, Warning};

use super::ConfigSnapshot;
use crate::database::{AuditEntry, StoredSettings};

/// The effects of an accepted change, for its author and the audit log.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// Settings whose value changed, or was requested but adjusted.
    pub(crate) changes: Vec<SettingChange>,
    /// Warnings that the previous configuration did not have.
    pub(crate) warnings: Vec<Warning>,
    /// Audit entries of changes made by other processes, oldest first.
    pub(crate) history: Vec<AuditEntry>,
}

impl Applied {
    /// Computes the difference between the current configuration and another plan.
    pub(super) fn difference(
        before: &ConfigSnapshot,
        plan: &Config,
        effective: &[EffectiveSetting],
    ) -> Self {
        let known = &before.plan.warnings;
        let new = plan.warnings.iter().filter(|warning| !known.contains(warning));
        Self {
            changes: tidegate_config::diff(&before.effective, effective),
            warnings: new.cloned().collect(),
            history: Vec::new(),
        }
    }

    /// Adds settings that were written to the database but are not effective before or after, such
    /// as a key that only another version knows.
    pub(super) fn with_written(
        mut self,
        before: &StoredSettings,
        after: &StoredSettings,
        source: Source,
    ) -> Self {
        let overrides = |stored: &StoredSettings| Overrides::from_iter(stored.settings.clone());
        let written = overrides(before).diff(&overrides(after), source);
        let is_known = |key: &str| self.changes.iter().any(|change| change.key == key);
        let missing: Vec<_> = written.into_iter().filter(|it| !is_known(&it.key)).collect();
        self.changes.extend(missing);
        self
    }

    /// Adds the audit entries of changes made by other processes, oldest first.
    pub(super) fn with_history(mut self, history: Vec<AuditEntry>) -> Self {
        self.history = history;
        self
    }
}
