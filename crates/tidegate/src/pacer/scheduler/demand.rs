//! What waiters want, summed up, so that what is ahead of another can be told.

use crate::pacer::scheduler::slab::Id;

/// What a waiter spends where, so that what is ahead of another can be summed up.
pub(crate) trait Demands {
    /// Buckets and the tokens that are wanted of them.
    fn demands(&self) -> impl Iterator<Item = (Id, u64)> + '_;

    /// The waiter has joined the queue.
    fn joins(&self) {}

    /// The waiter is in the queue no more, granted or not.
    fn leaves(&self) {}
}

/// The cost of some waiters, and the tokens that they want.
#[derive(Debug, Default)]
pub(in crate::pacer) struct Demand {
    /// Cost of all of them.
    pub(in crate::pacer) backlog: u64,
    /// Tokens by bucket.
    wanted: Vec<(Id, u128)>,
}

impl Demand {
    /// Tokens of a bucket that are wanted.
    pub(in crate::pacer) fn of(&self, bucket: Id) -> u128 {
        self.wanted.iter().find(|(of, _)| *of == bucket).map_or(0, |(_, wanted)| *wanted)
    }

    pub(in crate::pacer) fn count(&mut self, cost: u64, waiter: &impl Demands) {
        self.backlog = self.backlog.saturating_add(cost);
        for (bucket, tokens) in waiter.demands() {
            self.want(bucket, tokens.into());
        }
    }

    pub(in crate::pacer) fn discount(&mut self, cost: u64, waiter: &impl Demands) {
        self.backlog = self.backlog.saturating_sub(cost);
        for (bucket, tokens) in waiter.demands() {
            self.want_no_more(bucket, tokens.into());
        }
    }

    /// Adds what others want.
    pub(in crate::pacer) fn add(&mut self, others: &Self) {
        self.backlog = self.backlog.saturating_add(others.backlog);
        others.wanted.iter().for_each(|(bucket, tokens)| self.want(*bucket, *tokens));
    }

    /// Takes off what others want.
    pub(in crate::pacer) fn subtract(&mut self, others: &Self) {
        self.backlog = self.backlog.saturating_sub(others.backlog);
        others.wanted.iter().for_each(|(bucket, tokens)| self.want_no_more(*bucket, *tokens));
    }

    fn want(&mut self, bucket: Id, tokens: u128) {
        match self.wanted.iter_mut().find(|(of, _)| *of == bucket) {
            Some((_, wanted)) => *wanted += tokens,
            None => self.wanted.push((bucket, tokens)),
        }
    }

    fn want_no_more(&mut self, bucket: Id, tokens: u128) {
        if let Some(index) = self.wanted.iter().position(|(of, _)| *of == bucket) {
            self.wanted[index].1 -= tokens;
            if self.wanted[index].1 == 0 {
                self.wanted.swap_remove(index);
            }
        }
    }
}
