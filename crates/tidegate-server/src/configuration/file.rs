//! Watches a file by polling its metadata once a second.
//!
//! Polling is cheap, works on every file system and detects swapped symbolic links; system
//! notifications do not do that everywhere. A change is reported once two polls in a row see the
//! same state, so that a file is not read while it is being written.

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::time::{Interval, MissedTickBehavior, interval};

/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Metadata that distinguishes one state of a file from another.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileState {
    /// The path with all symbolic links resolved.
    real_path: PathBuf,
    length: u64,
    written: Option<SystemTime>,
    /// Distinguishes a replacement with equal length and modification time.
    identity: Identity,
}

/// Device, inode and change time.
#[cfg(unix)]
type Identity = (u64, u64, i64, i64);
/// Not available on other systems.
#[cfg(not(unix))]
type Identity = ();

/// Watches one file.
#[derive(Debug)]
pub(crate) struct FileWatch {
    path: PathBuf,
    ticks: Interval,
    /// The state last reported as a change.
    reported: Option<FileState>,
    /// The state seen by the last poll.
    seen: Option<FileState>,
}

impl FileWatch {
    /// Starts watching. The file may have been written since it was read, so the first state seen
    /// counts as a change.
    pub(crate) fn new(path: &Path) -> Self {
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { path: path.to_owned(), ticks, reported: None, seen: None }
    }

    /// Waits until the file has changed and exists.
    pub(crate) async fn changed(&mut self) {
        loop {
            self.ticks.tick().await;
            let path = self.path.clone();
            // File system calls may block, for example on a network file system.
            let now =
                tokio::task::spawn_blocking(move || file_state(&path)).await.unwrap_or_default();
            let settled = now == self.seen;
            self.seen = now.clone();
            if settled && now.is_some() && now != self.reported {
                self.reported = now;
                return;
            }
        }
    }
}

/// Returns the current state; `None` if the file does not exist.
fn file_state(path: &Path) -> Option<FileState> {
    let real_path = fs::canonicalize(path).ok()?;
    let metadata = fs::metadata(&real_path).ok()?;
    let (length, written) = (metadata.len(), metadata.modified().ok());
    Some(FileState { real_path, length, written, identity: identity(&metadata) })
}

#[cfg(unix)]
fn identity(metadata: &Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt as _;
    (metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec())
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> Identity {}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn written_files_and_swapped_links_are_detected() {
        let directory = tempfile::tempdir().unwrap();
        let (one, two) = (directory.path().join("one"), directory.path().join("two"));
        let link = directory.path().join("link");
        fs::write(&one, "a").unwrap();
        fs::write(&two, "b").unwrap();
        std::os::unix::fs::symlink(&one, &link).unwrap();
        let mut watch = FileWatch::new(&link);
        // The first state always counts as a change.
        watch.changed().await;
        let quiet = tokio::time::timeout(Duration::from_secs(60), watch.changed()).await;
        assert!(quiet.is_err(), "nothing has changed");
        fs::write(&one, "longer").unwrap();
        watch.changed().await;
        // Kubernetes replaces a mounted file by swapping a symbolic link.
        let next = directory.path().join("next");
        std::os::unix::fs::symlink(&two, &next).unwrap();
        fs::rename(&next, &link).unwrap();
        watch.changed().await;
        fs::remove_file(&link).unwrap();
        let gone = tokio::time::timeout(Duration::from_secs(60), watch.changed()).await;
        assert!(gone.is_err(), "a missing file is not a change");
    }

    /// This happens with `cp -p` and `mv`, and with tools that set fixed times for reproducible
    /// builds.
    #[tokio::test(start_paused = true)]
    async fn a_replacement_with_equal_length_and_time_is_detected() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("one"), directory.path().join("two"));
        fs::write(&path, "rate = 1").unwrap();
        let mut watch = FileWatch::new(&path);
        watch.changed().await;
        let written = fs::metadata(&path).unwrap().modified().unwrap();
        let rewrite = |path: &Path, text: &str| {
            fs::write(path, text).unwrap();
            fs::File::options().write(true).open(path).unwrap().set_modified(written).unwrap();
        };
        rewrite(&other, "rate = 2");
        fs::rename(&other, &path).unwrap();
        let seen = tokio::time::timeout(Duration::from_secs(60), watch.changed()).await;
        assert!(seen.is_ok(), "replaced by another file");
        rewrite(&path, "rate = 3");
        let seen = tokio::time::timeout(Duration::from_secs(60), watch.changed()).await;
        assert!(seen.is_ok(), "rewritten with another text");
    }
}
