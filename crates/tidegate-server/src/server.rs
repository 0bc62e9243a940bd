//! The server: opens the store, loads the configuration and starts the listeners.

mod error;
mod snapshot;
mod sockets;
mod store;
mod watch;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate::Store;
use tidegate::guard::{GuardStats, GuardedStore};
use tidegate_config::{Config, Layers, Overrides, StoreUrl};
use tidegate_http::host::HostCheck;
use tokio::net::TcpListener;

use crate::api::admin::{AdminApi, ServerInfo};
use crate::api::grpc;
use crate::api::health::{self, Health};
use crate::api::http::HttpApi;
use crate::configuration::limits;
use crate::configuration::{self, ActiveConfig, ChangeError, Parts};
use crate::database::{ChangeOrigin, Database, StoredSettings};
use crate::listener::bounds::Bounds;
use crate::listener::drain::{Drain, Drained, SHUTDOWN_GRACE};
use crate::listener::files::OpenFiles;
use crate::listener::workers::Workers;
use crate::tokens::check_listener;
pub use error::StartError;
use snapshot::SnapshotSaver;
pub use sockets::Sockets;
use store::ServerStore;

/// Checks whether a server running with the layers `before` can switch to `after`. Call it before a
/// change is written to a database that servers follow.
///
/// # Errors
/// If `after` is invalid, or needs a restart.
pub fn check_change(before: &Layers, after: &Layers) -> Result<(), ChangeError> {
    let plan = after.validate()?;
    Parts::check(&plan)?;
    // No server can be running with invalid layers, so there is nothing to compare with.
    let Ok(before) = before.validate() else { return Ok(()) };
    limits::check(before.limits.by_name.values().map(|before| &before.limit), &plan.limits)
}

/// Checks whether a server could run with a plan, without opening or changing anything.
///
/// # Errors
/// If any part of the plan cannot be used.
pub fn check_config(plan: &Config) -> Result<(), ChangeError> {
    Parts::check(plan).map(drop)
}

/// A server that is configured but does not listen yet.
///
/// ```
/// use tidegate_config::{Key, Loader};
/// use tidegate_server::{Drained, Server};
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// let loader = [Key::ListenHttp, Key::ListenAdmin, Key::ListenGrpc]
///     .into_iter()
///     .fold(Loader::default(), |loader, door| loader.flag(door, "127.0.0.1:0"))
///     .flag(Key::DatabaseUrl, "none");
/// let running = Server::new(loader.text_layers("none", ""))?.open().await?;
/// assert_ne!(running.http().port(), 0);
/// assert_eq!(running.shutdown().await, Drained::Complete);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a server does nothing until it is opened"]
pub struct Server {
    layers: Layers,
    plan: Config,
    /// `None` if the store is opened later, by [`Server::open`].
    store: Option<ServerStore>,
    sockets: Sockets,
}

impl Server {
    /// Creates a server on the store named in the configuration. The in-process store is opened
    /// immediately, any other store by [`Server::open`].
    ///
    /// # Errors
    /// If the configuration is invalid, or the in-process store cannot be opened.
    pub fn new(layers: Layers) -> Result<Self, StartError> {
        let plan = layers.validate().map_err(ChangeError::from)?;
        let store = match plan.store.url.value {
            StoreUrl::Memory => Some(ServerStore::memory(&plan.store)?),
            _ => None,
        };
        Ok(Self { layers, plan, store, sockets: Sockets::default() })
    }

    /// Creates a server on a given store, ignoring the store settings of the configuration.
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub fn with_store(layers: Layers, store: Arc<dyn Store>) -> Result<Self, StartError> {
        let plan = layers.validate().map_err(ChangeError::from)?;
        let store = Some(ServerStore::infallible(store));
        Ok(Self { layers, plan, store, sockets: Sockets::default() })
    }

    /// Creates a server on a given store that may fail. The store is put behind a guard with the
    /// failure rules of the configuration.
    ///
    /// # Errors
    /// If the configuration is invalid, or the guard cannot allocate its local store.
    pub fn with_shared_store(layers: Layers, store: Arc<dyn Store>) -> Result<Self, StartError> {
        let plan = layers.validate().map_err(ChangeError::from)?;
        let store = Some(ServerStore::guarded(&plan.store, store)?);
        Ok(Self { layers, plan, store, sockets: Sockets::default() })
    }

