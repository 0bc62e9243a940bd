//! The operator's view of a provider: limits and their sources, what is left, and who waits.

use std::cmp::Reverse;
use std::time::Duration;

use tidegate_llm::rate_limit::{LimitView, QueueView};

use crate::state::provider_state::ProviderState;
use crate::state::provider_status::{self, ProviderStatus};
use crate::state::queued_calls::TenantQueues;

/// Total time that a shared store has to report its buckets, per account.
const INSPECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum number of accounts in a view.
const MAX_ACCOUNTS: usize = 64;
/// Maximum number of tenants in a view.
const MAX_TENANTS: usize = 10;

/// Whose key an account belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum AccountOwner {
    /// The configured key, or calls without a key.
    Configured,
    /// A caller's key.
    Caller,
    /// Callers' keys that share the overflow account.
    Shared,
}

impl AccountOwner {
    /// Returns the name used in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Configured => "own",
            Self::Caller => "caller",
            Self::Shared => "shared",
        }
    }
}

/// View of an account.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AccountView {
    /// Whose key it belongs to.
    pub owner: AccountOwner,
    /// The hash of the key.
    pub id: String,
    /// The queues of the account and their limits.
    pub queues: Vec<QueueView>,
}

/// View of a provider.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProviderView {
    /// Queue, concurrency and breaker.
    pub status: ProviderStatus,
    /// The ten longest tenant queues.
    pub tenants: TenantQueues,
    /// Limits over all callers' keys together; empty if there are none.
    pub all_keys: Vec<LimitView>,
    /// Accounts, at most 64: the configured key first, then those with the most calls.
    pub accounts: Vec<AccountView>,
}

impl ProviderView {
    /// Returns the queues of all accounts in this view.
    pub fn queues(&self) -> impl Iterator<Item = &QueueView> {
        self.accounts.iter().flat_map(|account| &account.queues)
    }
}

/// Returns the current view of a provider.
pub(crate) async fn inspect(provider_state: &ProviderState) -> ProviderView {
    let status = provider_status::current(provider_state);
    let tenants = provider_state.tenant_queues(MAX_TENANTS);
    let mut selected: Vec<_> = provider_state.accounts().with_owners();
    // Keep the busiest accounts if not all fit.
    selected.sort_by_cached_key(|(owner, account)| {
        let id = account.credential_id().to_owned();
        (*owner != AccountOwner::Configured, Reverse(account.pending_calls()), id)
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
