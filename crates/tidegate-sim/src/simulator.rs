//! The simulator: accounts, a clock and a ledger.
//!
//! It runs on any tokio runtime. Under paused time a run takes no real time, and events happen at
//! the same instants in every run.

use std::collections::HashSet;
use std::fmt;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::account::Account;
use crate::account_state::AccountState;
use crate::calendar::{DAY, Now, nanos};
use crate::dialect::Dialect;
use crate::error::{BuildError, FaultError};
use crate::fault::{Fault, Hint};
use crate::ledger::{Ledger, Usage};

/// 2026-01-01T00:00:00Z.
const DEFAULT_START: Duration = Duration::from_secs(1_767_225_600);
/// Latest start of the wall clock, in days since 1970, so that it can run for decades without
/// overflow.
const LAST_START: u64 = 193_000;

/// A server that limits, charges, responds and fails like LLM providers. Clones share the same
/// state.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use tidegate_sim::{Account, Dialect, Limits, Simulator};
/// use tokio::net::TcpListener;
///
/// let account = Account::new(Dialect::OpenAi, "main", "sk-1")
///     .model("gpt-4o", Limits::new().requests_per_minute(500).tokens_per_minute(30_000));
/// let simulator = Simulator::builder().account(account).seed(7).build()?;
///
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let base = format!("http://{}", listener.local_addr()?);
/// let server = simulator.clone();
/// let serving = tokio::spawn(async move { server.serve(listener).await });
/// // Clients of OpenAI use `{base}/v1` now.
/// # let _ = base;
/// # serving.abort();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Simulator {
    pub(crate) shared: Arc<Shared>,
}

/// State shared by all connections and calls.
pub(crate) struct Shared {
    pub(crate) accounts: Vec<AccountState>,
    pub(crate) ledger: Ledger,
    pub(crate) seed: u64,
    pub(crate) pool_ids: AtomicU64,
    /// The instant until which connections are refused.
    pub(crate) closed: watch::Sender<Option<Instant>>,
    start: Instant,
    wall_start: u64,
}

impl Shared {
    pub(crate) fn now(&self) -> Now {
        let elapsed = nanos(self.start.elapsed());
        Now { elapsed, wall: self.wall_start.saturating_add(elapsed) }
    }

    pub(crate) fn elapsed(&self, now: Now) -> Duration {
        Duration::from_nanos(now.elapsed)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("accounts", &self.accounts).finish_non_exhaustive()
    }
}

impl Simulator {
    /// Returns a builder.
    pub fn builder() -> SimulatorBuilder {
        SimulatorBuilder {
            accounts: Vec::new(),
            seed: 0,
            starts_at: SystemTime::UNIX_EPOCH + DEFAULT_START,
            ledger_capacity: 65_536,
        }
    }

    /// Returns the ledger of all calls.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        self.shared.ledger.clone()
    }

    /// Serves on a free loopback port, in a task of the current runtime. Returns the base URL,
    /// `http://127.0.0.1:PORT`.
    ///
    /// # Errors
    ///
    /// If no port can be bound.
    pub async fn serve_on_loopback(&self) -> std::io::Result<String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let server = self.clone();
        tokio::spawn(async move { server.serve(listener).await });
        Ok(url)
    }

    /// Returns the time since the simulator was built, on the clock of the ledger.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.shared.start.elapsed()
    }

    /// Returns how much of a model's binding limit was used by admitted calls that arrived in a
    /// window.
    ///
    /// `None` if the model is unknown, if it has no limit per minute, or if entries of the window
    /// were evicted.
    #[must_use]
    pub fn usage(&self, account: &str, model: &str, window: Range<Duration>) -> Option<Usage> {
        let pool = self.state(account).ok()?.known_pool(model)?;
        self.shared.ledger.usage(pool.id, &pool.limits, &window)
    }

    /// Makes the next `times` calls of an account fail, after faults injected before.
    ///
    /// # Errors
    ///
    /// If the account does not exist, or its provider does not have the fault.
    pub fn inject(&self, account: &str, fault: Fault, times: u64) -> Result<(), FaultError> {
        let state = self.state(account)?;
        fault.check(state.account.dialect)?;
        state.inject(fault, times);
        Ok(())
    }

    /// Rejects all calls of an account for a time, starting now.
    ///
    /// # Errors
    ///
    /// If the account does not exist, or its provider has no lock-outs.
    pub fn lock_out(&self, account: &str, length: Duration, hint: Hint) -> Result<(), FaultError> {
        let state = self.state(account)?;
        Fault::LockOut { length, hint }.check(state.account.dialect)?;
        state.lock_out(self.shared.now(), length, hint);
        Ok(())
    }

    /// Ends the lock-out of an account and removes injected faults. Scheduled faults remain.
    ///
    /// # Errors
    ///
    /// If the account does not exist.
    pub fn clear_faults(&self, account: &str) -> Result<(), FaultError> {
        self.state(account)?.clear();
        Ok(())
    }

    /// Refuses new connections for a time and resets open ones, as if the machine went down. On a
    /// real socket, the port is closed and reopened.
    pub fn refuse_connections(&self, length: Duration) {
        let length = Duration::from_nanos(nanos(length));
        self.shared.closed.send_replace(Some(Instant::now() + length));
    }

    fn state(&self, account: &str) -> Result<&AccountState, FaultError> {
        let found = self.shared.accounts.iter().find(|state| &*state.label == account);
        found.ok_or_else(|| FaultError::UnknownAccount { label: account.to_owned() })
    }
}

