//! Which connections to close when there is no room for another: those that wait for their caller,
//! never one that is busy with a request.
//!
//! A connection that answers a request pays nothing for this: its state is looked at only while room
//! is short, and then for many connections at once and not for each newcomer.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::task::Id;
use tokio::time::Instant;

/// How long a head may take before its connection counts as slow: several round trips of a far
/// caller.
const SLOW_HEAD: Duration = Duration::from_secs(1);

/// How long after the connections were looked through they are not looked through again. With
/// 10,000 of them that takes about a millisecond.
const PAUSE: Duration = Duration::from_millis(100);

/// What a connection waits for, and since when. Idle ones are closed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The next request.
    Request { since: Instant },
    /// The rest of a head, or all of the first one.
    Head { since: Instant },
}

impl Wait {
    pub(super) const fn since(self) -> Instant {
        match self {
            Self::Request { since } | Self::Head { since } => since,
        }
    }
}

/// A connection as the acceptor sees it.
pub(crate) trait Evict: Send + Sync {
    /// What it waits for; `None` while it is busy.
    fn waits(&self) -> Option<Wait>;

    /// Has it close, if it still waits as it did. `false` if it does not.
    fn evict(&self, wait: Wait) -> bool;
}

/// Connections that were found waiting, in the order in which they are closed. They may be busy by
/// now.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    queue: VecDeque<(Id, Wait)>,
    looked: Option<Instant>,
}

/// A connection that waits. Those of a higher rank are closed first.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) rank: usize,
    pub(super) wait: Wait,
    pub(super) id: Id,
}

impl Candidates {
    /// The next one.
    pub(super) fn pop(&mut self) -> Option<(Id, Wait)> {
        self.queue.pop_front()
    }

    /// Whether it is time to look through the connections again.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.looked.is_none_or(|looked| now.saturating_duration_since(looked) >= PAUSE)
    }

    /// Takes in what was found: idle connections, or if there are none those with slow heads, by
    /// rank, and of one rank the oldest first. `false` if none is of use.
    pub(super) fn fill(&mut self, mut found: Vec<Waiting>, now: Instant) -> bool {
        self.looked = Some(now);
        let is_idle = |one: &Waiting| matches!(one.wait, Wait::Request { .. });
        if found.iter().any(is_idle) {
            found.retain(is_idle);
        } else {
            found.retain(|one| now.saturating_duration_since(one.wait.since()) >= SLOW_HEAD);
        }
        found.sort_unstable_by_key(|one| (std::cmp::Reverse(one.rank), one.wait.since()));
        self.queue = found.into_iter().map(|one| (one.id, one.wait)).collect();
        !self.queue.is_empty()
    }
}
