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
