//! Saving buckets to a file. The store has the buckets, the engine has the names.

use std::path::Path;

use tidegate_memory::{Saved, SnapshotError};

use super::Engine;

impl Engine {
    /// Saves the buckets of the store and the named limits to a file; see
    /// [`MemoryStore::save`](crate::MemoryStore::save).
    ///
    /// ```
    /// use tidegate::{Engine, MemoryStore, Policy};
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("buckets");
    /// let policy = Policy::per_minute(1).capacity(5).build()?;
    /// let engine = Engine::new();
    /// let _ = engine.limiter("client", policy)?.take("alice").cost(4).now()?;
    /// engine.save(&path)?;
    ///
    /// // The next process.
    /// let (store, _) = MemoryStore::builder().restore(&path)?;
    /// let client = Engine::on(store).limiter("client", policy)?;
    /// assert_eq!(client.take("alice").now()?.remaining(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the file cannot be written, or the store is shared. An existing file is kept.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<Saved, SnapshotError> {
        let store = self.store().local().ok_or(SnapshotError::SharedStore)?;
        store.save(path, &self.limits())
    }
}
