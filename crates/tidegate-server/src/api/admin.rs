//! The admin API: shows and changes the configuration, and reports what the server does.
//!
//! | path | |
//! | --- | --- |
//! | `GET /config` | a summary without authentication: providers and limits |
//! | `GET /admin/config` | every value, its source and the values it shadows |
//! | `PATCH`, `POST /admin/config` | changes settings, all or none |
//! | `POST /admin/keys/peek`, `hold`, `reset`, `settle` | manual operations on a key |
//! | `GET /admin/history` | the audit trail of changes |
//! | `GET /admin/events` | events, as server-sent events |
//! | `GET /admin/providers`, `/admin/providers/NAME` | limits, remaining amounts and queues of
//! providers |
//! | `GET /metrics` | metrics for Prometheus |
//! | `GET /openapi.json` | the OpenAPI document of this API |
//! | `GET /healthz`, `/readyz` | liveness and readiness |
//!
//! The API keeps no configuration of its own; [`ActiveConfig`] does. It shows neither tokens nor
//! keys.

mod concurrency;
mod config;
mod etag;
mod event_stream;
mod keys;
mod problem;
mod providers;
mod route;
mod server_info;
#[cfg(test)]
mod tests;
mod watcher_slots;

use std::sync::Arc;

use axum::Router;
use tidegate_http::host::HostCheck;
use tokio::net::TcpListener;

use super::health::Health;
use crate::configuration::{ActiveConfig, Parts};
use crate::listener::accept_loop::AcceptSettings;
use crate::listener::bounds::Bounds;
use crate::listener::drain::StopSignal;
use crate::listener::files::OpenFiles;
use crate::listener::workers::Workers;
use crate::listener::{accept_loop, connection};
pub(crate) use server_info::ServerInfo;
use watcher_slots::WatcherSlots;

/// Maximum number of event watchers.
const MAX_WATCHERS: usize = 64;

/// Shared state of all requests.
pub(crate) struct AdminApi {
    pub(crate) config: Arc<ActiveConfig>,
    pub(crate) host_check: HostCheck,
    pub(crate) bounds: Bounds,
    pub(crate) health: Health,
    pub(crate) info: ServerInfo,
}

/// The API while it is being served.
struct AdminState {
    api: AdminApi,
    stop: StopSignal,
    /// Limits the number of event watchers.
    slots: WatcherSlots,
}

impl AdminState {
    fn parts(&self) -> &Parts {
        self.api.config.parts()
    }
}

impl AdminApi {
    /// Returns the router of all paths.
    pub(crate) fn router(self, stop: StopSignal) -> Router {
        let trusted = self.config.current().plan.listen.trusted_proxies.value.clone();
        let slots = WatcherSlots::new(MAX_WATCHERS, trusted);
        route::router(Arc::new(AdminState { api: self, stop, slots }))
    }

    /// Serves until the server stops, then finishes the requests in flight. Event streams are
    /// closed.
    ///
    /// Stop it last: while the other listeners are closing, this one reports that.
    pub(crate) async fn serve(self, listener: TcpListener, files: OpenFiles, stop: StopSignal) {
        let bounds = self.bounds;
        let settings = AcceptSettings {
            capacity: bounds.capacity(&self.config.current().plan.listen),
            files,
            metrics: self.config.parts().metrics.connections("admin"),
            refusal: connection::REFUSAL,
        };
        let router = self.router(stop.clone());
        let connection = {
            let stop = stop.clone();
            move |stream, peer| {
                let router = router.clone();
                let handler =
                    move |request, peer| connection::call_router(router.clone(), request, peer);
                connection::serve(stream, peer, handler, bounds, stop.clone())
            }
        };
        // It has little load and needs no threads of its own.
        let workers = Workers::current_runtime();
        accept_loop::serve(listener, settings, &workers, stop, connection).await;
    }
}
