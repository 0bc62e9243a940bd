//! Accounts of a provider: one for our own key, or one for each key that callers bring.
//!
//! Keys of callers come from outside, so what is kept of them is bounded by a budget of memory that all
//! providers share. For a new one those are forgotten that were never accepted, and then those that
//! were used longest ago. One that owes something, is held or has calls under way is not forgotten: its
//! limits would be, too. While there is no room for another one, new keys of a provider share one
//! account.
//!
//! Where servers do not check keys, a key says nothing about who calls, and all callers share one
//! account.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use http::StatusCode;
use tidegate::Engine;
use tidegate::pacer::SlotPool;
use tidegate_llm::memory::{Loss, MemoryBudget, SecondChance};
use tidegate_llm::rate_limit::{
    Account, AccountError, AccountGroup, AccountLimits, LimitView, account_footprint, own_engine,
};
use tidegate_llm::telemetry::Observer;
use tidegate_providers::Credential;

use crate::state::provider_view::AccountOwner;
use crate::upstream::settings::Upstream;
use crate::upstream::stack::Stack;

/// So many accounts are looked at when room is to be made, and of each so many models.
const LOOKS: usize = 16;
const LOOKS_AT_MODELS: usize = 4;
/// The account that further keys share. No key has this hash.
const OVERFLOW: &str = "\u{0}overflow";

/// One account, and what the gateway knows of it.
pub(crate) struct AccountEntry {
    pub(crate) account: Account,
    /// The stack, and the number of the configuration that it was made for.
    stack: ArcSwapOption<(u64, Stack)>,
    /// Whether the provider rejected the key and never accepted it.
    is_rejected: AtomicBool,
    /// Whether the provider ever accepted the key.
    was_accepted: AtomicBool,
}

impl AccountEntry {
    /// The stack for a configuration, made if it is another one than last time.
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

    /// Learns from the status of an answer whether the provider accepts the key. A key that was
    /// accepted once is not forgotten when it is rejected: what was learned of it would be lost.
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

/// The configuration of the accounts of a provider.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AccountConfig {
    limits: AccountLimits,
    ramp: Option<(u64, Duration)>,
    credential: Option<Credential>,
}

impl AccountConfig {
    pub(crate) fn of(upstream: &Upstream) -> Self {
        Self {
            limits: upstream.limits.clone(),
            ramp: upstream.ramp,
            credential: upstream.credential.clone(),
        }
    }

    /// Whether an account is that of the configured key, or of no key.
    fn is_own(&self, id: &str) -> bool {
        self.credential.as_ref().map_or_else(|| Credential::none().id() == id, |own| own.id() == id)
    }
}

/// What new accounts are made with; it never changes.
#[derive(Clone, Debug)]
pub(crate) struct AccountParams {
    pub(crate) upstream: Upstream,
    pub(crate) engines: Engines,
    pub(crate) observer: Arc<dyn Observer>,
    /// The calls under way of all accounts together.
    pub(crate) pool: SlotPool,
    /// What all accounts share.
    pub(crate) group: AccountGroup,
    /// What accounts may take of memory.
    pub(crate) memory: MemoryBudget,
}

/// Whose store keeps the limits of accounts.
#[derive(Clone, Debug)]
pub(crate) struct Engines {
    /// Of configured keys.
    own: Engine,
    /// Of callers' keys, in this process. How many keys there are is up to callers: they fill
    /// neither a shared store, which keeps a record for every limit, nor a snapshot.
    callers: Engine,
}

impl Engines {
    pub(crate) fn new(own: Engine) -> Self {
        Self { own, callers: own_engine() }
    }

    pub(crate) const fn own(&self) -> &Engine {
        &self.own
    }
}

/// The accounts of a provider.
pub(crate) struct Accounts {
    params: AccountParams,
    state: Mutex<State>,
}

struct State {
    config: AccountConfig,
    known: SecondChance<Arc<str>, Arc<AccountEntry>>,
    /// The group of the keys of callers, with the ceiling over all of them; `None` while there are
    /// none.
    all_keys: Option<AccountGroup>,
}

impl Accounts {
    /// No accounts yet, but for that of a key of our own.
    pub(crate) fn new(params: AccountParams, config: AccountConfig) -> Result<Self, AccountError> {
        let has_callers = config.credential.is_none() && !params.upstream.dialect.is_keyless();
        let state = State { config, known: SecondChance::default(), all_keys: None };
        let accounts = Self { params, state: Mutex::new(state) };
        accounts.own()?;
        if has_callers {
            accounts.all_keys(&mut lock(&accounts.state))?;
        }
        Ok(accounts)
    }

    /// The account of our own key, or of no key.
    pub(crate) fn own(&self) -> Result<Arc<AccountEntry>, AccountError> {
        let mut state = lock(&self.state);
        let credential = state.config.credential.clone().unwrap_or_else(Credential::none);
        self.entry(&mut state, credential.id(), &credential)
    }

    /// The account of a caller's key.
    pub(crate) fn of_caller(
        &self,
        credential: &Credential,
    ) -> Result<Arc<AccountEntry>, AccountError> {
        let dialect = self.params.upstream.dialect;
        if credential.reveal().is_none() || dialect.is_keyless() {
            return self.own();
        }
        let state = lock(&self.state);
        if let Some(entry) = state.known.get(credential.id()) {
            return Ok(entry.clone());
        }
        let footprint = account_footprint(&state.config.limits, dialect);
        drop(state);
        // Others may be forgotten for it, here and at other providers.
        let has_room = self.params.memory.has_room(footprint);
        let mut state = lock(&self.state);
        if has_room {
            self.entry(&mut state, credential.id(), credential)
        } else {
            self.entry(&mut state, OVERFLOW, &Credential::new(OVERFLOW))
        }
    }

