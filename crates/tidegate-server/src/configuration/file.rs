//! A file that is looked at once a second: whether it is another one, or has been written.
//!
//! Looking costs a system call, works on every file system and sees a swapped symbolic link as what
//! it is, another file; notifications of the system do neither everywhere. A change counts once the
//! file has looked the same twice, so that one that is being written is not read halfway.

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::time::{Interval, MissedTickBehavior, interval};

/// How often it is looked at.
const EVERY: Duration = Duration::from_secs(1);

/// What tells one state of a file from another.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Look {
    /// The file behind all links.
    real: PathBuf,
    length: u64,
    written: Option<SystemTime>,
    /// Another file may take its place with the length and the time of the one before.
    identity: Identity,
}

/// The device and the number of a file, and when either it or what is known of it was changed.
#[cfg(unix)]
type Identity = (u64, u64, i64, i64);
/// Other systems tell neither.
#[cfg(not(unix))]
type Identity = ();

/// Watches a file.
#[derive(Debug)]
pub(crate) struct FileWatch {
    path: PathBuf,
    ticks: Interval,
    /// What was read last.
    known: Option<Look>,
    /// What was seen last.
    seen: Option<Look>,
}

impl FileWatch {
    /// Watches a file that was read a while ago. It may have been written since, so what is seen
    /// first counts as a change.
    pub(crate) fn new(path: &Path) -> Self {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { path: path.to_owned(), ticks, known: None, seen: None }
    }

    /// Resolves when the file has changed, and is there.
    pub(crate) async fn changed(&mut self) {
        loop {
            self.ticks.tick().await;
            let path = self.path.clone();
            // A file may be on a disk that takes its time.
            let now = tokio::task::spawn_blocking(move || look(&path)).await.unwrap_or_default();
            let settled = now == self.seen;
            self.seen = now.clone();
            if settled && now.is_some() && now != self.known {
                self.known = now;
                return;
            }
        }
    }
}

/// How the file looks; `None` if it is not there.
fn look(path: &Path) -> Option<Look> {
    let real = fs::canonicalize(path).ok()?;
    let metadata = fs::metadata(&real).ok()?;
    let (length, written) = (metadata.len(), metadata.modified().ok());
    Some(Look { real, length, written, identity: identity(&metadata) })
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
    async fn a_written_file_and_a_swapped_link_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        let link = folder.path().join("link");
        fs::write(&one, "a").unwrap();
        fs::write(&two, "b").unwrap();
        std::os::unix::fs::symlink(&one, &link).unwrap();
        let mut watch = FileWatch::new(&link);
        // Nobody knows what was in it when it was read.
        watch.changed().await;
        let quiet = tokio::time::timeout(Duration::from_secs(60), watch.changed()).await;
        assert!(quiet.is_err(), "nothing has changed");
        fs::write(&one, "longer").unwrap();
        watch.changed().await;
        // As Kubernetes does: a new link takes the place of the old one.
        let next = folder.path().join("next");
        std::os::unix::fs::symlink(&two, &next).unwrap();
        fs::rename(&next, &link).unwrap();
        watch.changed().await;
        fs::remove_file(&link).unwrap();
        let gone = tokio::time::timeout(Duration::from_secs(60), watch.changed()).await;
        assert!(gone.is_err(), "a file that is gone is no change to read");
    }

    /// As `cp -p` and `mv` do it, and tools that set times to keep builds the same.
    #[tokio::test(start_paused = true)]
    async fn another_file_of_the_same_length_and_time_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("one"), folder.path().join("two"));
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
        assert!(seen.is_ok(), "another file in its place");
        rewrite(&path, "rate = 3");
        let seen = tokio::time::timeout(Duration::from_secs(60), watch.changed()).await;
        assert!(seen.is_ok(), "another text in it");
    }
}
