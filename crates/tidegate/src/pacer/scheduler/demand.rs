//! Sums of what waiters want, so that the demand ahead of a waiter can be computed.

use crate::pacer::scheduler::slab::Id;

/// The tokens that a waiter wants, by bucket.
pub(crate) trait Demands {
    /// Buckets, and the tokens wanted of each.
    fn demands(&self) -> impl Iterator<Item = (Id, u64)> + '_;

    /// Called when the waiter joins the queue.
    fn on_join(&self) {}

    /// Called when the waiter leaves the queue, granted or not.
    fn on_leave(&self) {}
}

/// Total cost of some waiters, and the tokens that they want.
#[derive(Debug, Default)]
pub(in crate::pacer) struct Demand {
    /// Total cost.
    pub(in crate::pacer) backlog: u64,
    /// Tokens by bucket.
    wanted: Vec<(Id, u128)>,
}

impl Demand {
    /// Tokens wanted of a bucket.
    pub(in crate::pacer) fn tokens_of(&self, bucket: Id) -> u128 {
        self.wanted.iter().find(|(of, _)| *of == bucket).map_or(0, |(_, wanted)| *wanted)
    }

    pub(in crate::pacer) fn add_waiter(&mut self, cost: u64, waiter: &impl Demands) {
        self.backlog = self.backlog.saturating_add(cost);
        for (bucket, tokens) in waiter.demands() {
            self.add_tokens(bucket, tokens.into());
        }
    }

    pub(in crate::pacer) fn remove_waiter(&mut self, cost: u64, waiter: &impl Demands) {
        self.backlog = self.backlog.saturating_sub(cost);
        for (bucket, tokens) in waiter.demands() {
            self.remove_tokens(bucket, tokens.into());
        }
    }

    /// Adds the demand of other waiters.
    pub(in crate::pacer) fn add(&mut self, others: &Self) {
        self.backlog = self.backlog.saturating_add(others.backlog);
        others.wanted.iter().for_each(|(bucket, tokens)| self.add_tokens(*bucket, *tokens));
    }

    /// Subtracts the demand of other waiters.
    pub(in crate::pacer) fn subtract(&mut self, others: &Self) {
        self.backlog = self.backlog.saturating_sub(others.backlog);
        others.wanted.iter().for_each(|(bucket, tokens)| self.remove_tokens(*bucket, *tokens));
    }

    fn add_tokens(&mut self, bucket: Id, tokens: u128) {
        match self.wanted.iter_mut().find(|(of, _)| *of == bucket) {
            Some((_, wanted)) => *wanted += tokens,
            None => self.wanted.push((bucket, tokens)),
        }
    }

    fn remove_tokens(&mut self, bucket: Id, tokens: u128) {
        if let Some(index) = self.wanted.iter().position(|(of, _)| *of == bucket) {
            self.wanted[index].1 -= tokens;
            if self.wanted[index].1 == 0 {
                self.wanted.swap_remove(index);
            }
        }
    }
}
