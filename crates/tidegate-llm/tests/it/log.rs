//! Captures log lines in tests.

use std::io;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Level};

/// A second subscriber that discards everything. With only one subscriber, `tracing` caches the
/// interest of a callsite from the first thread that reaches it, so a test on another thread could
/// disable it.
static SECOND_SUBSCRIBER: LazyLock<Dispatch> = LazyLock::new(|| {
    tracing_subscriber::fmt().with_max_level(Level::TRACE).with_writer(io::sink).finish().into()
});

/// Lines logged on this thread.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Captures lines at level info and above until the guard is dropped.
    pub(crate) fn listen(&self) -> DefaultGuard {
        self.listen_from(Level::INFO)
    }

    /// Captures lines at `level` and above until the guard is dropped.
    pub(crate) fn listen_from(&self, level: Level) -> DefaultGuard {
        LazyLock::force(&SECOND_SUBSCRIBER);
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .without_time()
            .with_target(false)
            .with_ansi(false)
            .with_writer(move || log.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    /// Returns the lines since the last call.
    pub(crate) fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap();
        text.lines().map(|line| line.trim().to_owned()).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
