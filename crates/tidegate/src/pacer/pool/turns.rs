//! Who gets the next slot of a pool: peers take turns, within a peer its members do, and within a
//! member its pacers.
//!
//! A pacer waits in the turns of the peers whose waiters it has, so that many pacers of one peer
//! take no turns from other peers. A slot from the turn of a peer goes to the next waiter of the
//! pacer, which may belong to another peer: within the pacer's own order, the peer does not lose by
//! that.

use std::collections::{HashMap, VecDeque};

use smallvec::SmallVec;

use crate::pacer::scheduler::slab::Id;

/// Maximum number of peers in whose turns a pacer waits: the next ones in it.
const MAX_PEERS: usize = 16;

/// A pacer, and the member that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitingPacer {
    pub(super) member: Id,
    pub(super) pacer: Id,
}

/// The peers in whose turns a pacer waits.
pub(super) type PeerList = SmallVec<[u64; 1]>;

/// The turns of all pacers that wait for a slot.
#[derive(Default)]
pub(super) struct Turns {
    peers: VecDeque<u64>,
    by_peer: HashMap<u64, PeerTurns>,
}

#[derive(Default)]
struct PeerTurns {
    members: VecDeque<Id>,
    /// The pacers of each member.
    pacers: HashMap<Id, VecDeque<Id>>,
}

impl Turns {
    pub(super) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// The pacer whose turn it is.
    pub(super) fn first(&self) -> Option<Id> {
        let turns = self.by_peer.get(self.peers.front()?)?;
        turns.pacers.get(turns.members.front()?)?.front().copied()
    }

    /// Makes a pacer wait in the turns of exactly these peers. It keeps its position where it waits
    /// already.
    pub(super) fn wait(
        &mut self,
        waiting: WaitingPacer,
        waiting_peers: &mut PeerList,
        peers: impl Iterator<Item = u64>,
    ) {
        let mut wanted = PeerList::new();
        for peer in peers.take(MAX_PEERS) {
            if !wanted.contains(&peer) {
                wanted.push(peer);
            }
        }
        for gone in waiting_peers.iter().filter(|peer| !wanted.contains(peer)) {
            self.remove(waiting, *gone);
        }
        for new in wanted.iter().filter(|peer| !waiting_peers.contains(peer)) {
            self.add(waiting, *new);
        }
        *waiting_peers = wanted;
    }

    /// Removes a pacer from all turns.
    pub(super) fn leave(&mut self, waiting: WaitingPacer, waiting_peers: &mut PeerList) {
        for peer in waiting_peers.drain(..) {
            self.remove(waiting, peer);
        }
    }

    /// Ends the turn of the first peer, and returns the peer and its pacer that goes.
    pub(super) fn pop(&mut self) -> Option<(u64, Id)> {
        let peer = self.peers.pop_front()?;
        let turns = self.by_peer.get_mut(&peer)?;
        let pacer = turns.pop();
        if turns.members.is_empty() {
            self.by_peer.remove(&peer);
        } else {
            self.peers.push_back(peer);
        }
        Some((peer, pacer?))
    }

    fn add(&mut self, WaitingPacer { member, pacer }: WaitingPacer, peer: u64) {
        let turns = self.by_peer.entry(peer).or_default();
        if turns.members.is_empty() {
            self.peers.push_back(peer);
        }
        let pacers = turns.pacers.entry(member).or_default();
        if pacers.is_empty() {
            turns.members.push_back(member);
        }
        pacers.push_back(pacer);
    }

    fn remove(&mut self, WaitingPacer { member, pacer }: WaitingPacer, peer: u64) {
        let Some(turns) = self.by_peer.get_mut(&peer) else { return };
        let Some(pacers) = turns.pacers.get_mut(&member) else { return };
        pacers.retain(|waiting| *waiting != pacer);
        if pacers.is_empty() {
            turns.pacers.remove(&member);
            turns.members.retain(|waiting| *waiting != member);
        }
        if turns.members.is_empty() {
            self.by_peer.remove(&peer);
            self.peers.retain(|waiting| *waiting != peer);
        }
    }
}

impl PeerTurns {
    fn pop(&mut self) -> Option<Id> {
        let member = self.members.pop_front()?;
        let pacers = self.pacers.get_mut(&member)?;
        let pacer = pacers.pop_front();
        if pacers.is_empty() {
            self.pacers.remove(&member);
        } else {
            self.members.push_back(member);
        }
        pacer
    }
}