/// Builder of a [`Simulator`].
#[derive(Debug)]
#[must_use = "call `build` to create the simulator"]
pub struct SimulatorBuilder {
    accounts: Vec<Account>,
    seed: u64,
    starts_at: SystemTime,
    ledger_capacity: usize,
}

impl SimulatorBuilder {
    /// Adds an account. Requests are matched to accounts by key.
    pub fn account(mut self, account: Account) -> Self {
        self.accounts.push(account);
        self
    }

    /// Sets the seed of all random numbers. Default: 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the initial wall clock time. Default: the start of 2026. Use the real time if clients
    /// compare dates with their own clock.
    pub fn starts_at(mut self, time: SystemTime) -> Self {
        self.starts_at = time;
        self
    }

    /// Sets how many entries the ledger keeps. Default: 65,536, of about 200 bytes each.
    pub fn ledger_capacity(mut self, entries: usize) -> Self {
        self.ledger_capacity = entries;
        self
    }

    /// Builds the simulator. Its clock starts now and is that of the current runtime.
    ///
    /// # Errors
    ///
    /// If labels or keys of accounts are not unique, or limits or faults are invalid.
    pub fn build(self) -> Result<Simulator, BuildError> {
        let since_epoch = self.starts_at.duration_since(SystemTime::UNIX_EPOCH);
        let wall_start = since_epoch.map_err(|_| BuildError::WallClock)?;
        if wall_start.as_secs() >= LAST_START * 86_400 {
            return Err(BuildError::WallClock);
        }
        check_unique(&self.accounts)?;
        self.accounts.iter().try_for_each(check)?;
        let pool_ids = AtomicU64::new(0);
        let accounts = self
            .accounts
            .into_iter()
            .map(|account| AccountState::new(account, &pool_ids))
            .collect();
        let shared = Shared {
            accounts,
            ledger: Ledger::new(self.ledger_capacity),
            seed: self.seed,
            pool_ids,
            closed: watch::Sender::new(None),
            start: Instant::now(),
            wall_start: nanos(wall_start),
        };
        Ok(Simulator { shared: Arc::new(shared) })
    }
}

/// Checks that labels and keys are unique, since accounts are looked up by both.
fn check_unique(accounts: &[Account]) -> Result<(), BuildError> {
    let mut labels = HashSet::new();
    let mut keys = HashSet::new();
    for account in accounts {
        let ambiguous = || BuildError::DuplicateAccount { label: account.label.clone() };
        if !labels.insert(account.label.as_str()) {
            return Err(ambiguous());
        }
        // Ollama accounts have no key and would all match the same requests.
        let own_keys: Vec<Option<&str>> = match account.dialect {
            Dialect::Ollama => vec![None],
            _ => account.keys.iter().map(|key| Some(key.as_str())).collect(),
        };
        for key in own_keys {
            if !keys.insert(key) {
                return Err(ambiguous());
            }
        }
    }
    Ok(())
}

fn check(account: &Account) -> Result<(), BuildError> {
    let limits = account.pools.iter().map(|(_, limits)| limits).chain(&account.any_model);
    for limits in limits {
        limits.clone().completed(account.dialect).check(account.dialect)?;
    }
    account.faults.check(account.dialect)?;
    let mut names = HashSet::new();
    for name in account.pools.iter().flat_map(|(names, _)| names) {
        if !names.insert(name) {
            let (label, model) = (account.label.clone(), name.clone());
            return Err(BuildError::DuplicateModel { label, model });
        }
    }
    if names.is_empty() && account.any_model.is_none() {
        return Err(BuildError::NoModel { label: account.label.clone() });
    }
    Ok(())
}

/// From the latest start, decades fit into 64 bits of nanoseconds.
const _: () = assert!(LAST_START < u64::MAX / DAY - 14_000);
