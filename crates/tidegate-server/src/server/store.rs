//! Stores: opened as a plan says, and behind a guard if they can fail.

use std::sync::Arc;

use tidegate::guard::Guarded;
use tidegate::{Engine, MemoryStore, Store, StoreHandle};
use tidegate_config::{StorePlan, StoreUrl};
use tidegate_redis::RedisStore;

use super::StartError;
use super::snapshot::SnapshotFile;
use crate::metrics::StoreFigures;

/// A store that is open.
#[derive(Debug)]
pub(super) enum Opened {
    /// The in-process one, and the file that it is saved to.
    Memory(Arc<MemoryStore>, Option<Arc<SnapshotFile>>),
    /// Another one that always answers.
    Sure(Arc<dyn Store>),
    /// One that may fail, and so is behind a guard.
    Guarded(Guarded),
}

impl Opened {
    pub(super) fn max_keys(&self) -> Option<usize> {
        match self {
            Self::Memory(store, _) => Some(store.stats().max_keys),
            _ => None,
        }
    }

    /// An engine on it, and its guard if it has one.
    pub(super) fn engine(&self) -> (Engine, Option<Guarded>) {
        match self {
            Self::Memory(store, _) => (Engine::on(store.clone()), None),
            Self::Sure(store) => (Engine::on(StoreHandle::shared(store.clone())), None),
            Self::Guarded(guarded) => (Engine::on(guarded.clone()), Some(guarded.clone())),
        }
    }

    /// Asks how it stands, for metrics.
    pub(super) fn figures(&self) -> impl Fn() -> StoreFigures + Send + Sync + 'static {
        let (memory, file, guarded) = match self {
            Self::Memory(store, file) => (Some(store.clone()), file.clone(), None),
            Self::Sure(_) => (None, None, None),
            Self::Guarded(guarded) => (None, None, Some(guarded.clone())),
        };
        let store = if memory.is_some() { "memory" } else { "shared" };
        move || StoreFigures {
            store,
            table: memory.as_ref().map(|store| store.stats()),
            snapshots: file.as_ref().map(|file| file.figures()),
            guard: guarded.as_ref().map(|store| (store.state(), store.stats())),
        }
    }
}

/// Opens the store that a plan names. One that can fail is put behind a guard.
pub(super) async fn open(plan: &StorePlan) -> Result<Opened, StartError> {
    match &plan.url.value {
        StoreUrl::Memory => open_memory(plan),
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

pub(super) fn open_memory(plan: &StorePlan) -> Result<Opened, StartError> {
    let builder = MemoryStore::builder()
        .max_memory(plan.max_memory.value.bytes())
        .overflow(plan.overflow.value);
    let Some(path) = &plan.snapshot.value else {
        return Ok(Opened::Memory(Arc::new(builder.build()?), None));
    };
    let (store, file) = SnapshotFile::open(path, &builder)?;
    Ok(Opened::Memory(Arc::new(store), Some(Arc::new(file))))
}

/// A guard around a store, with the failure rules of a plan.
pub(super) fn guarded(plan: &StorePlan, store: Arc<dyn Store>) -> Result<Opened, StartError> {
    let guard = Guarded::builder(store)
        .default_rule(plan.on_failure.value)
        .expected_nodes(plan.expected_nodes.value)
        .max_memory(plan.max_memory.value.bytes())
        .overflow(plan.overflow.value);
    Ok(Opened::Guarded(guard.build()?))
}
