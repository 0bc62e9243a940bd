//! The in-process store in a file: read at the start, written every minute and at the end.
//!
//! A damaged file is no reason not to start. It is put aside, so that nothing is lost, and the
//! store begins anew. A file that cannot be read, or is something else or of another version, is
//! one: it may be somebody else's, and is not moved. A file that cannot be written is told of
//! once, until it can be.

mod aside;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidegate::{Engine, MemoryStore, MemoryStoreBuilder};
use tidegate_memory::{Restored, SnapshotError};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::StartError;
use super::store::ServerStore;
use crate::listener::drain::Stop;
use crate::metrics::SnapshotFigures;

/// How often the store is saved: what a crash can lose.
const EVERY: Duration = Duration::from_secs(60);
/// How long the end may wait for the disk. With [`GRACE`](crate::listener::drain::GRACE) this is as long as
/// those who run containers wait before they kill.
const LAST: Duration = Duration::from_secs(5);

/// The file that a store is saved to, and how that went.
#[derive(Debug, Default)]
pub(super) struct SnapshotFile {
    path: PathBuf,
    saved: AtomicU64,
    failed: AtomicU64,
    /// It failed the last time, and was told of.
    failing: AtomicBool,
}

impl SnapshotFile {
    /// The store in a file, or a new one if there is none or it is damaged.
    pub(super) fn open(
        path: &Path,
        builder: &MemoryStoreBuilder,
    ) -> Result<(MemoryStore, Self), StartError> {
        let file = Self { path: path.to_owned(), ..Self::default() };
        let why = match builder.clone().restore(path) {
            Ok((store, restored)) => {
                tell(path, restored)?;
                return Ok((store, file));
            }
            Err(SnapshotError::NotFound) => return Ok((builder.clone().build()?, file)),
            Err(SnapshotError::Store(error)) => return Err(error.into()),
            Err(why @ SnapshotError::Damaged { .. }) => why,
            // It may not be ours, or it may be of use to another version.
            Err(why) => return Err(file.refused(why)),
        };
        let aside = aside::moved(path, ".damaged")?;
        tracing::warn!(file = %path.display(), aside = %aside.display(), %why,
            "the snapshot is put aside: all limits start anew");
        Ok((builder.clone().build()?, file))
    }

    fn refused(&self, why: SnapshotError) -> StartError {
        StartError::Snapshot { path: self.path.display().to_string(), why }
    }

    pub(super) fn figures(&self) -> SnapshotFigures {
        SnapshotFigures {
            saved: self.saved.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }

    /// Saves a store, and tells when that begins or ceases to fail.
    fn save(&self, engine: &Engine) {
        let file = self.path.display();
        match engine.save(&self.path) {
            Ok(saved) => {
                self.saved.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(%file, keys = saved.keys, bytes = saved.bytes, "the store is saved");
                if self.failing.swap(false, Ordering::Relaxed) {
                    tracing::info!(%file, "the store is saved again");
                }
            }
            Err(error) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                if !self.failing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%file, %error, "the store cannot be saved; it is tried again");
                }
            }
        }
    }

    /// Waits for the last time that a store is saved, but not for ever.
    async fn wait_for(&self, saving: impl Future<Output = ()>) {
        if timeout(LAST, saving).await.is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
            tracing::error!(file = %self.path.display(), waited = ?LAST,
                "the store is not saved in time: what was spent since the last time is lost");
        }
    }
}

/// Tells what was restored. What there was no room for is kept, since the next snapshot is without
/// it.
fn tell(path: &Path, restored: Restored) -> Result<(), StartError> {
    let (file, Restored { keys, full, no_room, .. }) = (path.display(), restored);
    tracing::info!(%file, keys, full, "the store goes on with its snapshot");
    if no_room > 0 {
        let aside = aside::copied(path, ".too-large")?;
        tracing::warn!(%file, no_room, aside = %aside.display(),
            "store.max_memory is too small for the snapshot: keys start anew; a copy is kept");
    }
    Ok(())
}

/// Saves a store while a server runs. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Keeper {
    engine: Engine,
    file: Arc<SnapshotFile>,
}

impl Keeper {
    /// That of a store that is to be saved.
    pub(super) fn of(opened: &ServerStore) -> Option<Self> {
        let file = opened.snapshot.clone()?;
        Some(Self { engine: opened.engine.clone(), file })
    }

    /// Saves at once, so that a path that is of no use is told of at the start, and then from time
    /// to time until told to stop.
    pub(super) async fn run(self, stop: Stop) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // Also while it is being saved: nobody who stops waits for the disk here.
            tokio::select! {
                () = stop.clone().told() => return,
                () = async {
                    ticks.tick().await;
                    self.save().await;
                } => {}
            }
        }
    }

    /// Saves for the last time, or gives up after a while.
    pub(super) async fn save_last(&self) {
        self.file.wait_for(self.save()).await;
    }

    /// Saves now, on a thread that may wait for the disk.
    async fn save(&self) {
        let Self { engine, file } = self.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || file.save(&engine)).await {
            tracing::error!(%error, "the store was not saved");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_does_not_answer_does_not_keep_the_server_from_stopping() {
        let (file, begun) = (SnapshotFile::default(), tokio::time::Instant::now());
        file.wait_for(std::future::ready(())).await;
        assert_eq!(file.figures().failed, 0);
        file.wait_for(std::future::pending()).await;
        assert_eq!(begun.elapsed(), LAST);
        assert_eq!(file.figures().failed, 1);
    }
}
