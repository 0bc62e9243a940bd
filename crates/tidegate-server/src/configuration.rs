//! The active configuration: a snapshot that every request reads, and the only code that replaces
//! it.
//!
//! A change comes from the admin API, the gRPC API, the file, a signal or another node. It is
//! resolved with all other layers, prepared completely, written to the database if there is one,
//! and then applied: limits, admission rules, gateway providers and admin tokens. If any part is
//! invalid, nothing is applied and the current configuration stays in effect. Changes are
//! serialized; readers never wait.
//!
//! The database can differ from the active configuration, because another node or another version
//! may have written settings that are invalid here. They are kept in `Sources`, so that the next
//! change is based on them and can correct them.

mod applied;
mod audit;
mod change;
mod error;
mod file;
pub(crate) mod limits;
mod parts;
mod provider_stats;
mod providers;

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tidegate_config::{Config, EffectiveSetting, Layers, Source};
use tokio::sync::Mutex;

use crate::database::{AuditEntry, DatabaseError, StoredSettings};

pub(crate) use applied::Applied;
pub use error::ChangeError;
pub(crate) use file::FileWatch;
use limits::ConfiguredLimits;
pub(crate) use parts::Parts;

/// An immutable snapshot of the active configuration.
#[derive(Clone, Debug)]
pub(crate) struct ConfigSnapshot {
    /// Number of changes made at run time; the revision of the database, if there is one.
    pub(crate) revision: u64,
    pub(crate) plan: Arc<Config>,
    /// Every effective value, with the layer it comes from.
    pub(crate) effective: Arc<Vec<EffectiveSetting>>,
    pub(crate) limits: Arc<ConfiguredLimits>,
}

/// What the configuration is resolved from.
#[derive(Debug)]
struct Sources {
    /// The active layers.
    layers: Layers,
    /// The last known content of the database.
    stored: StoredSettings,
}

/// The configuration at start, for settings that need a restart.
#[derive(Debug)]
struct StartupConfig {
    plan: Arc<Config>,
    effective: Arc<Vec<EffectiveSetting>>,
}

/// The active configuration, and the parts of the server that follow it.
#[derive(Debug)]
pub(crate) struct ActiveConfig {
    current: ArcSwap<ConfigSnapshot>,
    /// Locked for the duration of a change.
    sources: Mutex<Sources>,
    started: StartupConfig,
    parts: Parts,
}

impl ActiveConfig {
    /// Creates the configuration that `parts` were built from. `stored` is the content of the
    /// database.
    ///
    /// # Errors
    /// If the engine already has one of the limits and cannot change it.
    pub(crate) fn new(
        layers: Layers,
        plan: Config,
        stored: StoredSettings,
        parts: Parts,
    ) -> Result<Self, ChangeError> {
        let limits = parts.register(&plan.limits)?;
        parts.metrics.set_revision(stored.revision);
        let (plan, effective) = (Arc::new(plan), Arc::new(layers.effective()));
        let started = StartupConfig { plan: plan.clone(), effective: effective.clone() };
        let (revision, limits) = (stored.revision, Arc::new(limits));
        let current = ConfigSnapshot { revision, plan, effective, limits };
        let sources = Mutex::new(Sources { layers, stored });
        Ok(Self { current: ArcSwap::from_pointee(current), sources, started, parts })
    }

    /// Returns the current snapshot.
    pub(crate) fn current(&self) -> arc_swap::Guard<Arc<ConfigSnapshot>> {
        self.current.load()
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Returns where changes are stored: in the database, or only in this process.
    pub(crate) const fn change_source(&self) -> Source {
        match self.parts.database {
            Some(_) => Source::Database,
            None => Source::Runtime,
        }
    }

    /// Returns up to `most` changes, newest first. Empty without a database.
    pub(crate) async fn history(&self, most: usize) -> Result<Vec<AuditEntry>, DatabaseError> {
        match &self.parts.database {
            Some(database) => database.history(most).await,
            None => Ok(Vec::new()),
        }
    }
}

/// Returns the listeners through which the configuration can be changed.
pub(crate) fn listeners(admin: SocketAddr, grpc: SocketAddr) -> [(&'static str, SocketAddr); 2] {
    [("admin", admin), ("grpc", grpc)]
}

/// Creates a configuration from text on an in-process store, for tests.
#[cfg(any(test, feature = "fuzzing"))]
#[allow(clippy::unwrap_used, reason = "tests pass a valid configuration")]
pub(crate) fn from_text(
    text: &str,
    stored: StoredSettings,
    database: Option<crate::database::Database>,
) -> Arc<ActiveConfig> {
    let layers = tidegate_config::Loader::default().text_layers("test", text);
    let plan = layers.validate().unwrap();
    let parts = Parts::new(&plan, &tidegate::Engine::new(), database).unwrap();
    Arc::new(ActiveConfig::new(layers, plan, stored, parts).unwrap())
}