    /// Uses these sockets instead of opening others. Their addresses must be those of the
    /// configuration, which are checked. They must be non-blocking.
    pub fn with_sockets(mut self, sockets: Sockets) -> Self {
        self.sockets = sockets;
        self
    }

    /// Returns the number of keys that fit into the memory of the store, if known.
    #[must_use]
    pub fn max_keys(&self) -> Option<usize> {
        self.store.as_ref().and_then(ServerStore::max_keys)
    }

    /// Opens the store and the listeners, and starts serving.
    ///
    /// # Errors
    /// If the store cannot be opened, an address cannot be bound, or a listener would accept
    /// unauthenticated requests from the network without that being configured. No listener is open
    /// then. An unreachable database is not an error: the environment, the file and the defaults
    /// apply until it is back.
    pub async fn open(mut self) -> Result<Running, StartError> {
        let listen = &self.plan.listen;
        for (listener, address) in configuration::listeners(listen.admin.value, listen.grpc.value) {
            check_listener(listener, address, &self.plan.admin).map_err(ChangeError::from)?;
        }
        let database = Database::from_config(&self.plan).map_err(ChangeError::from)?;
        let stored = match &database {
            Some(database) => self.load_stored(database).await,
            None => StoredSettings::default(),
        };
        for warning in &self.plan.warnings {
            tracing::warn!(%warning, "configuration warning");
        }
        let opened = match self.store.take() {
            Some(opened) => opened,
            None => store::open(&self.plan.store).await?,
        };
        let listeners = BoundListeners::bind(&self.plan, self.sockets).await?;
        let workers = Workers::start().map_err(StartError::Workers)?;
        let parts = Parts::new(&self.plan, &opened.engine, database)?;
        parts.metrics.set_store_source(opened.stats_source());
        let config = Arc::new(ActiveConfig::new(self.layers, self.plan, stored, parts)?);
        let saver = SnapshotSaver::for_store(&opened);
        Ok(listeners.open(config, workers, opened.guard).with_saver(saver))
    }

    /// Reads the settings in the database and uses them if they are valid. Returns what was read.
    async fn load_stored(&mut self, database: &Database) -> StoredSettings {
        if self.plan.database.auto_migrate.value {
            match database.migrate().await {
                Ok(migrated) => tracing::debug!(format = migrated.to, "database is ready"),
                Err(error) => tracing::error!(%error, "database migration failed"),
            }
        }
        let stored = match database.read().await {
            Ok(stored) => stored,
            Err(error) => {
                tracing::error!(
                    %error,
                    "cannot read the database; using environment, file and defaults"
                );
                return StoredSettings::default();
            }
        };
        let overrides = Overrides::from_iter(stored.settings.clone());
        let layers = self.layers.with_overrides(overrides);
        let checked = layers.validate().map_err(ChangeError::from).and_then(|plan| {
            Parts::check(&plan)?;
            Ok(plan)
        });
        match checked {
            Ok(plan) => (self.layers, self.plan) = (layers, plan),
            Err(error) => {
                for line in error.to_string().lines() {
                    tracing::error!(error = %line, "invalid settings in the database");
                }
                tracing::error!(
                    "ignoring settings in the database; using environment, file and defaults"
                );
            }
        }
        stored
    }
}

/// Bound listeners that do not accept connections yet.
struct BoundListeners {
    http: (TcpListener, SocketAddr),
    admin: (TcpListener, SocketAddr),
    grpc: (TcpListener, SocketAddr),
}

impl BoundListeners {
    async fn bind(plan: &Config, sockets: Sockets) -> Result<Self, StartError> {
        Ok(Self {
            http: sockets::bind("http", sockets.http, plan.listen.http.value).await?,
            admin: sockets::bind("admin", sockets.admin, plan.listen.admin.value).await?,
            grpc: sockets::bind("grpc", sockets.grpc, plan.listen.grpc.value).await?,
        })
    }

