//! Run-time state of an account: its pools, pending faults and lock-out.
//!
//! The [`Account`] itself is configuration and does not change.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::account::Account;
use crate::calendar::{Now, nanos};
use crate::dialect::Dialect;
use crate::fault::{Fault, Hint};
use crate::limits::Limits;
use crate::limits::pool::Pool;
use crate::random::Random;
use crate::server::request::Head;

/// Maximum number of unnamed models per account.
const MAX_UNNAMED_MODELS: usize = 1_024;

/// An account with its run-time state.
#[derive(Debug)]
pub(crate) struct AccountState {
    pub(crate) account: Account,
    pub(crate) label: Arc<str>,
    pools: Mutex<HashMap<Arc<str>, Arc<Pool>>>,
    unnamed_models: AtomicU64,
    calls: AtomicU64,
    fault_state: Mutex<FaultState>,
}

#[derive(Debug, Default)]
struct FaultState {
    injected: VecDeque<(Fault, u64)>,
    /// End of the lock-out, in nanoseconds since the start.
    lock_out: Option<(u64, Hint)>,
}

/// What happens to a call before its limits are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultDecision {
    /// The call proceeds, possibly with a fault later.
    Proceed(Option<Fault>),
    /// The account is locked out for `left` nanoseconds.
    LockedOut { left: u64, hint: Hint },
}

impl AccountState {
    /// Creates the state of an account whose limits are valid. `ids` provides pool ids.
    pub(crate) fn new(account: Account, ids: &AtomicU64) -> Self {
        let mut pools = HashMap::new();
        for (names, limits) in &account.pools {
            let pool = new_pool(limits, account.dialect, ids);
            for name in names {
                pools.insert(Arc::from(name.as_str()), Arc::clone(&pool));
            }
        }
        Self {
            label: Arc::from(account.label.as_str()),
            account,
            pools: Mutex::new(pools),
            unnamed_models: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            fault_state: Mutex::default(),
        }
    }

    /// Returns whether a request belongs to this account.
    pub(crate) fn matches(&self, head: &Head) -> bool {
        let codec = self.account.dialect.codec();
        match self.account.dialect {
            Dialect::Ollama => codec.route(head.path()).is_some(),
            _ => codec
                .credential(head)
                .is_some_and(|key| self.account.keys.iter().any(|known| known == key)),
        }
    }

    /// Returns the pool of a model, and its name for the ledger. Creates the pool of an unnamed
    /// model.
    pub(crate) fn pool(&self, model: &str, ids: &AtomicU64) -> Option<(Arc<str>, Arc<Pool>)> {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((name, pool)) = pools.get_key_value(model) {
            return Some((Arc::clone(name), Arc::clone(pool)));
        }
        let limits = self.account.any_model.as_ref()?;
        let known = self.unnamed_models.load(Ordering::SeqCst);
        if known >= MAX_UNNAMED_MODELS as u64 {
            return None;
        }
        self.unnamed_models.store(known + 1, Ordering::SeqCst);
        let (name, pool): (Arc<str>, _) =
            (Arc::from(model), new_pool(limits, self.account.dialect, ids));
        pools.insert(Arc::clone(&name), Arc::clone(&pool));
        Some((name, pool))
    }

    /// Returns the pool of a model that was named or used before.
    pub(crate) fn known_pool(&self, model: &str) -> Option<Arc<Pool>> {
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.get(model).map(Arc::clone)
    }

    /// Decides what happens to the next call. A lock-out precedes injected faults, which precede
    /// scheduled ones.
    pub(crate) fn next_fault(&self, now: Now, random: &mut Random) -> FaultDecision {
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let planned = self.account.faults.pick(number, Duration::from_nanos(now.elapsed), random);
        let mut fault_state = self.fault_state();
        if let Some((until, hint)) = fault_state.lock_out {
            if now.elapsed < until {
                return FaultDecision::LockedOut { left: until - now.elapsed, hint };
            }
            fault_state.lock_out = None;
        }
        let fault = fault_state.take_injected().or(planned);
        if let Some(Fault::LockOut { length, hint }) = fault {
            let left = nanos(length);
            fault_state.lock_out = Some((now.elapsed.saturating_add(left), hint));
            return FaultDecision::LockedOut { left, hint };
        }
        FaultDecision::Proceed(fault)
    }

    pub(crate) fn inject(&self, fault: Fault, times: u64) {
        self.fault_state().injected.push_back((fault, times));
    }

    pub(crate) fn lock_out(&self, now: Now, length: Duration, hint: Hint) {
        self.fault_state().lock_out = Some((now.elapsed.saturating_add(nanos(length)), hint));
    }

    pub(crate) fn clear(&self) {
        *self.fault_state() = FaultState::default();
    }

    fn fault_state(&self) -> MutexGuard<'_, FaultState> {
        self.fault_state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FaultState {
    fn take_injected(&mut self) -> Option<Fault> {
        while let Some((fault, times)) = self.injected.front_mut() {
            if *times > 0 {
                *times -= 1;
                return Some(*fault);
            }
            self.injected.pop_front();
        }
        None
    }
}

fn new_pool(limits: &Limits, dialect: Dialect, ids: &AtomicU64) -> Arc<Pool> {
    let id = usize::try_from(ids.fetch_add(1, Ordering::SeqCst)).unwrap_or(usize::MAX);
    Arc::new(Pool::new(id, limits.clone().completed(dialect)))
}
