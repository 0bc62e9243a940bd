//! Heartbeats: they count the nodes and preserve the policy histories.
//!
//! With every heartbeat a node also confirms the newest policy it knows of each of its limits. So a
//! history that a server has lost is written again, and a node learns a policy from another node
//! even if it has not met a bucket under it.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;

use crate::connection::ConnectionState;
use crate::error::{CallError, RedisStoreError};
use crate::format::names::FORMAT;
use crate::format::number::{Reader, put, put_text};
use crate::job::{Code, Item, Job, MAX_JOBS};
use crate::policy_history::PolicyHistory;
use crate::store::{Inner, RedisStore};

/// Interval of heartbeats.
const INTERVAL: Duration = Duration::from_secs(2);
/// Microseconds without a heartbeat after which a node is no longer counted.
const SILENCE_US: u64 = 10_000_000;
/// Number of recent counts considered, together longer than the silence after which a node is no
/// longer counted. After a server has lost its keys, it counts from one again; until all nodes are
/// back, the previous counts are closer to the truth, and a limit must not be divided by too few
/// nodes.
const RECENT_COUNTS: usize = 6;

/// Sends heartbeats while the store lives, and immediately after connecting.
pub(crate) async fn run(
    store: Weak<Inner>,
    node: u64,
    mut state: watch::Receiver<ConnectionState>,
) {
    let mut counts = NodeCounts::default();
    loop {
        let up = matches!(*state.borrow_and_update(), ConnectionState::Up(..));
        if up {
            let Some(store) = store.upgrade().map(RedisStore::from) else { return };
            // A failure is reported by the code that finds the connection broken.
            let _ = store.send_heartbeat(node, &mut counts).await;
        }
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            changed = state.changed() => if changed.is_err() { return },
        }
    }
}

/// Node counts of the last heartbeats.
#[derive(Debug, Default)]
struct NodeCounts(VecDeque<u32>);

impl NodeCounts {
    /// Adds a count and returns the maximum of the recent ones.
    fn add(&mut self, nodes: u32) -> u32 {
        if self.0.len() == RECENT_COUNTS {
            self.0.pop_front();
        }
        self.0.push_back(nodes);
        self.0.iter().copied().max().unwrap_or(nodes)
    }
}

impl RedisStore {
    async fn send_heartbeat(&self, node: u64, counts: &mut NodeCounts) -> Result<(), CallError> {
        let names = self.context().names;
        let (entry, other) = (Some(names.format()), Some(names.nodes()));
        let mut item = Item { entry, other, ..Item::default() };
        put(SILENCE_US, &mut item.tail);
        item.tail.extend(node.to_le_bytes());
        let replies = self.send(vec![Job::new(Code::Heartbeat).with(item)]).await?;
        let reply = replies.each.first().ok_or(RedisStoreError::InvalidReply)?;
        let mut reader = Reader(reply);
        let (nodes, format) = (reader.number()?, reader.number()?);
        if format != u64::from(FORMAT) {
            // The format check of the next connection reports it.
            self.connection().drop_connection();
            return Ok(());
        }
        self.connection().set_nodes(counts.add(u32::try_from(nodes).unwrap_or(u32::MAX)));
        for histories in self.histories().all().chunks(MAX_JOBS) {
            self.confirm(histories).await?;
        }
        Ok(())
    }

    async fn confirm(&self, histories: &[Arc<PolicyHistory>]) -> Result<(), CallError> {
        let job = |history: &Arc<PolicyHistory>| {
            let policies = self.context().names.policies(history.limit().identity());
            let mut item = Item { other: Some(policies), ..Item::default() };
            put(history.generation(), &mut item.tail);
            put_text(&history.newest(), &mut item.tail);
            Job::new(Code::Confirm).with(item)
        };
        let replies = self.send(histories.iter().map(job).collect()).await?;
        for (history, reply) in histories.iter().zip(&replies.each) {
            let newest = Reader(reply).number()?;
            if newest > history.generation() {
                // If learning fails now, a later heartbeat retries it.
                let _ = self.learn_policy(history.limit(), newest).await;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a flush the first node counts one, the next two; the maximum bridges that.
    #[test]
    fn node_count_survives_a_flush() {
        let mut counts = NodeCounts::default();
        assert_eq!([3, 3, 1, 2].map(|count| counts.add(count)), [3, 3, 3, 3]);
        assert_eq!([2, 2, 2, 2].map(|count| counts.add(count)), [3, 3, 3, 2]);
        assert_eq!(counts.add(5), 5);
    }
}
