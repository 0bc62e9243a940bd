//! Selects connections to close when there is no room: those that wait for their caller, never one
//! that is busy with a request.
//!
//! This costs a request nothing. The state of connections is read only while room is short, and
//! then for many connections at once instead of once per new connection.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::task::Id;
use tokio::time::Instant;

/// How long a head may take before its connection counts as slow: several round trips of a distant
/// caller.
const SLOW_HEAD: Duration = Duration::from_secs(1);

/// Minimum interval between scans of all connections. A scan of 10,000 takes about a millisecond.
const RESCAN_INTERVAL: Duration = Duration::from_millis(100);

/// What a connection waits for, and since when. Idle connections are closed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The next request.
    Request { since: Instant },
    /// The rest of a head, or the whole first head.
    Head { since: Instant },
}

impl Wait {
    pub(super) const fn since(self) -> Instant {
        match self {
            Self::Request { since } | Self::Head { since } => since,
        }
    }
}

/// Access of the accept loop to a connection.
pub(crate) trait Evict: Send + Sync {
    /// Returns what the connection waits for; `None` while it is busy.
    fn current_wait(&self) -> Option<Wait>;

    /// Closes the connection if it is still in state `wait`. Returns whether it did.
    fn evict(&self, wait: Wait) -> bool;
}

/// Waiting connections in the order in which to close them. They may have become busy since the
/// scan.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    queue: VecDeque<(Id, Wait)>,
    last_scan: Option<Instant>,
}

/// A waiting connection. A higher rank is closed first.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) rank: usize,
    pub(super) wait: Wait,
    pub(super) id: Id,
}

impl Candidates {
    /// Removes and returns the next candidate.
    pub(super) fn pop(&mut self) -> Option<(Id, Wait)> {
        self.queue.pop_front()
    }

    /// Returns whether the connections may be scanned again.
    pub(super) fn may_scan(&self, now: Instant) -> bool {
        self.last_scan
            .is_none_or(|last_scan| now.saturating_duration_since(last_scan) >= RESCAN_INTERVAL)
    }

    /// Replaces the candidates with `found`: the idle connections or, if there are none, those with
    /// slow heads. Sorts by rank, then by age. Returns whether there are any.
    pub(super) fn fill(&mut self, mut found: Vec<Waiting>, now: Instant) -> bool {
        self.last_scan = Some(now);
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