    /// Looks at some accounts: forgets models that are not in use, and accounts that are not. What owes
    /// something stays.
    pub(crate) fn reclaim(&self, most: Loss) {
        let mut state = lock(&self.state);
        let State { config, known, .. } = &mut *state;
        let may_go = |id: &Arc<str>, entry: &Arc<AccountEntry>, is_used: bool| {
            entry.account.release_models(LOOKS_AT_MODELS, most);
            let is_kept = config.is_own(id) || **id == *OVERFLOW;
            let is_idle = !is_used && Arc::strong_count(entry) == 1;
            let is_unproven = !entry.was_accepted.load(Ordering::Relaxed);
            let is_next = most > Loss::Nothing || is_unproven;
            !is_kept && is_idle && is_next && entry.account.loss() <= most
        };
        for (_, entry) in known.release(LOOKS, may_go) {
            entry.account.retire();
        }
    }

    /// A call is over: an account whose key was refused is forgotten, if it was the last.
    pub(crate) fn call_ended(&self, entry: &Arc<AccountEntry>) {
        if !entry.is_rejected.load(Ordering::Relaxed) {
            return;
        }
        let mut state = lock(&self.state);
        let id = entry.account.credential_id();
        let is_own = state.config.is_own(id);
        let is_same = state.known.get(id).is_some_and(|known| Arc::ptr_eq(known, entry));
        // The table has one, and the call that leaves.
        if is_same && !is_own && Arc::strong_count(entry) == 2 {
            state.forget(id);
        }
    }

    /// Applies another configuration. What was spent still counts, and waiting calls follow it at
    /// once.
    pub(crate) fn reconfigure(&self, config: AccountConfig) -> Result<(), AccountError> {
        let mut state = lock(&self.state);
        if state.config == config {
            return Ok(());
        }
        let before = std::mem::replace(&mut state.config, config);
        let configure = |entry: &Arc<AccountEntry>, config: &AccountConfig| {
            entry.account.configure(config.limits.clone())?;
            entry.account.set_ramp(config.ramp);
            Ok(())
        };
        let follow = |state: &State, config: &AccountConfig| {
            let all_keys = state.all_keys.as_ref();
            all_keys.map_or(Ok(()), |all_keys| all_keys.configure(&config.limits))?;
            state.known.iter().try_for_each(|(_, entry)| configure(entry, config))
        };
        if let Err(error) = follow(&state, &state.config) {
            // Those that were changed go back.
            if let Err(error) = follow(&state, &before) {
                tracing::error!(%error, "rollback failed: accounts run with mixed limits");
            }
            state.config = before;
            return Err(error);
        }
        Ok(())
    }

    /// The limits over all keys of callers, as they are shown.
    pub(crate) async fn inspect_all_keys(&self) -> Vec<LimitView> {
        let all_keys = lock(&self.state).all_keys.clone();
        match all_keys {
            Some(all_keys) => all_keys.inspect().await,
            None => Vec::new(),
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        lock(&self.state).known.len()
    }

    /// All accounts, and whose they are. Entries are not held on to, since their number of
    /// references says whether they are in use.
    pub(crate) fn with_owners(&self) -> Vec<(AccountOwner, Account)> {
        let state = lock(&self.state);
        let owner = |id: &str| match id {
            id if state.config.is_own(id) => AccountOwner::Own,
            OVERFLOW => AccountOwner::Shared,
            _ => AccountOwner::Caller,
        };
        state.known.iter().map(|(id, entry)| (owner(id), entry.account.clone())).collect()
    }

    fn entry(
        &self,
        state: &mut State,
        id: &str,
        credential: &Credential,
    ) -> Result<Arc<AccountEntry>, AccountError> {
        if let Some(entry) = state.known.get(id) {
            return Ok(entry.clone());
        }
        let entry = self.open(state, credential)?;
        state.known.insert(id.into(), entry.clone());
        Ok(entry)
    }

    fn open(
        &self,
        state: &mut State,
        credential: &Credential,
    ) -> Result<Arc<AccountEntry>, AccountError> {
        let AccountParams { upstream, engines, observer, pool, group, memory } = &self.params;
        let is_callers = !state.config.is_own(credential.id()) && credential.reveal().is_some();
        let group = if is_callers { self.all_keys(state)? } else { group.clone() };
        let config = &state.config;
        let mut builder = Account::builder(upstream.name.clone(), credential)
            .dialect(upstream.dialect)
            .engine(if is_callers { &engines.callers } else { &engines.own })
            .observer(observer.clone())
            .configured(config.limits.clone())
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

    /// The group of the keys of callers, made with the first of them.
    fn all_keys(&self, state: &mut State) -> Result<AccountGroup, AccountError> {
        if let Some(known) = &state.all_keys {
            return Ok(known.clone());
        }
        let AccountParams { upstream, engines, group, .. } = &self.params;
        let all_keys =
            group.with_ceiling(&upstream.name, &engines.callers, &state.config.limits)?;
        state.all_keys = Some(all_keys.clone());
        Ok(all_keys)
    }
}

impl State {
    fn forget(&mut self, id: &str) {
        if let Some(entry) = self.known.remove(id) {
            entry.account.retire();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
