//! Accounts of a provider: one for the configured key, or one for each key that callers send.
//!
//! Callers control how many keys there are, so a memory budget shared by all providers bounds what
//! is kept. To make room, accounts whose key was never accepted are evicted first, then the least
//! recently used ones. An account with outstanding charges, a hold or calls in flight is never
//! evicted, because its limits would be lost. While there is no room, further new keys of a
//! provider share one overflow account.
//!
//! Some servers do not check keys. There a key does not identify a caller, and all callers share
//! one account.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use http::StatusCode;
use tidegate::pacer::SlotPool;
use tidegate::{Engine, LimitError};
use tidegate_llm::memory::MemoryBudget;
use tidegate_llm::rate_limit::{
    Account, AccountGroup, AccountLimits, LimitView, account_footprint, local_engine,
};
use tidegate_llm::telemetry::Observer;
use tidegate_providers::Credential;

use crate::state::provider_view::AccountOwner;
use crate::upstream::settings::Upstream;
use crate::upstream::stack::Stack;

/// Id of the overflow account. No key has this hash.
const OVERFLOW: &str = "\u{0}overflow";

/// An account with the gateway's state for it.
pub(crate) struct AccountEntry {
    pub(crate) account: Account,
    /// The stack, and the generation of the configuration that it was built for.
    stack: ArcSwapOption<(u64, Stack)>,
    /// Whether the provider rejected the key and never accepted it.
    is_rejected: AtomicBool,
    /// Whether the provider ever accepted the key.
    was_accepted: AtomicBool,
}

impl AccountEntry {
    /// Returns the stack for a configuration, building it if the configuration has changed.
    pub(crate) fn stack(
        &self,
        generation: u64,
        make: impl FnOnce(&Account) -> Stack,
    ) -> Arc<(u64, Stack)> {
        if let Some(stack) = self.stack.load_full().filter(|stack| stack.0 == generation) {
            return stack;
        }
        let stack = Arc::new((generation, make(&self.account)));
        self.stack.store(Some(stack.clone()));
        stack
    }

    /// Records from a response status whether the provider accepts the key. A key that was accepted
    /// once is not forgotten when it is rejected later, because its learned limits would be lost.
    pub(crate) fn credential_checked(&self, status: StatusCode) {
        if status == StatusCode::UNAUTHORIZED {
            let was_accepted = self.was_accepted.load(Ordering::Relaxed);
            self.is_rejected.store(!was_accepted, Ordering::Relaxed);
        } else if !status.is_server_error() && !self.was_accepted.load(Ordering::Relaxed) {
            self.was_accepted.store(true, Ordering::Relaxed);
            self.is_rejected.store(false, Ordering::Relaxed);
        }
    }
}

impl AsRef<Account> for AccountEntry {
    fn as_ref(&self) -> &Account {
        &self.account
    }
}

/// The configuration of the accounts of a provider.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AccountConfig {
    limits: AccountLimits,
    ramp: Option<(u64, Duration)>,
    credential: Option<Credential>,
}

impl AccountConfig {
    pub(crate) fn from_upstream(upstream: &Upstream) -> Self {
        Self {
            limits: upstream.limits.clone(),
            ramp: upstream.ramp,
            credential: upstream.credential.clone(),
        }
    }

    /// The configured key, or none.
    fn own_credential(&self) -> Credential {
        self.credential.clone().unwrap_or_else(Credential::none)
    }

    /// Whether this is the account of the configured key or the keyless account.
    fn is_own(&self, id: &str) -> bool {
        self.credential.as_ref().map_or_else(|| Credential::none().id() == id, |own| own.id() == id)
    }
}

/// Parameters of new accounts. They never change.
#[derive(Clone, Debug)]
pub(crate) struct AccountParams {
    pub(crate) upstream: Upstream,
    pub(crate) engines: Engines,
    pub(crate) observer: Arc<dyn Observer>,
    /// Limits calls in flight over all accounts.
    pub(crate) pool: SlotPool,
    /// Memory budget of accounts.
    pub(crate) memory: MemoryBudget,
}

/// The engines whose stores keep the limits of accounts.
#[derive(Clone, Debug)]
pub(crate) struct Engines {
    /// For configured keys.
    own: Engine,
    /// For callers' keys, in process. Callers control how many there are, so they must not fill a
    /// shared store, which keeps a record for every limit, or a snapshot.
    callers: Engine,
}

impl Engines {
    pub(crate) fn new(own: Engine) -> Self {
        Self { own, callers: local_engine() }
    }

    pub(crate) const fn own(&self) -> &Engine {
        &self.own
    }
}

/// The accounts of a provider.
pub(crate) struct Accounts {
    params: AccountParams,
    group: AccountGroup<AccountEntry>,
    state: Mutex<State>,
}

struct State {
    config: AccountConfig,
    /// Group of the callers' keys, with the limits over all of them; `None` if there are no such
    /// keys.
    all_keys: Option<AccountGroup<AccountEntry>>,
}

impl Accounts {
    /// Creates the account of the configured key, or the keyless one.
    pub(crate) fn new(params: AccountParams, config: AccountConfig) -> Result<Self, LimitError> {
        let has_caller_keys = config.credential.is_none() && !params.upstream.dialect.is_keyless();
        let group = AccountGroup::bounded(&params.memory, |entry: &AccountEntry| {
            entry.was_accepted.load(Ordering::Relaxed)
        });
        group.pin([config.own_credential().id(), OVERFLOW]);
        let state = State { config, all_keys: None };
        let accounts = Self { params, group, state: Mutex::new(state) };
        accounts.own()?;
        if has_caller_keys {
            accounts.all_keys(&mut lock(&accounts.state))?;
        }
        Ok(accounts)
    }

