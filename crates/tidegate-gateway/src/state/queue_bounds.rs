//! How many calls may wait for a provider: of one account, of one peer, of one tenant.
//!
//! Calls are counted when they begin to wait, so that a call that need not wait costs nothing here.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use tidegate::pacer::Caller;

/// The most calls that wait on one provider key.
const MAX_OF_ACCOUNT: usize = 10_000;
/// The most calls of one peer that wait: more than its connections to a listener, and less than an
/// account has room for.
const MAX_OF_PEER: usize = 4_000;
/// The most calls that wait of a tenant that is named. Those that name none are bounded with their
/// peer: all agents of one machine may be among them.
const MAX_OF_TENANT: usize = 1_000;

/// The bound that a call would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueFull {
    Account,
    Peer,
    Tenant,
}

impl QueueFull {
    /// The most calls that may wait.
    pub(crate) const fn most(self) -> usize {
        match self {
            Self::Account => MAX_OF_ACCOUNT,
            Self::Peer => MAX_OF_PEER,
            Self::Tenant => MAX_OF_TENANT,
        }
    }

    /// Whose calls are counted.
    pub(crate) const fn of(self) -> &'static str {
        match self {
            Self::Account => "with this key",
            Self::Peer => "of this address",
            Self::Tenant => "of this tenant",
        }
    }
}

/// What a call that waits counts for.
#[derive(Clone, Debug)]
pub(crate) struct QueueMember {
    /// What tells its account from others while the call lives.
    pub(crate) account: usize,
    pub(crate) caller: Caller,
    /// The tenant that it names.
    pub(crate) tenant: Option<Arc<str>>,
}

impl QueueMember {
    fn counted(&self) -> impl Iterator<Item = (Counted, QueueFull)> {
        let tenant = self.tenant.clone().map(|tenant| Counted::Tenant(self.caller, tenant));
        let peer = (Counted::Peer(self.caller.peer()), QueueFull::Peer);
        let account = (Counted::Account(self.account), QueueFull::Account);
        tenant.map(|tenant| (tenant, QueueFull::Tenant)).into_iter().chain([peer, account])
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Counted {
    Account(usize),
    Peer(u64),
    Tenant(Caller, Arc<str>),
}

/// How many calls of whom wait.
#[derive(Debug, Default)]
pub(crate) struct QueueCounts(HashMap<Counted, usize>);

impl QueueCounts {
    /// Counts a call that begins to wait.
    ///
    /// # Errors
    /// If it would be one too many.
    pub(crate) fn enter(&mut self, member: &QueueMember) -> Result<(), QueueFull> {
        let count = |counted: &Counted| self.0.get(counted).copied().unwrap_or_default();
        let mut full = member.counted().filter(|(counted, full)| count(counted) >= full.most());
        if let Some((_, full)) = full.next() {
            return Err(full);
        }
        for (counted, _) in member.counted() {
            *self.0.entry(counted).or_default() += 1;
        }
        Ok(())
    }

    /// A call that was counted waits no more.
    pub(crate) fn leave(&mut self, member: &QueueMember) {
        for (counted, _) in member.counted() {
            if let Entry::Occupied(mut entry) = self.0.entry(counted) {
                *entry.get_mut() -= 1;
                if *entry.get() == 0 {
                    entry.remove();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(account: usize, peer: u64, tenant: Option<&str>) -> QueueMember {
        let caller = Caller::new(peer);
        QueueMember { account, caller, tenant: tenant.map(Into::into) }
    }

    fn fill(counts: &mut QueueCounts, member: &QueueMember) -> usize {
        (0..).take_while(|_| counts.enter(member).is_ok()).count()
    }

    #[test]
    fn each_bound_is_told_and_leaves_room_for_others() {
        let mut counts = QueueCounts::default();
        let named = member(1, 1, Some("a"));
        assert_eq!(fill(&mut counts, &named), MAX_OF_TENANT);
        assert_eq!(counts.enter(&named), Err(QueueFull::Tenant));
        let unnamed = member(1, 1, None);
        assert_eq!(fill(&mut counts, &unnamed), MAX_OF_PEER - MAX_OF_TENANT);
        assert_eq!(counts.enter(&member(2, 1, Some("b"))), Err(QueueFull::Peer));
        assert_eq!(counts.enter(&member(1, 2, Some("a"))), Ok(()), "another caller's tenant");
        assert_eq!(fill(&mut counts, &member(1, 2, None)), MAX_OF_PEER - 1);
        assert_eq!(fill(&mut counts, &member(1, 3, None)), MAX_OF_ACCOUNT - 2 * MAX_OF_PEER);
        assert_eq!(counts.enter(&member(1, 4, None)), Err(QueueFull::Account));
        assert_eq!(counts.enter(&member(2, 4, None)), Ok(()));
    }

    #[test]
    fn nothing_is_left_of_calls_that_are_gone() {
        let mut counts = QueueCounts::default();
        for number in 0..100 {
            let member = member(number, number as u64, Some("a"));
            counts.enter(&member).unwrap();
            counts.leave(&member);
        }
        assert!(counts.0.is_empty());
    }
}
