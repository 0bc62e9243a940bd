//! Providers as operators see them: limits and their origin, what is left, who waits for what.

use std::cmp::Reverse;
use std::time::Duration;

use tidegate_llm::rate_limit::{LimitView, QueueView};

use crate::state::provider_state::ProviderState;
use crate::state::queued_calls::TenantQueues;
use crate::state::status::{self, Status};

/// How long a shared store has to tell what its buckets hold, all together.
const INSPECT_TIMEOUT: Duration = Duration::from_millis(500);
/// So many accounts are looked at.
const MAX_ACCOUNTS: usize = 64;
/// So many tenants are named.
const MAX_TENANTS: usize = 10;

/// Whose key an account is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum AccountOwner {
    /// The configured key, or calls without one.
    Own,
    /// A key that a caller brought.
    Caller,
    /// Keys of callers beyond the number that is told apart.
    Shared,
}

impl AccountOwner {
    /// The name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Caller => "caller",
            Self::Shared => "shared",
        }
    }
}

/// One account.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AccountView {
    /// Whose key it is of.
    pub owner: AccountOwner,
    /// The hash of the key.
    pub id: String,
    /// Its queues with their limits.
    pub queues: Vec<QueueView>,
}

/// One provider.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProviderView {
    /// How it stands.
    pub status: Status,
    /// Who waits: the ten longest queues of tenants.
    pub tenants: TenantQueues,
    /// What all keys of callers may use together; empty if there is no ceiling.
    pub all_keys: Vec<LimitView>,
    /// Its accounts: our own first, then those with most calls, at most 64.
    pub accounts: Vec<AccountView>,
}

impl ProviderView {
    /// All queues of all accounts that are shown.
    pub fn queues(&self) -> impl Iterator<Item = &QueueView> {
        self.accounts.iter().flat_map(|account| &account.queues)
    }
}

/// How a provider is seen now.
pub(crate) async fn inspect(provider_state: &ProviderState) -> ProviderView {
    let status = status::current(provider_state);
    let tenants = provider_state.tenant_queues(MAX_TENANTS);
    let mut selected: Vec<_> = provider_state.accounts().with_owners();
    // Of accounts that cannot all be shown, the busiest are.
    selected.sort_by_cached_key(|(owner, account)| {
        let id = account.credential_id().to_owned();
        (*owner != AccountOwner::Own, Reverse(account.pending()), id)
    });
    selected.truncate(MAX_ACCOUNTS);
    let mut accounts = Vec::with_capacity(selected.len());
    for (owner, account) in selected {
        let queues = account.inspect(INSPECT_TIMEOUT).await;
        let id = account.credential_id().to_owned();
        accounts.push(AccountView { owner, id, queues });
    }
    let all_keys = provider_state.accounts().inspect_all_keys().await;
    ProviderView { status, tenants, all_keys, accounts }
}