    /// Returns the account of the configured key, or the keyless account.
    pub(crate) fn own(&self) -> Result<Arc<AccountEntry>, LimitError> {
        let mut state = lock(&self.state);
        let credential = state.config.own_credential();
        self.entry(&mut state, credential.id(), &credential)
    }

    /// Returns the account of a caller's key.
    pub(crate) fn for_caller(
        &self,
        credential: &Credential,
    ) -> Result<Arc<AccountEntry>, LimitError> {
        let dialect = self.params.upstream.dialect;
        if credential.reveal().is_none() || dialect.is_keyless() {
            return self.own();
        }
        let state = lock(&self.state);
        if let Some(entry) = self.group.get(credential.id()) {
            return Ok(entry);
        }
        let footprint = account_footprint(&state.config.limits, dialect);
        drop(state);
        // May evict other accounts, here and at other providers.
        let has_room = self.params.memory.has_room(footprint);
        let mut state = lock(&self.state);
        if has_room {
            self.entry(&mut state, credential.id(), credential)
        } else {
            self.entry(&mut state, OVERFLOW, &Credential::new(OVERFLOW))
        }
    }

    /// Called when a call has ended. Removes an account whose key was rejected, if this was its
    /// last call.
    pub(crate) fn call_ended(&self, entry: &Arc<AccountEntry>) {
        if !entry.is_rejected.load(Ordering::Relaxed) {
            return;
        }
        self.group.remove_unused(entry.account.credential_id(), entry);
    }

    /// Applies another configuration. Usage so far still counts, and waiting calls follow the new
    /// limits at once.
    pub(crate) fn reconfigure(&self, config: AccountConfig) -> Result<(), LimitError> {
        let mut state = lock(&self.state);
        if state.config == config {
            return Ok(());
        }
        let previous = std::mem::replace(&mut state.config, config);
        let configure = |entry: &AccountEntry, config: &AccountConfig| {
            entry.account.configure(config.limits.clone())?;
            entry.account.set_ramp(config.ramp);
            Ok(())
        };
        let apply = |state: &State, config: &AccountConfig| {
            let all_keys = state.all_keys.as_ref();
            let mut result = all_keys.map_or(Ok(()), |all_keys| all_keys.configure(&config.limits));
            self.group.for_each(|_, entry| {
                if result.is_ok() {
                    result = configure(entry, config);
                }
            });
            result
        };
        if let Err(error) = apply(&state, &state.config) {
            // Roll back the accounts that were changed.
            if let Err(error) = apply(&state, &previous) {
                tracing::error!(
                    provider = %self.params.upstream.name,
                    %error,
                    "rollback failed: accounts run with mixed limits"
                );
            }
            state.config = previous;
            return Err(error);
        }
        self.group.pin([state.config.own_credential().id(), OVERFLOW]);
        Ok(())
    }

    /// Returns views of the limits over all callers' keys.
    pub(crate) async fn inspect_all_keys(&self) -> Vec<LimitView> {
        let all_keys = lock(&self.state).all_keys.clone();
        match all_keys {
            Some(all_keys) => all_keys.inspect().await,
            None => Vec::new(),
        }
    }

    /// Number of accounts.
    pub(crate) fn count(&self) -> usize {
        self.group.count()
    }

    /// Returns all accounts with their owners. Returns no entries, because their reference count
    /// tells whether they are in use.
    pub(crate) fn with_owners(&self) -> Vec<(AccountOwner, Account)> {
        let state = lock(&self.state);
        let owner = |id: &str| match id {
            id if state.config.is_own(id) => AccountOwner::Configured,
            OVERFLOW => AccountOwner::Shared,
            _ => AccountOwner::Caller,
        };
        let mut accounts = Vec::new();
        self.group.for_each(|id, entry| accounts.push((owner(id), entry.account.clone())));
        accounts
    }

    fn entry(
        &self,
        state: &mut State,
        id: &str,
        credential: &Credential,
    ) -> Result<Arc<AccountEntry>, LimitError> {
        if let Some(entry) = self.group.get(id) {
            return Ok(entry);
        }
        let entry = self.create_entry(state, credential)?;
        self.group.insert(id, entry.clone());
        Ok(entry)
    }

    fn create_entry(
        &self,
        state: &mut State,
        credential: &Credential,
    ) -> Result<Arc<AccountEntry>, LimitError> {
        let AccountParams { upstream, engines, observer, pool, memory } = &self.params;
        let is_caller_key = !state.config.is_own(credential.id()) && credential.reveal().is_some();
        let group = if is_caller_key { self.all_keys(state)? } else { self.group.clone() };
        let config = &state.config;
        let mut builder = Account::builder(upstream.name.clone(), credential)
            .dialect(upstream.dialect)
            .engine(if is_caller_key { &engines.callers } else { &engines.own })
            .observer(observer.clone())
            .account_limits(config.limits.clone())
            .pool(pool)
            .group(&group)
            .memory(memory);
        if let Some((floor, over)) = config.ramp {
            builder = builder.ramp_up(floor, over);
        }
        Ok(Arc::new(AccountEntry {
            account: builder.build()?,
            stack: ArcSwapOption::empty(),
            is_rejected: AtomicBool::new(false),
            was_accepted: AtomicBool::new(false),
        }))
    }

    /// Returns the group of the callers' keys, creating it on first use.
    fn all_keys(&self, state: &mut State) -> Result<AccountGroup<AccountEntry>, LimitError> {
        if let Some(group) = &state.all_keys {
            return Ok(group.clone());
        }
        let AccountParams { upstream, engines, .. } = &self.params;
        let all_keys =
            self.group.with_ceiling(&upstream.name, &engines.callers, &state.config.limits)?;
        state.all_keys = Some(all_keys.clone());
        Ok(all_keys)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
