//! A server: the engine, the limits it serves, and the doors that open on them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tidegate::admission::{Admission, AdmissionError, Tier};
use tidegate::guard::{GuardError, GuardStats, Guarded, StoreState};
use tidegate::{Engine, MemoryError, MemoryStore, Store};
use tidegate_config::{Plan, StorePlan, StoreUrl};
use tidegate_redis::{OpenError, RedisStore};

use crate::door::http::{Bounds, Guard, HttpDoor, Troubles};
use crate::drain::{Drain, Drained, GRACE};
use crate::listen;
use crate::served::Served;

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The store cannot be opened.
    #[error("the in-process store cannot be opened: {0}")]
    Store(#[from] MemoryError),
    /// The shared store cannot be opened, whether or not its server is there.
    #[error("the shared store cannot be opened: {0}")]
    SharedStore(#[from] OpenError),
    /// The shared store cannot be guarded.
    #[error("the shared store cannot be guarded: {0}")]
    Guard(#[from] GuardError),
    /// A store of a kind that this version does not have.
    #[error("this version cannot open the configured store")]
    UnknownStore,
    /// The tiers of admission cannot be made.
    #[error("admission cannot be set up: {0}")]
    Admission(#[from] AdmissionError),
    /// An address cannot be listened on.
    #[error("the {door} door cannot open on {address}: {source}{}", advice(source))]
    Bind {
        /// Which door.
        door: &'static str,
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; another program listens there, choose another port",
        io::ErrorKind::PermissionDenied => "; ports below 1024 need a privilege",
        _ => "",
    }
}

/// A server that has not opened its doors yet.
///
/// ```
/// use tidegate_config::{Key, Loader};
/// use tidegate_server::{Drained, Server};
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// let plan = Loader::default().flag(Key::ListenHttp, "127.0.0.1:0").text("none", "")?;
/// let running = Server::new(&plan)?.open().await?;
/// assert_ne!(running.http().port(), 0);
/// assert_eq!(running.shutdown().await, Drained::Complete);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a server serves once its doors are open"]
pub struct Server {
    plan: Plan,
    /// Open already, or else opened with the doors.
    store: Option<Opened>,
    max_keys: Option<usize>,
}

/// A store that is open.
#[derive(Debug)]
enum Opened {
    /// One that always answers.
    Sure(Arc<dyn Store>),
    /// One that may fail, and so is behind a guard.
    Guarded(Guarded<dyn Store>),
}

impl Server {
    /// A server on the store that the plan names. The in-process one is open from now on, any
    /// other once the doors are.
    ///
    /// # Errors
    /// When the in-process store cannot be opened.
    pub fn new(plan: &Plan) -> Result<Self, StartError> {
        if plan.store.url.value != StoreUrl::Memory {
            return Ok(Self { plan: plan.clone(), store: None, max_keys: None });
        }
        let store = open_memory(&plan.store)?;
        let max_keys = Some(store.stats().max_keys);
        Ok(Self { max_keys, ..Self::with_store(plan, Arc::new(store)) })
    }

    /// A server on a store that is open already, whatever the plan says of it.
    pub fn with_store(plan: &Plan, store: Arc<dyn Store>) -> Self {
        Self { plan: plan.clone(), store: Some(Opened::Sure(store)), max_keys: None }
    }

    /// A server on a store that is open already and may fail: behind a guard, with the failure
    /// rules of the plan.
    ///
    /// # Errors
    /// When the guard has no memory to decide in.
    pub fn with_shared_store(plan: &Plan, store: Arc<dyn Store>) -> Result<Self, StartError> {
        let store = Some(guarded(&plan.store, store)?);
        Ok(Self { plan: plan.clone(), store, max_keys: None })
    }

    /// How many keys the memory of the store is enough for, if that is known.
    #[must_use]
    pub fn max_keys(&self) -> Option<usize> {
        self.max_keys
    }

    /// Opens the doors.
    ///
    /// # Errors
    /// When the store cannot be opened or an address cannot be listened on. No door is open then.
    pub async fn open(self) -> Result<Running, StartError> {
        let opened = match self.store {
            Some(opened) => opened,
            None => open_store(&self.plan.store).await?,
        };
        let (store, guarded): (Arc<dyn Store>, _) = match opened {
            Opened::Sure(store) => (store, None),
            Opened::Guarded(guarded) => (Arc::new(guarded.clone()), Some(guarded)),
        };
        let address = self.plan.listen.http.value;
        let (listener, http) = listen::bind(address).await.map_err(|source| StartError::Bind {
            door: "http",
            address,
            source,
        })?;
        let guard = Guard::new(http, self.plan.listen.allowed_hosts.value.clone());
        let served = Arc::new(Served::new(&self.plan.limits));
        let (engine, bounds, troubles) =
            (Engine::on(store), Bounds::default(), Troubles::default());
        let admission = admission(&engine, &self.plan)?;
        let door = HttpDoor { engine, served, admission, guard, bounds, troubles };
        let mut drain = Drain::new();
        let stop = drain.signal();
        drain.watch(door.serve(listener, stop));
        tracing::info!(%http, "the http door is open");
        Ok(Running { http, drain, guarded })
    }
}

/// The admission of a plan, with the failure rules of the limits that are its tiers.
fn admission(
    engine: &Engine<dyn Store>,
    plan: &Plan,
) -> Result<Admission<dyn Store>, AdmissionError> {
    let admission = Admission::new(engine, plan.admission.rules(&plan.limits))?;
    for tier in [Tier::Client, Tier::Organization] {
        let limit = plan.limits.by_name.get(tier.as_str());
        let rule = limit.and_then(|limit| limit.limit.failure_rule());
        if let (Some(limiter), Some(rule)) = (admission.limiter(tier), rule) {
            limiter.set_failure_rule(rule);
        }
    }
    for tier in plan.admission.unusable_tiers(&plan.limits) {
        tracing::warn!(limit = tier, "no tier of admission: it takes a token bucket");
    }
    if !plan.admission.enabled.value {
        admission.disable();
    }
    Ok(admission)
}

/// Opens the store that a plan names. One that can fail is put behind a guard.
async fn open_store(plan: &StorePlan) -> Result<Opened, StartError> {
    match &plan.url.value {
        StoreUrl::Memory => Ok(Opened::Sure(Arc::new(open_memory(plan)?))),
        StoreUrl::Redis(url) => {
            let store = RedisStore::builder(url.with_credentials()).open()?;
            // A server that is away is no reason not to start: the failure rules decide until it
            // is back. The store itself says why it cannot connect.
            if store.connected().await.is_ok() {
                tracing::info!(%url, "the shared store answers");
            }
            guarded(plan, Arc::new(store))
        }
        _ => Err(StartError::UnknownStore),
    }
}

fn open_memory(plan: &StorePlan) -> Result<MemoryStore, StartError> {
    let builder = MemoryStore::builder()
        .max_memory(plan.max_memory.value.bytes())
        .overflow(plan.overflow.value);
    Ok(builder.build()?)
}

/// A guard around a store, with the failure rules of a plan.
fn guarded(plan: &StorePlan, store: Arc<dyn Store>) -> Result<Opened, StartError> {
    let guard = Guarded::builder(store)
        .default_rule(plan.on_failure.value)
        .expected_nodes(plan.expected_nodes.value)
        .max_memory(plan.max_memory.value.bytes())
        .overflow(plan.overflow.value);
    Ok(Opened::Guarded(guard.build()?))
}

/// A server whose doors are open.
#[derive(Debug)]
#[must_use = "dropping a running server stops it without waiting"]
pub struct Running {
    http: SocketAddr,
    drain: Drain,
    guarded: Option<Guarded<dyn Store>>,
}

impl Running {
    /// Where the HTTP door is open.
    #[must_use]
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// Whether the store is asked at present; `None` if it is one that cannot fail.
    #[must_use]
    pub fn store_state(&self) -> Option<StoreState> {
        self.guarded.as_ref().map(Guarded::state)
    }

    /// What has been counted about a store that can fail.
    #[must_use]
    pub fn store_stats(&self) -> Option<GuardStats> {
        self.guarded.as_ref().map(Guarded::stats)
    }

    /// Stops accepting, answers what is under way, and gives up after [`GRACE`].
    pub async fn shutdown(self) -> Drained {
        let drained = self.drain.drain(GRACE).await;
        tracing::info!(?drained, "the doors are closed");
        drained
    }
}
