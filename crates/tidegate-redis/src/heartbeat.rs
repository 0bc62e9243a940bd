//! Heartbeats: nodes know how many they are, and keep each other's policies.
//!
//! With every beat a node also confirms the newest policy that it knows of each of its limits. A
//! record that a server has lost is so written again by whoever knows best, and a policy that
//! another node brought is learned by those who have not met a bucket under it.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;

use crate::connection::ConnectionState;
use crate::error::{CallError, RedisFault};
use crate::format::names::FORMAT;
use crate::format::number::{Reader, put, put_text};
use crate::job::{Code, Item, Job, MOST_JOBS};
use crate::policy_history::PolicyHistory;
use crate::store::{Inner, RedisStore};

/// How often a node says that it is there.
const BEAT: Duration = Duration::from_secs(2);
/// After how many silent microseconds a node is not counted any more.
const SILENCE_US: u64 = 10_000_000;
/// Beats that together last longer than the silence after which a node is not counted. A server
/// that has lost its keys counts from one again; until everybody has come back, what was counted
/// before is nearer to the truth, and a limit must not be divided by too few.
const REMEMBERED: usize = 6;

/// Beats for as long as the store lives, and at once when a connection is up.
pub(crate) async fn run(
    store: Weak<Inner>,
    node: u64,
    mut state: watch::Receiver<ConnectionState>,
) {
    let mut counts = Counts::default();
    loop {
        let up = matches!(*state.borrow_and_update(), ConnectionState::Up(..));
        if up {
            let Some(store) = store.upgrade().map(RedisStore::from) else { return };
            // A beat that fails is told by whoever finds the connection broken.
            let _ = store.beat(node, &mut counts).await;
        }
        tokio::select! {
            () = tokio::time::sleep(BEAT) => {}
            changed = state.changed() => if changed.is_err() { return },
        }
    }
}

/// How many nodes the last beats have counted.
#[derive(Debug, Default)]
struct Counts(VecDeque<u32>);

impl Counts {
    /// Takes a count in, and tells the largest of the last ones.
    fn add(&mut self, nodes: u32) -> u32 {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(nodes);
        self.0.iter().copied().max().unwrap_or(nodes)
    }
}

impl RedisStore {
    async fn beat(&self, node: u64, counts: &mut Counts) -> Result<(), CallError> {
        let names = self.context().names;
        let (entry, other) = (Some(names.format()), Some(names.nodes()));
        let mut item = Item { entry, other, ..Item::default() };
        put(SILENCE_US, &mut item.tail);
        item.tail.extend(node.to_le_bytes());
        let replies = self.send(vec![Job::new(Code::Beat).with(item)]).await?;
        let reply = replies.each.first().ok_or(RedisFault::InvalidReply)?;
        let mut reader = Reader(reply);
        let (nodes, format) = (reader.number()?, reader.number()?);
        if format != u64::from(FORMAT) {
            // The check at the next connection says so to everybody.
            self.connection().break_up();
            return Ok(());
        }
        self.connection().met(counts.add(u32::try_from(nodes).unwrap_or(u32::MAX)));
        for histories in self.histories().all().chunks(MOST_JOBS) {
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
                // What cannot be learned now is learned with another beat.
                let _ = self.learn_of(history.limit(), newest).await;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a flush the first node counts one, the next two: for a while they remember.
    #[test]
    fn a_flush_does_not_make_nodes_few() {
        let mut counts = Counts::default();
        assert_eq!([3, 3, 1, 2].map(|count| counts.add(count)), [3, 3, 3, 3]);
        assert_eq!([2, 2, 2, 2].map(|count| counts.add(count)), [3, 3, 3, 2]);
        assert_eq!(counts.add(5), 5);
    }
}
