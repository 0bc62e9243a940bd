//! What is logged while a test runs.

use std::io;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Level};

/// Hears everything and says nothing. While there is only one listener, a place that logs for the
/// first time asks just the thread that it is on whether anybody listens, and remembers the answer;
/// so tests on other threads could silence it.
static SECOND_LISTENER: LazyLock<Dispatch> = LazyLock::new(|| {
    tracing_subscriber::fmt().with_max_level(Level::TRACE).with_writer(io::sink).finish().into()
});

/// The lines that are logged on this thread.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Hears everything from the level of information up, until the guard is dropped.
    pub(crate) fn listen(&self) -> DefaultGuard {
        self.listen_from(Level::INFO)
    }

    /// The same from another level up.
    pub(crate) fn listen_from(&self, level: Level) -> DefaultGuard {
        LazyLock::force(&SECOND_LISTENER);
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

    /// The lines since the last time.
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
