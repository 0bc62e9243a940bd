//! Accounts of one provider that share limits, and the table that bounds their number.

use std::fmt;
use std::sync::Arc;

use tidegate::{Engine, LimitError};
use tidegate_providers::Provider;

use super::account::Account;
use super::account_table::AccountTable;
use super::all_keys::AllKeys;
use super::limit_view::LimitView;
use super::limits::AccountLimits;
use super::slot_groups::SlotGroups;
use super::wait_log::WaitLog;
use crate::memory::MemoryBudget;

/// Accounts of several keys at one provider.
///
/// Concurrency limits of models and endpoints apply to all accounts of a group together, and waits
/// are logged at most once a minute per scope. Accounts of callers' keys may also share a
/// [ceiling](Self::with_ceiling). Cheap to clone; clones are the same group.
///
/// ```
/// use tidegate_llm::Credential;
/// use tidegate_llm::rate_limit::{Account, AccountGroup};
/// let group = AccountGroup::new();
/// let one = Account::builder("openai", &Credential::new("key-1")).group(&group).build()?;
/// let other = Account::builder("openai", &Credential::new("key-2")).group(&group).build()?;
/// # let _ = (one, other);
/// # Ok::<(), tidegate::LimitError>(())
/// ```
///
/// A server that opens an account for every key its callers send keeps them in a
/// [bounded](Self::bounded) group, each inside a value `T` of its own.
pub struct AccountGroup<T = ()> {
    pub(super) slots: SlotGroups,
    pub(super) waits: WaitLog,
    /// Limits over the keys of all callers together.
    pub(super) all_keys: Option<AllKeys>,
    accounts: Arc<AccountTable<T>>,
}

impl AccountGroup {
    /// Creates a group that shares limits but keeps no accounts.
    #[must_use]
    pub fn new() -> Self {
        Self::with_table(AccountTable::new(|()| true))
    }
}

impl<T: AsRef<Account> + Send + Sync + 'static> AccountGroup<T> {
    /// Creates a group that keeps accounts and evicts idle ones when `memory` runs short.
    ///
    /// Accounts for which `is_proven` returns false, such as those of keys that the provider has
    /// never accepted, are evicted first. An account with open charges, holds or calls is never
    /// evicted.
    #[must_use]
    pub fn bounded(memory: &MemoryBudget, is_proven: fn(&T) -> bool) -> Self {
        let group = Self::with_table(AccountTable::new(is_proven));
        memory.register(&group.accounts, AccountTable::reclaim);
        group
    }

    /// Returns the account with this id and marks it as recently used.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<Arc<T>> {
        self.accounts.get(id)
    }

    /// Adds an account. It replaces one with the same id.
    pub fn insert(&self, id: &str, account: Arc<T>) {
        self.accounts.insert(id, account);
    }

    /// Exempts the accounts with these ids from eviction, and no others.
    pub fn pin<'i>(&self, ids: impl IntoIterator<Item = &'i str>) {
        self.accounts.pin(ids);
    }

    /// Removes `account` and retires its limits, unless it is pinned, or `account` is not the last
    /// reference outside the group.
    pub fn remove_unused(&self, id: &str, account: &Arc<T>) {
        self.accounts.remove_unused(id, account);
    }

    /// Calls `visit` with every account and its id. The group is locked meanwhile.
    pub fn for_each(&self, visit: impl FnMut(&str, &T)) {
        self.accounts.for_each(visit);
    }

    /// Number of accounts that the group keeps.
    #[must_use]
    pub fn count(&self) -> usize {
        self.accounts.len()
    }
}

impl<T> AccountGroup<T> {
    fn with_table(accounts: AccountTable<T>) -> Self {
        Self {
            slots: SlotGroups::default(),
            waits: WaitLog::each_minute(),
            all_keys: None,
            accounts: Arc::new(accounts),
        }
    }

    /// Returns this group with a ceiling over all accounts that are built with the result.
    ///
    /// The ceiling bounds the keys of all callers together, as [`AccountLimits::all_keys`] sets it;
    /// without it a caller with many keys has as many limits. All accounts under it must be on
    /// `engine`.
    ///
    /// # Errors
    /// If a limit is invalid.
    pub fn with_ceiling(
        &self,
        provider: &Provider,
        engine: &Engine,
        limits: &AccountLimits,
    ) -> Result<Self, LimitError> {
        let all_keys = Some(AllKeys::new(provider, engine, limits)?);
        Ok(Self { all_keys, ..self.clone() })
    }

    /// Changes the limits of the ceiling, if there is one. Charges are kept, and waiting calls
    /// follow the new limits at once.
    ///
    /// # Errors
    /// If a limit is invalid. Some limits may have changed then.
    pub fn configure(&self, limits: &AccountLimits) -> Result<(), LimitError> {
        self.all_keys.as_ref().map_or(Ok(()), |all_keys| all_keys.configure(limits))
    }

    /// Returns the limits of the ceiling; empty without one.
    pub async fn inspect(&self) -> Vec<LimitView> {
        match &self.all_keys {
            Some(all_keys) => all_keys.inspect().await,
            None => Vec::new(),
        }
    }
}

impl Default for AccountGroup {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Clone for AccountGroup<T> {
    fn clone(&self) -> Self {
        let Self { slots, waits, all_keys, accounts } = self;
        Self {
            slots: slots.clone(),
            waits: waits.clone(),
            all_keys: all_keys.clone(),
            accounts: accounts.clone(),
        }
    }
}

impl<T> fmt::Debug for AccountGroup<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountGroup")
            .field("all_keys", &self.all_keys)
            .field("accounts", &self.accounts.len())
            .finish_non_exhaustive()
    }
}
