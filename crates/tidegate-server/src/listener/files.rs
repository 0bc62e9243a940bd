//! Signals that file descriptors have run out, so that every listener closes idle connections.

use std::sync::Arc;

use tokio::sync::watch;

/// Notifies all listeners. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenFiles(Arc<watch::Sender<()>>);

impl OpenFiles {
    /// Reports that a connection could not be accepted for lack of a file descriptor.
    pub(crate) fn report_exhausted(&self) {
        self.0.send_replace(());
    }

    /// Returns a receiver that changes with each report.
    pub(super) fn watch(&self) -> watch::Receiver<()> {
        self.0.subscribe()
    }
}
