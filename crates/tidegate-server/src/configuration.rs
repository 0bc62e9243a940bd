//! The configuration in force: one snapshot that every request reads, and the one place that puts
//! another in its place.
//!
//! A change comes from the admin API, the gRPC API, the file, a signal or another node. It is
//! resolved with all other layers, prepared whole, written to the database if there is one, and then
//! applied as it was prepared: the snapshot of the limits, the rules of admission, the providers of
//! the gateway, the tokens of the admin API. If any of it cannot be used nothing of it is, and the
//! configuration of before stays. Changes are made one after the other; readers wait for none.
//!
//! What the database holds and what is in force can differ: another node, or another version, may
//! have written what is of no use here. Then it is remembered, so that the next change is made to
//! it, and may be the one that mends it.

mod applied;
mod audit;
mod change;
mod error;
mod file;
pub(crate) mod limits;
mod parts;
mod provider_figures;
mod providers;

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tidegate_config::{Effective, Layers, Plan, Source};
use tokio::sync::Mutex;

use crate::database::{Audit, DatabaseError, Stored};

pub(crate) use applied::Applied;
pub use error::ChangeError;
pub(crate) use file::FileWatch;
use limits::ConfiguredLimits;
pub(crate) use parts::Parts;

/// What holds at one moment. It never changes; another configuration is another one.
#[derive(Clone, Debug)]
pub(crate) struct Current {
    /// How often settings were changed at run time: by the count of the database, if there is one.
    pub(crate) revision: u64,
    pub(crate) plan: Arc<Plan>,
    /// Every value in force, and which layer it comes from.
    pub(crate) effective: Arc<Vec<Effective>>,
    pub(crate) limits: Arc<ConfiguredLimits>,
}

/// What the configuration is made of.
#[derive(Debug)]
struct Sources {
    /// The layers in force.
    layers: Layers,
    /// What the database holds, as far as is known.
    stored: Stored,
}

/// How the server was started, which no change at run time changes.
#[derive(Debug)]
struct Started {
    plan: Arc<Plan>,
    effective: Arc<Vec<Effective>>,
}

/// The configuration in force.
#[derive(Debug)]
pub(crate) struct ActiveConfig {
    current: ArcSwap<Current>,
    /// Whoever holds the lock is changing it.
    sources: Mutex<Sources>,
    started: Started,
    parts: Parts,
}

impl ActiveConfig {
    /// The configuration that the parts were made by, and what the database held then.
    ///
    /// # Errors
    /// When the engine has one of its limits already, and cannot change it.
    pub(crate) fn new(
        layers: Layers,
        plan: Plan,
        stored: Stored,
        parts: Parts,
    ) -> Result<Self, ChangeError> {
        let limits = parts.register(&plan.limits)?;
        parts.metrics.revised(stored.revision);
        let (plan, effective) = (Arc::new(plan), Arc::new(layers.effective()));
        let started = Started { plan: plan.clone(), effective: effective.clone() };
        let (revision, limits) = (stored.revision, Arc::new(limits));
        let current = Current { revision, plan, effective, limits };
        let sources = Mutex::new(Sources { layers, stored });
        Ok(Self { current: ArcSwap::from_pointee(current), sources, started, parts })
    }

    /// The configuration of this moment.
    pub(crate) fn current(&self) -> arc_swap::Guard<Arc<Current>> {
        self.current.load()
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// What keeps changes: the database, or this process alone.
    pub(crate) const fn kept_by(&self) -> Source {
        match self.parts.database {
            Some(_) => Source::Database,
            None => Source::Runtime,
        }
    }

    /// The latest changes, the newest first, at most so many; none without a database.
    pub(crate) async fn history(&self, most: usize) -> Result<Vec<Audit>, DatabaseError> {
        match &self.parts.database {
            Some(database) => database.history(most).await,
            None => Ok(Vec::new()),
        }
    }
}

/// The listeners by which the configuration is changed.
pub(crate) fn listeners(admin: SocketAddr, grpc: SocketAddr) -> [(&'static str, SocketAddr); 2] {
    [("admin", admin), ("grpc", grpc)]
}

/// A configuration of this text on an in-process store, for tests.
#[cfg(any(test, feature = "fuzzing"))]
#[allow(clippy::unwrap_used, reason = "tests bring a text that is a configuration")]
pub(crate) fn of_text(
    text: &str,
    stored: Stored,
    database: Option<crate::database::Database>,
) -> Arc<ActiveConfig> {
    let layers = tidegate_config::Loader::default().text_layers("test", text);
    let plan = layers.plan().unwrap();
    let parts = Parts::new(&plan, &tidegate::Engine::new(), database).unwrap();
    Arc::new(ActiveConfig::new(layers, plan, stored, parts).unwrap())
}
