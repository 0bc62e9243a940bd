//! A wall clock that a test sets, for another process.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::programs;

/// The wall clock of a process that is started with its [environment](Self::env): that of the
/// machine, stepped by the test. Its monotonic clock is not affected. It is libfaketime, which
/// answers the calls of the C library.
#[derive(Debug)]
pub struct WallClock {
    folder: TempDir,
    library: PathBuf,
}

impl WallClock {
    /// Creates a clock that shows the machine's time.
    ///
    /// # Panics
    /// If libfaketime is not installed, or no file can be written.
    #[must_use]
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("cannot create a temporary folder");
        let clock = Self { folder, library: programs::faketime() };
        clock.step(0);
        clock
    }

    /// Steps the clock to the machine's time plus this many seconds.
    ///
    /// # Panics
    /// If the file that the process reads cannot be written.
    pub fn step(&self, seconds: i64) {
        // Renamed into place, because the process may read it at any time.
        let new = self.folder.path().join("new");
        let written = fs::write(&new, format!("{seconds:+}\n"));
        written.and_then(|()| fs::rename(new, self.file())).expect("cannot step the clock");
    }

    /// The environment of the process.
    #[must_use]
    pub fn env(&self) -> Vec<(&'static str, String)> {
        let (file, library) = (self.file(), &self.library);
        vec![
            ("LD_PRELOAD", library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
            // Read at every call, not every ten seconds.
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            // The older and the newer name.
            ("DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("offset")
    }
}

impl Default for WallClock {
    fn default() -> Self {
        Self::new()
    }
}
