//! Log lines of a layer: throttled, and without keys.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::time::Duration;

use tidegate::StoreError;
use tidegate_core::WallTime;

use crate::throttled_log::ThrottledLog;

/// Minimum time between two lines about the store.
const STORE_LOG_INTERVAL: Duration = Duration::from_secs(5);

/// Throttles and writes the log lines of a layer.
#[derive(Debug)]
pub(super) struct LayerLog {
    store: ThrottledLog,
    no_peer: Once,
    no_runtime: Once,
    panicked: Once,
}

impl Default for LayerLog {
    fn default() -> Self {
        Self {
            store: ThrottledLog::every(STORE_LOG_INTERVAL),
            no_peer: Once::new(),
            no_runtime: Once::new(),
            panicked: Once::new(),
        }
    }
}

impl LayerLog {
    /// Logs that a request could not be decided.
    pub(super) fn not_decided(&self, wall: WallTime, error: &StoreError) {
        if let Some(suppressed) = self.store.due(wall) {
            tracing::error!(
                error = error as &dyn std::error::Error,
                suppressed,
                "rate limit check failed"
            );
        }
    }

    /// Logs that a cost could not be settled, or a slot not released.
    pub(super) fn not_settled(&self, wall: WallTime, error: &StoreError) {
        if let Some(suppressed) = self.store.due(wall) {
            tracing::error!(
                error = error as &dyn std::error::Error,
                suppressed,
                "settlement failed"
            );
        }
    }

    /// Logs that the server does not record peer addresses.
    pub(super) fn no_peer(&self) {
        self.no_peer.call_once(|| {
            tracing::error!(
                "peer address unknown; refusing requests without a key with status 500; with \
                 axum, serve the router with into_make_service_with_connect_info::<SocketAddr>(); \
                 with another server, put a PeerAddr into the extensions of each request"
            );
        });
    }

    /// Logs that a settlement on a shared store has no runtime to run in.
    pub(super) fn no_runtime(&self) {
        self.no_runtime.call_once(|| {
            tracing::error!("request ended outside a tokio runtime; charge not settled");
        });
    }

    /// Calls a function of the application and returns `None` if it panics: a panic must not
    /// prevent settlements and releases. The panic message is not logged, because it may contain
    /// personal data.
    pub(super) fn catch_panic<T>(&self, call: impl FnOnce() -> T) -> Option<T> {
        let result = catch_unwind(AssertUnwindSafe(call)).ok();
        if result.is_none() {
            self.panicked.call_once(|| {
                tracing::error!("callback passed to the layer panicked; ignoring its result");
            });
        }
        result
    }
}
