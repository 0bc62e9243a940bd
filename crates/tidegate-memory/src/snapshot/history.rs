//! Policies that limits have had across several processes.
//!
//! A process counts the generations of each limit from zero, and a cell of the table does not
//! identify its limit. So a file uses one sequence of policy versions for all limits: restored
//! cells have versions below a base, and generation 0 of this process has the base as its version.
//! A policy is in force from one version until the limit has another policy; a restart without
//! changes adds nothing. When a file is read, versions are renumbered: only those at which some
//! limit changed must remain distinct.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_core::{Limit, Policy, PolicyChange, Revision};

use super::records::SavedLimit;

/// Maximum number of policies kept per limit. A bucket written before the oldest of them counts as
/// empty, never in the caller's favour.
pub(super) const MAX_SPANS: usize = 257;
/// Maximum length of a limit's identity, in bytes. Longer than any name or fingerprint.
pub(super) const MAX_IDENTITY_BYTES: usize = 1_024;
/// Number of past revisions that a [`Limit`] keeps.
const REMEMBERED: u32 = 256;

/// One policy in the history of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PolicySpan {
    /// Version from which on it is in force.
    pub(super) from: u32,
    pub(super) policy: Policy,
    /// How existing buckets were converted then.
    pub(super) change: PolicyChange,
}

/// Policies of one limit, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    spans: Vec<PolicySpan>,
    /// Nothing is known of the limit from this version on.
    ends: Option<u32>,
}

impl History {
    pub(super) fn spans(&self) -> &[PolicySpan] {
        &self.spans
    }

    pub(super) const fn ends(&self) -> Option<u32> {
        self.ends
    }

    /// Limits the history: nothing is known from `version` on.
    pub(super) fn ending_at(mut self, version: u32) -> Self {
        self.ends = Some(self.ends.map_or(version, |ends| ends.min(version)));
        self
    }

    /// Adds a policy. Returns `false`, without adding it, unless it follows the others.
    pub(super) fn push(&mut self, from: u32, policy: Policy, change: PolicyChange) -> bool {
        let later = self.spans.last().is_none_or(|last| last.from < from);
        if later {
            self.spans.push(PolicySpan { from, policy, change });
        }
        later
    }

    /// Returns the policy at `version` and all later ones; `None` if it is not known.
    pub(super) fn since(&self, version: u32) -> Option<&[PolicySpan]> {
        if self.ends.is_some_and(|ends| ends <= version) {
            return None;
        }
        let after = self.spans.partition_point(|span| span.from <= version);
        self.spans.get(after.checked_sub(1)?..)
    }

    /// Adds the revisions of the limit in this process.
    pub(super) fn extended(mut self, limit: &Limit, base: u32) -> Self {
        let oldest = limit.generation().saturating_sub(REMEMBERED);
        if oldest > 0 || self.ends.take().is_some() {
            // The revisions in between are unknown, so the earlier ones are useless.
            self.spans.clear();
        }
        for revision in limit.revisions_since(oldest).into_iter().flatten() {
            if !self.ends_with(revision) {
                let from = base.saturating_add(revision.generation());
                self.push(from, *revision.policy(), revision.change());
            }
        }
        let excess = self.spans.len().saturating_sub(MAX_SPANS);
        self.spans.drain(..excess);
        self
    }

    /// Returns whether a revision changes nothing.
    fn ends_with(&self, revision: &Revision) -> bool {
        let same = |last: &PolicySpan| last.policy == *revision.policy();
        revision.change() != PolicyChange::Reset && self.spans.last().is_some_and(same)
    }

    /// Applies new version numbers. Of the policies too old to have a version of their own, only
    /// the last is kept, in force from version 1 on.
    fn renumbered(&self, versions: &VersionMap) -> Self {
        let mut spans: Vec<PolicySpan> = Vec::with_capacity(self.spans.len());
        for span in &self.spans {
            let from = versions.get(span.from).max(1);
            if spans.last().is_some_and(|last| last.from == from) {
                spans.pop();
            }
            spans.push(PolicySpan { from, ..*span });
        }
        Self { spans, ends: self.ends.map(|ends| versions.get(ends)) }
    }
}

/// Mapping from the versions of a file to a smaller range.
#[derive(Clone, Debug, Default)]
pub(super) struct VersionMap {
    /// Old versions at which some limit changed, in order.
    changes: Vec<u32>,
}

impl VersionMap {
    /// Uses at most `max` versions, starting with 1. Older ones map to 0.
    fn new(limits: &[SavedLimit], max: u32) -> Self {
        let spans = limits.iter().flat_map(|limit| limit.history.spans());
        let ends = limits.iter().filter_map(|limit| limit.history.ends());
        let mut changes: Vec<u32> = spans.map(|span| span.from).chain(ends).collect();
        changes.sort_unstable();
        changes.dedup();
        let excess = changes.len().saturating_sub(usize::try_from(max).unwrap_or(usize::MAX));
        changes.drain(..excess);
        Self { changes }
    }

    /// Returns the new version for an old one.
    pub(super) fn get(&self, old: u32) -> u32 {
        let version = self.changes.partition_point(|&change| change <= old);
        u32::try_from(version).unwrap_or(u32::MAX)
    }
}

/// Limits of earlier processes.
#[derive(Clone, Debug, Default)]
pub(crate) struct RestoredLimits {
    limits: BTreeMap<Arc<str>, History>,
    /// Version of generation 0 in this process.
    base: u32,
}

impl RestoredLimits {
    /// Creates the limits of a file, using at most `max` versions, and the mapping of its versions.
    pub(super) fn new(limits: &[SavedLimit], max: u32) -> (Self, VersionMap) {
        let versions = VersionMap::new(limits, max);
        let renumbered = limits
            .iter()
            .map(|limit| (Arc::from(limit.identity.as_str()), limit.history.renumbered(&versions)));
        let base = versions.get(u32::MAX).saturating_add(1);
        (Self { limits: renumbered.collect(), base }, versions)
    }

    /// Returns the history of a limit before this process.
    pub(crate) fn get(&self, identity: &str) -> Option<&History> {
        self.limits.get(identity)
    }

    /// Returns the version of a generation of this process.
    pub(super) fn version_of(&self, generation: u32) -> u32 {
        self.base.saturating_add(generation)
    }

    /// Returns what to save for the next process: `limits` and, while restored cells remain, all
    /// other limits of earlier processes.
    pub(super) fn extended(
        &self,
        limits: &BTreeMap<Arc<str>, Limit>,
        restored_cells: RestoredCells,
    ) -> BTreeMap<Arc<str>, History> {
        let mut histories = match restored_cells {
            // Usage under a name that is not in `limits` was recorded under an unknown policy.
            RestoredCells::Remain => {
                let ended = |(identity, history): (&Arc<str>, &History)| {
                    let (history, listed) = (history.clone(), limits.contains_key(identity));
                    (identity.clone(), if listed { history } else { history.ending_at(self.base) })
                };
                self.limits.iter().map(ended).collect()
            }
            RestoredCells::Gone => BTreeMap::new(),
        };
        for (identity, limit) in limits {
            let before = histories.remove(identity).unwrap_or_default();
            histories.insert(identity.clone(), before.extended(limit, self.base));
        }
        histories
    }
}

/// Whether the store still contains restored cells that have not been used since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RestoredCells {
    Remain,
    Gone,
}