    /// Starts serving on the listeners, and watches the sources of the configuration.
    fn open(
        self,
        config: Arc<ActiveConfig>,
        workers: Workers,
        guarded: Option<GuardedStore>,
    ) -> Running {
        let Self { http, admin, grpc } = self;
        let (mut drain, mut admin_drain) = (Drain::new(), Drain::new());
        let stop = drain.signal();
        let hosts = config.current().plan.listen.allowed_hosts.value.clone();
        let bounds = Bounds::default();
        let health = {
            let (config, guarded, store) = (config.clone(), guarded.clone(), guarded.clone());
            Health::new(drain.signal(), move || {
                let current = config.current();
                guarded
                    .as_ref()
                    .map_or(0, |store| health::denying_limits(store, current.limits.limits()))
            })
            .with_store(store)
        };
        let http_api = HttpApi::new(config.clone(), HostCheck::new(http.1, hosts.clone()), bounds);
        let files = OpenFiles::default();
        drain.spawn(http_api.serve(http.0, workers, files.clone(), stop.clone()));
        let host_check = HostCheck::new(admin.1, hosts);
        let info = ServerInfo::new([("http", http.1), ("admin", admin.1), ("grpc", grpc.1)]);
        let admin_api = AdminApi { config: config.clone(), host_check, bounds, health, info };
        admin_drain.spawn(admin_api.serve(admin.0, files.clone(), admin_drain.signal()));
        drain.spawn(grpc::serve(config.clone(), grpc.0, files, stop.clone()));
        drain.spawn(watch::sources(config.clone(), guarded.clone(), stop));
        for (listener, address) in [("http", http.1), ("admin", admin.1), ("grpc", grpc.1)] {
            tracing::info!(listener, %address, "listening");
        }
        let (http, admin, grpc) = (http.1, admin.1, grpc.1);
        Running { http, admin, grpc, drain, admin_drain, guarded, config, saver: None }
    }
}

/// A running server.
#[derive(Debug)]
#[must_use = "dropping a running server stops it without waiting"]
pub struct Running {
    http: SocketAddr,
    admin: SocketAddr,
    grpc: SocketAddr,
    drain: Drain,
    /// Drain of the admin listener, which closes last so that it can report the shutdown of the
    /// others.
    admin_drain: Drain,
    guarded: Option<GuardedStore>,
    config: Arc<ActiveConfig>,
    /// Saves snapshots of the store, if configured.
    saver: Option<SnapshotSaver>,
}

impl Running {
    /// Starts saving snapshots.
    fn with_saver(mut self, saver: Option<SnapshotSaver>) -> Self {
        if let Some(saver) = &saver {
            self.drain.spawn(saver.clone().run(self.drain.signal()));
        }
        self.saver = saver;
        self
    }

    /// Returns the address that the HTTP listener is bound to.
    #[must_use]
    pub const fn http(&self) -> SocketAddr {
        self.http
    }

    /// Returns the address that the admin listener is bound to.
    #[must_use]
    pub const fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Returns the address that the gRPC listener is bound to.
    #[must_use]
    pub const fn grpc(&self) -> SocketAddr {
        self.grpc
    }

    /// Returns whether the shared store is currently in use; `None` if the store cannot fail.
    #[must_use]
    pub fn store_is_up(&self) -> Option<bool> {
        self.guarded.as_ref().map(GuardedStore::is_up)
    }

    /// Returns the guard's counters; `None` if the store cannot fail.
    #[must_use]
    pub fn store_stats(&self) -> Option<GuardStats> {
        self.guarded.as_ref().map(GuardedStore::stats)
    }

    /// Reloads the configuration file. If the file is invalid, the current configuration stays in
    /// effect and the error is logged.
    pub async fn reload(&self) {
        // `ActiveConfig::reload` logs the result.
        let _ = self.config.reload(&ChangeOrigin { door: "signal", who: None }).await;
    }

    /// Stops accepting connections, rejects calls that wait for a provider, and waits up to
    /// [`SHUTDOWN_GRACE`] for requests in flight. Then saves the in-process store, if configured.
    pub async fn shutdown(self) -> Drained {
        self.config.parts().gateway.drain();
        let drained = self.drain.drain(SHUTDOWN_GRACE).await;
        if let Some(saver) = self.saver {
            // The listeners are closed, so the snapshot is complete except for charges and refunds
            // of requests that were cut off.
            saver.save_final().await;
        }
        // Admin requests do not hold up the shutdown for long.
        self.admin_drain.drain(Duration::from_secs(1)).await;
        tracing::info!(?drained, "stopped");
        drained
    }
}
