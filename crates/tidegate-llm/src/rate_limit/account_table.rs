//! Accounts by credential id, evicted when memory runs short.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::account::Account;
use crate::memory::{EvictionCost, SecondChanceMap};

/// Maximum number of accounts examined per reclaim pass, and of models per account.
const MAX_ACCOUNTS_PER_PASS: usize = 16;
const MAX_MODELS_PER_ACCOUNT: usize = 4;

pub(super) struct AccountTable<T> {
    /// Tells whether the provider has accepted the key of an account.
    is_proven: fn(&T) -> bool,
    state: Mutex<State<T>>,
}

struct State<T> {
    accounts: SecondChanceMap<Arc<str>, Arc<T>>,
    /// Ids of accounts that are never evicted.
    pinned: Vec<Arc<str>>,
}

impl<T> AccountTable<T> {
    pub(super) fn new(is_proven: fn(&T) -> bool) -> Self {
        let state = State { accounts: SecondChanceMap::default(), pinned: Vec::new() };
        Self { is_proven, state: Mutex::new(state) }
    }

    pub(super) fn get(&self, id: &str) -> Option<Arc<T>> {
        self.lock().accounts.get(id).cloned()
    }

    pub(super) fn insert(&self, id: &str, account: Arc<T>) {
        self.lock().accounts.insert(id.into(), account);
    }

    pub(super) fn pin<'i>(&self, ids: impl IntoIterator<Item = &'i str>) {
        self.lock().pinned = ids.into_iter().map(Into::into).collect();
    }

    pub(super) fn len(&self) -> usize {
        self.lock().accounts.len()
    }

    pub(super) fn for_each(&self, mut visit: impl FnMut(&str, &T)) {
        self.lock().accounts.iter().for_each(|(id, account)| visit(id, account));
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// Accounts are retired under the lock, so that an account of the same id is not opened meanwhile.
impl<T: AsRef<Account>> AccountTable<T> {
    pub(super) fn remove_unused(&self, id: &str, account: &Arc<T>) {
        let mut state = self.lock();
        let is_pinned = state.is_pinned(id);
        let is_same = state.accounts.get(id).is_some_and(|known| Arc::ptr_eq(known, account));
        // One reference is the table's, the other the caller's.
        if is_same && !is_pinned && Arc::strong_count(account) == 2 {
            state.accounts.remove(id);
            account.as_ref().as_ref().retire();
        }
    }

    /// Evicts unused models and accounts that cost at most `max_cost`. Accounts with a key that was
    /// never accepted go first.
    pub(super) fn reclaim(&self, max_cost: EvictionCost) {
        let mut state = self.lock();
        let State { accounts, pinned } = &mut *state;
        let may_evict = |id: &Arc<str>, entry: &Arc<T>, is_used: bool| {
            let account = entry.as_ref().as_ref();
            account.evict_models(MAX_MODELS_PER_ACCOUNT, max_cost);
            let is_idle = !is_used && Arc::strong_count(entry) == 1;
            let is_next = max_cost > EvictionCost::None || !(self.is_proven)(entry);
            !pinned.contains(id) && is_idle && is_next && account.eviction_cost() <= max_cost
        };
        for (_, entry) in accounts.evict(MAX_ACCOUNTS_PER_PASS, may_evict) {
            entry.as_ref().as_ref().retire();
        }
    }
}

impl<T> State<T> {
    fn is_pinned(&self, id: &str) -> bool {
        self.pinned.iter().any(|pinned| **pinned == *id)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_providers::Credential;

    use super::*;
    use crate::memory::MemoryBudget;
    use crate::rate_limit::AccountGroup;

    struct Entry {
        account: Account,
        is_proven: bool,
    }

    impl AsRef<Account> for Entry {
        fn as_ref(&self) -> &Account {
            &self.account
        }
    }

    fn group(memory: &MemoryBudget, entries: &[(&str, bool)]) -> AccountGroup<Entry> {
        let group = AccountGroup::bounded(memory, |entry: &Entry| entry.is_proven);
        for (id, is_proven) in entries {
            let builder = Account::builder("openai", &Credential::new(id)).group(&group);
            let account = builder.memory(memory).build().unwrap();
            group.insert(id, Arc::new(Entry { account, is_proven: *is_proven }));
        }
        group
    }

    fn ids(group: &AccountGroup<Entry>) -> Vec<String> {
        let mut ids = Vec::new();
        group.for_each(|id, _| ids.push(id.to_owned()));
        ids.sort();
        ids
    }

    #[tokio::test(start_paused = true)]
    async fn unproven_accounts_are_evicted_first_and_pinned_ones_never() {
        let memory = MemoryBudget::unlimited();
        let group = group(&memory, &[("own", false), ("proven", true), ("unproven", false)]);
        group.pin(["own"]);
        let has_room = || {
            memory.resize(memory.used());
            memory.has_room(1)
        };
        assert!(has_room());
        assert_eq!(ids(&group), ["own", "proven"]);
        assert!(has_room());
        assert_eq!(ids(&group), ["own"]);
        assert!(!has_room());
        assert_eq!(ids(&group), ["own"]);
    }

    #[tokio::test(start_paused = true)]
    async fn account_is_removed_only_if_it_is_unused_and_not_pinned() {
        let group = group(&MemoryBudget::unlimited(), &[("key", false)]);
        let account = group.get("key").unwrap();
        group.pin(["key"]);
        group.remove_unused("key", &account);
        assert_eq!(group.count(), 1, "it is pinned");
        group.pin([]);
        let in_use = account.clone();
        group.remove_unused("key", &account);
        assert_eq!(group.count(), 1, "it is in use");
        drop(in_use);
        group.remove_unused("key", &account);
        assert_eq!(group.count(), 0);
    }
}
