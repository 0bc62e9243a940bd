//! Open files, of which a process has a bounded number: when they run out, every listener closes
//! connections that wait for their callers.

use std::sync::Arc;

use tokio::sync::watch;

/// Tells all listeners that files have run out. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenFiles(Arc<watch::Sender<()>>);

impl OpenFiles {
    /// A connection could not be accepted for want of a file.
    pub(crate) fn ran_out(&self) {
        self.0.send_replace(());
    }

    /// What a listener hears it by.
    pub(super) fn watch(&self) -> watch::Receiver<()> {
        self.0.subscribe()
    }
}
