//! The policies that limits have had, over the lives of several processes.
//!
//! A process counts the generations of a limit from zero, and a cell of the table does not say
//! which limit it belongs to. So there is one count for all limits of a file: what was restored has
//! numbers below a base, and the generations of this process follow from the base on. A policy
//! holds from a number until the limit has another one; a restart that changes nothing adds
//! nothing. When a file is read the numbers are made small again: only those at which some limit
//! changed have to be listed apart.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_core::{Change, Limit, Policy, Revision};

use super::records::SavedLimit;

/// How many policies of one limit are remembered. A bucket from before the oldest of them counts
/// as empty: never in the caller's favour.
pub(super) const MAX_SPANS: usize = 257;
/// The longest identity of a limit, in bytes: longer than any name or fingerprint.
pub(super) const MAX_IDENTITY_BYTES: usize = 1_024;
/// How many revisions before its present one a [`Limit`] remembers.
const REMEMBERED: u32 = 256;

/// One policy in the life of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PolicySpan {
    /// The number from which on it holds.
    pub(super) from: u32,
    pub(super) policy: Policy,
    /// What happened to existing buckets then.
    pub(super) change: Change,
}

/// The policies of one limit, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    spans: Vec<PolicySpan>,
    /// From this number on nobody has listed of the limit.
    ends: Option<u32>,
}

impl History {
    pub(super) fn spans(&self) -> &[PolicySpan] {
        &self.spans
    }

    pub(super) const fn ends(&self) -> Option<u32> {
        self.ends
    }

    /// The same, but nothing is known of it from a number on.
    pub(super) fn ending_at(mut self, version: u32) -> Self {
        self.ends = Some(self.ends.map_or(version, |ends| ends.min(version)));
        self
    }

    /// Adds a policy; says whether it came after the others, as it must.
    pub(super) fn push(&mut self, from: u32, policy: Policy, change: Change) -> bool {
        let later = self.spans.last().is_none_or(|last| last.from < from);
        if later {
            self.spans.push(PolicySpan { from, policy, change });
        }
        later
    }

    /// The policy at a number, and those that followed; `None` if it is not remembered.
    pub(super) fn since(&self, version: u32) -> Option<&[PolicySpan]> {
        if self.ends.is_some_and(|ends| ends <= version) {
            return None;
        }
        let after = self.spans.partition_point(|span| span.from <= version);
        self.spans.get(after.checked_sub(1)?..)
    }

    /// The same, and what became of the limit in this process.
    pub(super) fn extended(mut self, limit: &Limit, base: u32) -> Self {
        let oldest = limit.generation().saturating_sub(REMEMBERED);
        if oldest > 0 || self.ends.take().is_some() {
            // What lies between is forgotten, so what was before does not help.
            self.spans.clear();
        }
        for revision in limit.since(oldest).into_iter().flatten() {
            if !self.ends_with(revision) {
                let from = base.saturating_add(revision.generation());
                self.push(from, *revision.policy(), revision.change());
            }
        }
        let excess = self.spans.len().saturating_sub(MAX_SPANS);
        self.spans.drain(..excess);
        self
    }

    /// Whether a revision changes nothing.
    fn ends_with(&self, revision: &Revision) -> bool {
        let same = |last: &PolicySpan| last.policy == *revision.policy();
        revision.change() != Change::Reset && self.spans.last().is_some_and(same)
    }

    /// The same under other numbers. Policies that are too old for a number of their own are gone
    /// but for the last of them, which holds from number 1 on.
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

/// VersionMap that tell apart what has to be listed apart.
#[derive(Clone, Debug, Default)]
pub(super) struct VersionMap {
    /// The old numbers at which some limit changed, in order.
    changes: Vec<u32>,
}

impl VersionMap {
    /// At most `most` numbers, from 1 on; what is too old for them has number 0.
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

    /// The new number of an old one.
    pub(super) fn get(&self, old: u32) -> u32 {
        let version = self.changes.partition_point(|&change| change <= old);
        u32::try_from(version).unwrap_or(u32::MAX)
    }
}

/// What is known of the limits of the processes before this one.
#[derive(Clone, Debug, Default)]
pub(crate) struct RestoredLimits {
    limits: BTreeMap<Arc<str>, History>,
    /// The number of generation 0 in this process.
    base: u32,
}

impl RestoredLimits {
    /// That of a file, with at most `most` numbers, and what its numbers have become.
    pub(super) fn new(limits: &[SavedLimit], max: u32) -> (Self, VersionMap) {
        let versions = VersionMap::new(limits, max);
        let renumbered = limits
            .iter()
            .map(|limit| (Arc::from(limit.identity.as_str()), limit.history.renumbered(&versions)));
        let base = versions.get(u32::MAX).saturating_add(1);
        (Self { limits: renumbered.collect(), base }, versions)
    }

    /// The history of a limit before this process.
    pub(crate) fn get(&self, identity: &str) -> Option<&History> {
        self.limits.get(identity)
    }

    /// The number of a generation of this process.
    pub(super) fn version_of(&self, generation: u32) -> u32 {
        self.base.saturating_add(generation)
    }

    /// What the next process has to know: these limits, and the others from before unless nothing
    /// of theirs is left.
    pub(super) fn extended(
        &self,
        limits: &BTreeMap<Arc<str>, Limit>,
        restored_cells: RestoredCells,
    ) -> BTreeMap<Arc<str>, History> {
        let mut histories = match restored_cells {
            // What this process spent under a name that nobody tells of, it spent under a policy that
            // nobody knows.
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

/// Whether the store still has anything that was restored and not touched since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RestoredCells {
    Remain,
    Gone,
}
