//! Accounts of a provider: one for our own key, or one for each key that callers bring.
//!
//! Keys of callers come from outside, so their number is bounded: the one that was used longest ago
//! and has nothing under way is forgotten for a new one, with all that was learned of it. If all of
//! them are busy, further keys share one account.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;
use http::StatusCode;
use tidegate::Engine;
use tidegate::pacer::SlotPool;
use tidegate_llm::rate_limit::{
    Account, AccountError, AccountLimits, Ramp, SlotGroups, own_engine,
};
use tidegate_llm::retry::Budget;
use tidegate_llm::telemetry::Observer;
use tidegate_providers::Credential;

use crate::state::provider_view::AccountOwner;
use crate::upstream::settings::Upstream;
use crate::upstream::stack::Stack;

/// The most keys of callers that are told apart.
pub(crate) const MAX_ACCOUNTS: usize = 1_024;
/// The account that further keys share. No key has this hash.
const OVERFLOW: &str = "\u{0}overflow";

/// One account, and what the gateway knows of it.
pub(crate) struct AccountEntry {
    pub(crate) account: Account,
    /// What its calls may retry, all configurations together.
    pub(crate) budget: Budget,
    /// The stack, and the number of the configuration that it was made for.
    stack: ArcSwapOption<(u64, Stack)>,
    /// When it was last asked for, as a number that grows.
    used: AtomicU64,
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
    ramp: Option<Ramp>,
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
    /// The calls under way of models and endpoints, of all accounts together.
    pub(crate) groups: SlotGroups,
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

    /// The engine of a credential under a configuration.
    fn of(&self, credential: &Credential, config: &AccountConfig) -> &Engine {
        let is_own = config.is_own(credential.id()) || credential.reveal().is_none();
        if is_own { &self.own } else { &self.callers }
    }
}

/// The accounts of a provider.
pub(crate) struct Accounts {
    params: AccountParams,
    clock: AtomicU64,
    state: Mutex<State>,
}

struct State {
    config: AccountConfig,
    known: HashMap<Arc<str>, Arc<AccountEntry>>,
}

impl Accounts {
    /// No accounts yet, but for that of a key of our own.
    pub(crate) fn new(params: AccountParams, config: AccountConfig) -> Result<Self, AccountError> {
        let state = Mutex::new(State { config, known: HashMap::new() });
        let accounts = Self { params, clock: AtomicU64::new(0), state };
        accounts.own()?;
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
        if credential.reveal().is_none() {
            return self.own();
        }
        let mut state = lock(&self.state);
        if let Some(entry) = state.known.get(credential.id()) {
            self.touch(entry);
            return Ok(entry.clone());
        }
        if state.known.len() >= MAX_ACCOUNTS && !state.evict_one() {
            return self.entry(&mut state, OVERFLOW, &Credential::new(OVERFLOW));
        }
        self.entry(&mut state, credential.id(), credential)
    }

    /// A call is over: an account whose key was refused is forgotten, if it was the last.
    pub(crate) fn call_ended(&self, entry: &Arc<AccountEntry>) {
        if !entry.is_rejected.load(Ordering::Relaxed) {
            return;
        }
        let mut state = lock(&self.state);
        let id = entry.account.scope().credential_id();
        let is_own = state.config.is_own(id);
        let is_same = state.known.get(id).is_some_and(|known| Arc::ptr_eq(known, entry));
        // The table has one, and the call that leaves.
        if is_same && !is_own && Arc::strong_count(entry) == 2 {
            state.forget(&id.into());
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
        let changed = state.known.values().try_for_each(|entry| configure(entry, &state.config));
        if let Err(error) = changed {
            // Those that were changed go back.
            for entry in state.known.values() {
                if let Err(error) = configure(entry, &before) {
                    tracing::error!(%error, "rollback failed: accounts run with mixed limits");
                }
            }
            state.config = before;
            return Err(error);
        }
        Ok(())
    }

    pub(crate) fn entries(&self) -> Vec<Arc<AccountEntry>> {
        lock(&self.state).known.values().cloned().collect()
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
            self.touch(entry);
            return Ok(entry.clone());
        }
        let entry = self.open(&state.config, credential)?;
        self.touch(&entry);
        state.known.insert(id.into(), entry.clone());
        Ok(entry)
    }

    fn open(
        &self,
        config: &AccountConfig,
        credential: &Credential,
    ) -> Result<Arc<AccountEntry>, AccountError> {
        let AccountParams { upstream, engines, observer, pool, groups } = &self.params;
        let mut builder = Account::builder(upstream.name.clone(), credential)
            .dialect(upstream.dialect)
            .engine(engines.of(credential, config))
            .observer(observer.clone())
            .configured(config.limits.clone())
            .pool(pool)
            .groups(groups)
            .warn_each_minute();
        if let Some(ramp) = config.ramp {
            builder = builder.ramp_up(ramp);
        }
        Ok(Arc::new(AccountEntry {
            account: builder.build()?,
            budget: Budget::default(),
            stack: ArcSwapOption::empty(),
            used: AtomicU64::new(0),
            is_rejected: AtomicBool::new(false),
            was_accepted: AtomicBool::new(false),
        }))
    }

    fn touch(&self, entry: &AccountEntry) {
        entry.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl State {
    /// Removes the idle account that was used longest ago, if there is one.
    fn evict_one(&mut self) -> bool {
        let idle = self.known.iter().filter(|(id, entry)| {
            Arc::strong_count(entry) == 1 && !self.config.is_own(id) && &***id != OVERFLOW
        });
        let oldest = idle.min_by_key(|(_, entry)| entry.used.load(Ordering::Relaxed));
        let Some(id) = oldest.map(|(id, _)| id.clone()) else { return false };
        self.forget(&id)
    }

    fn forget(&mut self, id: &Arc<str>) -> bool {
        let forgotten = self.known.remove(id);
        forgotten.inspect(|entry| entry.account.retire()).is_some()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
