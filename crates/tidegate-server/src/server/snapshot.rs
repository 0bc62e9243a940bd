//! Snapshots of the in-process store: restored at start, saved every minute and at shutdown.
//!
//! A damaged snapshot is renamed and the store starts empty. A file that cannot be read, has
//! another format or was written by another version prevents the start and is not touched: it may
//! belong to another program. A failing save is logged once, and again when saving works again.

mod backup;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidegate::{Engine, MemoryStore, MemoryStoreBuilder};
use tidegate_memory::{Restored, SnapshotError};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::StartError;
use super::store::ServerStore;
use crate::listener::drain::StopSignal;
use crate::metrics::SnapshotStats;

/// Interval between snapshots, and so the most that a crash can lose.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);
/// How long the shutdown waits for the last snapshot. Together with
/// [`SHUTDOWN_GRACE`](crate::listener::drain::SHUTDOWN_GRACE) this is 30 seconds, the usual time
/// before a container is killed.
const FINAL_SAVE_TIMEOUT: Duration = Duration::from_secs(5);

/// A snapshot file and the counters of saves to it.
#[derive(Debug, Default)]
pub(super) struct SnapshotFile {
    path: PathBuf,
    saved: AtomicU64,
    failed: AtomicU64,
    /// Whether the last save failed, and that was logged.
    failing: AtomicBool,
}

impl SnapshotFile {
    /// Restores the store from a file. Creates an empty store if the file does not exist or is
    /// damaged.
    pub(super) fn open(
        path: &Path,
        builder: &MemoryStoreBuilder,
    ) -> Result<(MemoryStore, Self), StartError> {
        let file = Self { path: path.to_owned(), ..Self::default() };
        let why = match builder.clone().restore(path) {
            Ok((store, restored)) => {
                log_restored(path, restored)?;
                return Ok((store, file));
            }
            Err(SnapshotError::NotFound) => return Ok((builder.clone().build()?, file)),
            Err(SnapshotError::Store(error)) => return Err(error.into()),
            Err(why @ SnapshotError::Damaged { .. }) => why,
            // It may belong to another program or another version.
            Err(why) => return Err(file.start_error(why)),
        };
        let backup_path = backup::rename(path, ".damaged")?;
        tracing::warn!(file = %path.display(), backup = %backup_path.display(), error = %why,
            "damaged snapshot renamed; starting with an empty store");
        Ok((builder.clone().build()?, file))
    }

    fn start_error(&self, why: SnapshotError) -> StartError {
        StartError::Snapshot { path: self.path.display().to_string(), why }
    }

    pub(super) fn stats(&self) -> SnapshotStats {
        SnapshotStats {
            saved: self.saved.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }

    /// Saves the store. Logs when saving begins to fail and when it works again.
    fn save(&self, engine: &Engine) {
        let file = self.path.display();
        match engine.save(&self.path) {
            Ok(saved) => {
                self.saved.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(%file, keys = saved.keys, bytes = saved.bytes, "snapshot saved");
                if self.failing.swap(false, Ordering::Relaxed) {
                    tracing::info!(%file, "snapshot writes succeed again");
                }
            }
            Err(error) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                if !self.failing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%file, %error, "snapshot write failed; will retry");
                }
            }
        }
    }

    /// Waits for the last save, at most [`FINAL_SAVE_TIMEOUT`].
    async fn wait_for_final_save(&self, save: impl Future<Output = ()>) {
        if timeout(FINAL_SAVE_TIMEOUT, save).await.is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
            tracing::error!(file = %self.path.display(), timeout = ?FINAL_SAVE_TIMEOUT,
                "final snapshot timed out; changes since the previous one are lost");
        }
    }
}

/// Logs what was restored. Keeps a copy of the file if some keys did not fit, since the next
/// snapshot will not contain them.
fn log_restored(path: &Path, restored: Restored) -> Result<(), StartError> {
    let (file, Restored { keys, full, no_room, .. }) = (path.display(), restored);
    tracing::info!(%file, keys, full_buckets = full, "snapshot restored");
    if no_room > 0 {
        let backup_path = backup::copy(path, ".too-large")?;
        tracing::warn!(%file, dropped_keys = no_room, backup = %backup_path.display(),
            "snapshot exceeds store.max_memory; dropped keys and kept a copy");
    }
    Ok(())
}

/// Saves snapshots while the server runs. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct SnapshotSaver {
    engine: Engine,
    file: Arc<SnapshotFile>,
}

impl SnapshotSaver {
    /// Returns `None` if the store has no snapshot file.
    pub(super) fn for_store(opened: &ServerStore) -> Option<Self> {
        let file = opened.snapshot.clone()?;
        Some(Self { engine: opened.engine.clone(), file })
    }

    /// Saves immediately, so that an unusable path is logged at start, and then at intervals until
    /// the server stops.
    pub(super) async fn run(self, stop: StopSignal) {
        let mut ticks = interval(SAVE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // The signal ends the loop even during a save: the shutdown must not wait for the disk
            // here.
            tokio::select! {
                () = stop.clone().wait() => return,
                () = async {
                    ticks.tick().await;
                    self.save().await;
                } => {}
            }
        }
    }

    /// Saves the last snapshot, or gives up after [`FINAL_SAVE_TIMEOUT`].
    pub(super) async fn save_final(&self) {
        self.file.wait_for_final_save(self.save()).await;
    }

    /// Saves on a thread that may block on the disk.
    async fn save(&self) {
        let Self { engine, file } = self.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || file.save(&engine)).await {
            tracing::error!(%error, "snapshot task failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn shutdown_does_not_wait_forever_for_the_disk() {
        let (file, start) = (SnapshotFile::default(), tokio::time::Instant::now());
        file.wait_for_final_save(std::future::ready(())).await;
        assert_eq!(file.stats().failed, 0);
        file.wait_for_final_save(std::future::pending()).await;
        assert_eq!(start.elapsed(), FINAL_SAVE_TIMEOUT);
        assert_eq!(file.stats().failed, 1);
    }
}
