//! The simulator itself: accounts, a clock, a ledger, and two ways in.
//!
//! It runs wherever tokio runs. Under paused time everything that takes time takes none, and
//! happens at the same instants in every run.

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

/// The first second of 2026, in UTC.
const DEFAULT_START: Duration = Duration::from_secs(1_767_225_600);
/// The wall clock starts before this many days, so that it can run for decades.
const LAST_START: u64 = 193_000;

/// A server that limits, charges, answers and fails like LLM providers. Clones are the same server.
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

/// What all connections and calls share.
pub(crate) struct Shared {
    pub(crate) accounts: Vec<AccountState>,
    pub(crate) ledger: Ledger,
    pub(crate) seed: u64,
    pub(crate) pool_ids: AtomicU64,
    /// Until when connections are refused.
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
    /// A simulator in the making.
    pub fn builder() -> SimulatorBuilder {
        SimulatorBuilder {
            accounts: Vec::new(),
            seed: 0,
            starts_at: SystemTime::UNIX_EPOCH + DEFAULT_START,
            ledger_capacity: 65_536,
        }
    }

    /// What was seen.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        self.shared.ledger.clone()
    }

    /// Serves on a free loopback port, in a task of the runtime that this is called in. Says where:
    /// `http://127.0.0.1:PORT`.
    ///
    /// # Errors
    ///
    /// If there is no such port.
    pub async fn serve_on_loopback(&self) -> std::io::Result<String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let server = self.clone();
        tokio::spawn(async move { server.serve(listener).await });
        Ok(url)
    }

    /// How long ago the simulator was built, on the clock of the ledger.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.shared.start.elapsed()
    }

    /// How much was used of the limit of a model that binds, by calls that arrived in a window and
    /// were let in.
    ///
    /// `None` if nobody has such a model, if it has no limit by the minute, or if the ledger has
    /// forgotten calls of the window.
    #[must_use]
    pub fn usage(&self, account: &str, model: &str, window: Range<Duration>) -> Option<Usage> {
        let pool = self.state(account).ok()?.known_pool(model)?;
        self.shared.ledger.usage(pool.id, &pool.limits, &window)
    }

    /// Makes the next `times` calls of an account fail, after those that were told to before.
    ///
    /// # Errors
    ///
    /// If there is no such account, or if its provider cannot fail like this.
    pub fn inject(&self, account: &str, fault: Fault, times: u64) -> Result<(), FaultError> {
        let state = self.state(account)?;
        fault.check(state.account.dialect)?;
        state.inject(fault, times);
        Ok(())
    }

    /// Refuses all calls of an account for a time, from now on.
    ///
    /// # Errors
    ///
    /// If there is no such account, or if its provider locks nobody out.
    pub fn lock_out(&self, account: &str, length: Duration, hint: Hint) -> Result<(), FaultError> {
        let state = self.state(account)?;
        Fault::LockOut { length, hint }.check(state.account.dialect)?;
        state.lock_out(self.shared.now(), length, hint);
        Ok(())
    }

    /// Ends the lock-out of an account and forgets the faults that were injected. What was planned
    /// stays planned.
    ///
    /// # Errors
    ///
    /// If there is no such account.
    pub fn clear_faults(&self, account: &str) -> Result<(), FaultError> {
        self.state(account)?.clear();
        Ok(())
    }

    /// Refuses new connections for a time and resets those that are open, as when a machine goes
    /// down. On a real socket the port is closed, and opened again.
    pub fn refuse_connections(&self, length: Duration) {
        let length = Duration::from_nanos(nanos(length));
        self.shared.closed.send_replace(Some(Instant::now() + length));
    }

    fn state(&self, account: &str) -> Result<&AccountState, FaultError> {
        let found = self.shared.accounts.iter().find(|state| &*state.label == account);
        found.ok_or_else(|| FaultError::UnknownAccount { label: account.to_owned() })
    }
}

/// A [`Simulator`] in the making.
#[derive(Debug)]
#[must_use = "nothing is simulated until the simulator is built"]
pub struct SimulatorBuilder {
    accounts: Vec<Account>,
    seed: u64,
    starts_at: SystemTime,
    ledger_capacity: usize,
}

impl SimulatorBuilder {
    /// Adds an account. Requests find it by their key.
    pub fn account(mut self, account: Account) -> Self {
        self.accounts.push(account);
        self
    }

    /// What all random numbers are made of; 0 by default.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// What the simulator's wall clock says when it is built: the start of 2026 by default. Let it
    /// be the real time where a client compares dates with a clock of its own.
    pub fn starts_at(mut self, time: SystemTime) -> Self {
        self.starts_at = time;
        self
    }

    /// How many entries the ledger keeps: 65,536 by default, some 200 bytes each.
    pub fn ledger_capacity(mut self, entries: usize) -> Self {
        self.ledger_capacity = entries;
        self
    }

    /// Builds the simulator. Its clock starts now, and is that of the runtime in which this is
    /// called.
    ///
    /// # Errors
    ///
    /// If accounts cannot be told apart, or have limits or faults that make no sense.
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

/// Requests find their account by key, tests by label.
fn check_unique(accounts: &[Account]) -> Result<(), BuildError> {
    let mut labels = HashSet::new();
    let mut keys = HashSet::new();
    for account in accounts {
        let ambiguous = || BuildError::Ambiguous { label: account.label.clone() };
        if !labels.insert(account.label.as_str()) {
            return Err(ambiguous());
        }
        // All accounts of Ollama would have the same key, which is none.
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
            return Err(BuildError::ModelTwice { label, model });
        }
    }
    if names.is_empty() && account.any_model.is_none() {
        return Err(BuildError::NoModel { label: account.label.clone() });
    }
    Ok(())
}

/// Decades of a run fit behind the latest start.
const _: () = assert!(LAST_START < u64::MAX / DAY - 14_000);
