//! Opens the configured store, behind a guard if it can fail.

use std::sync::Arc;
use std::time::Duration;

use tidegate::guard::{GuardBuilder, GuardedStore};
use tidegate::{Engine, MemoryStore, Store, StoreHandle};
use tidegate_config::{DurableUrl, StoreConfig, StoreUrl};
use tidegate_durable::DurableStore;
use tidegate_redis::RedisStore;

use super::StartError;
use super::snapshot::SnapshotFile;
use crate::metrics::StoreStats;

/// Timeout of a call to a Worker, which is not in the same network as this program.
const WORKER_TIMEOUT: Duration = Duration::from_secs(1);

/// An open store and what belongs to it.
#[derive(Debug)]
pub(super) struct ServerStore {
    /// The engine that all listeners use.
    pub(super) engine: Engine,
    /// The guard of a store that can fail.
    pub(super) guard: Option<GuardedStore>,
    /// The snapshot file, if configured.
    pub(super) snapshot: Option<Arc<SnapshotFile>>,
}

impl ServerStore {
    /// Wraps a store that cannot fail.
    pub(super) fn infallible(store: Arc<dyn Store>) -> Self {
        let engine = Engine::on(StoreHandle::shared(store));
        Self { engine, guard: None, snapshot: None }
    }

    /// Wraps a store that may fail in a guard with the configured failure rules.
    pub(super) fn guarded(plan: &StoreConfig, store: Arc<dyn Store>) -> Result<Self, StartError> {
        Self::behind(guard(plan, store))
    }

    fn behind(guard: GuardBuilder) -> Result<Self, StartError> {
        let guard = guard.build()?;
        Ok(Self { engine: Engine::on(guard.clone()), guard: Some(guard), snapshot: None })
    }

    /// Opens the in-process store, from its snapshot if one is configured.
    pub(super) fn memory(plan: &StoreConfig) -> Result<Self, StartError> {
        let builder = MemoryStore::builder()
            .max_memory(plan.max_memory.value.bytes())
            .overflow(plan.overflow.value);
        let (store, snapshot) = match &plan.snapshot.value {
            None => (builder.build()?, None),
            Some(path) => {
                let (store, file) = SnapshotFile::open(path, &builder)?;
                (store, Some(Arc::new(file)))
            }
        };
        Ok(Self { engine: Engine::on(store), guard: None, snapshot })
    }

    pub(super) fn max_keys(&self) -> Option<usize> {
        self.engine.store().local().map(|store| store.stats().max_keys)
    }

    /// Returns a function that reads the current statistics, for metrics.
    pub(super) fn stats_source(&self) -> impl Fn() -> StoreStats + Send + Sync + 'static {
        let Self { engine, guard, snapshot } = self;
        let (engine, guard, snapshot) = (engine.clone(), guard.clone(), snapshot.clone());
        move || {
            let memory = engine.store().local();
            StoreStats {
                store: if memory.is_some() { "memory" } else { "shared" },
                table: memory.map(MemoryStore::stats),
                snapshots: snapshot.as_ref().map(|file| file.stats()),
                guard: guard.as_ref().map(|store| (store.is_up(), store.stats())),
            }
        }
    }
}

/// Configures a guard with the failure rules of the configuration.
fn guard(plan: &StoreConfig, store: Arc<dyn Store>) -> GuardBuilder {
    GuardedStore::builder(store)
        .default_rule(plan.on_failure.value)
        .expected_nodes(plan.expected_nodes.value)
        .max_memory(plan.max_memory.value.bytes())
        .overflow(plan.overflow.value)
}

/// Opens the configured store, behind a guard if it can fail.
pub(super) async fn open(plan: &StoreConfig) -> Result<ServerStore, StartError> {
    match &plan.url.value {
        StoreUrl::Memory => ServerStore::memory(plan),
        StoreUrl::Redis(url) => {
            let store = RedisStore::builder(url.with_credentials()).open()?;
            // An unreachable server does not prevent the start: the failure rules apply until it is
            // back. The store itself logs why it cannot connect.
            if store.connected().await.is_ok() {
                tracing::info!(%url, "shared store is ready");
            }
            ServerStore::guarded(plan, Arc::new(store))
        }
        StoreUrl::Durable(url) => {
            let store = worker(plan, url)?;
            // An unreachable Worker does not prevent the start either.
            match store.probe().await {
                Ok(()) => tracing::info!(%url, "shared store is ready"),
                Err(error) => tracing::warn!(%url, %error, "shared store is not ready"),
            }
            ServerStore::behind(guard(plan, Arc::new(store)).timeout(WORKER_TIMEOUT))
        }
        _ => Err(StartError::UnknownStore),
    }
}

fn worker(plan: &StoreConfig, url: &DurableUrl) -> Result<DurableStore, StartError> {
    let builder = DurableStore::builder(url.as_str()).secret(url.secret());
    Ok(builder.shards(plan.shards.value).timeout(WORKER_TIMEOUT).build()?)
}
