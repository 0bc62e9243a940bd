//! Limits on the number of queued calls per account, peer and tenant.
//!
//! Calls are counted when they start to wait, so a call that does not wait costs nothing here.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use tidegate::pacer::CallerId;

/// Maximum number of waiting calls per provider key.
const MAX_PER_ACCOUNT: usize = 10_000;
/// Maximum number of waiting calls per peer: more than its connections to a listener, and less than
/// the limit of an account.
const MAX_PER_PEER: usize = 4_000;
/// Maximum number of waiting calls per named tenant. Calls without a tenant are limited by their
/// peer only: all agents of one machine may be among them.
const MAX_PER_TENANT: usize = 1_000;

/// The limit that a call would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueFull {
    Account,
    Peer,
    Tenant,
}

impl QueueFull {
    /// Returns the maximum number of waiting calls.
    pub(crate) const fn max(self) -> usize {
        match self {
            Self::Account => MAX_PER_ACCOUNT,
            Self::Peer => MAX_PER_PEER,
            Self::Tenant => MAX_PER_TENANT,
        }
    }

    /// Returns a phrase that says whose calls are limited.
    pub(crate) const fn subject(self) -> &'static str {
        match self {
            Self::Account => "with this key",
            Self::Peer => "from this address",
            Self::Tenant => "of this tenant",
        }
    }
}

/// The account, caller and tenant that a waiting call is counted for.
#[derive(Clone, Debug)]
pub(crate) struct QueueMember {
    /// Identifies the account while the call lives.
    pub(crate) account: usize,
    pub(crate) caller: CallerId,
    /// The tenant named by the caller.
    pub(crate) tenant: Option<Arc<str>>,
}

impl QueueMember {
    fn count_keys(&self) -> impl Iterator<Item = (CountKey, QueueFull)> {
        let tenant = self.tenant.clone().map(|tenant| CountKey::Tenant(self.caller, tenant));
        let peer = (CountKey::Peer(self.caller.peer()), QueueFull::Peer);
        let account = (CountKey::Account(self.account), QueueFull::Account);
        tenant.map(|tenant| (tenant, QueueFull::Tenant)).into_iter().chain([peer, account])
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum CountKey {
    Account(usize),
    Peer(u64),
    Tenant(CallerId, Arc<str>),
}

/// Number of waiting calls by account, peer and tenant.
#[derive(Debug, Default)]
pub(crate) struct QueueCounts(HashMap<CountKey, usize>);

impl QueueCounts {
    /// Counts a call that starts to wait.
    ///
    /// # Errors
    /// If a limit is reached.
    pub(crate) fn try_add(&mut self, member: &QueueMember) -> Result<(), QueueFull> {
        let count = |key: &CountKey| self.0.get(key).copied().unwrap_or_default();
        let mut full = member.count_keys().filter(|(key, full)| count(key) >= full.max());
        if let Some((_, full)) = full.next() {
            return Err(full);
        }
        for (key, _) in member.count_keys() {
            *self.0.entry(key).or_default() += 1;
        }
        Ok(())
    }

    /// Uncounts a call that stopped waiting.
    pub(crate) fn remove(&mut self, member: &QueueMember) {
        for (key, _) in member.count_keys() {
            if let Entry::Occupied(mut entry) = self.0.entry(key) {
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
        let caller = CallerId::new(peer);
        QueueMember { account, caller, tenant: tenant.map(Into::into) }
    }

    fn fill(counts: &mut QueueCounts, member: &QueueMember) -> usize {
        (0..).take_while(|_| counts.try_add(member).is_ok()).count()
    }

    #[test]
    fn each_limit_is_reported_and_does_not_affect_others() {
        let mut counts = QueueCounts::default();
        let named = member(1, 1, Some("a"));
        assert_eq!(fill(&mut counts, &named), MAX_PER_TENANT);
        assert_eq!(counts.try_add(&named), Err(QueueFull::Tenant));
        let unnamed = member(1, 1, None);
        assert_eq!(fill(&mut counts, &unnamed), MAX_PER_PEER - MAX_PER_TENANT);
        assert_eq!(counts.try_add(&member(2, 1, Some("b"))), Err(QueueFull::Peer));
        assert_eq!(counts.try_add(&member(1, 2, Some("a"))), Ok(()), "another caller's tenant");
        assert_eq!(fill(&mut counts, &member(1, 2, None)), MAX_PER_PEER - 1);
        assert_eq!(fill(&mut counts, &member(1, 3, None)), MAX_PER_ACCOUNT - 2 * MAX_PER_PEER);
        assert_eq!(counts.try_add(&member(1, 4, None)), Err(QueueFull::Account));
        assert_eq!(counts.try_add(&member(2, 4, None)), Ok(()));
    }

    #[test]
    fn removed_calls_leave_no_counts() {
        let mut counts = QueueCounts::default();
        for number in 0..100 {
            let member = member(number, number as u64, Some("a"));
            counts.try_add(&member).unwrap();
            counts.remove(&member);
        }
        assert!(counts.0.is_empty());
    }
}
