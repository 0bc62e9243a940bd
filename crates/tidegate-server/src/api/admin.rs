//! The admin API: what is configured and what happens, and changing the one while watching the
//! other.
//!
//! | path | |
//! | --- | --- |
//! | `GET /config` | a summary for anybody: providers and limits |
//! | `GET /admin/config` | every value, where it comes from and what it shadows |
//! | `PATCH`, `POST /admin/config` | changes some values, whole or not at all |
//! | `POST /admin/keys/peek`, `hold`, `reset`, `settle` | looks at a key, or corrects it, by hand |
//! | `GET /admin/history` | what was changed, when and through which listener |
//! | `GET /admin/events` | what happens, as server-sent events |
//! | `GET /admin/providers`, `/admin/providers/NAME` | what providers allow, what is left, who waits |
//! | `GET /metrics` | numbers for Prometheus |
//! | `GET /openapi.json` | this API, for programs |
//! | `GET /healthz`, `/readyz` | whether it lives, and whether to send requests |
//!
//! The API keeps no configuration: it asks [`ActiveConfig`]. It shows neither tokens nor keys.

mod concurrency;
mod config;
mod etag;
mod keys;
mod problem;
mod providers;
mod route;
mod seats;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::Arc;

use axum::Router;
use tidegate_http::host::HostCheck;
use tokio::net::TcpListener;

use super::health::Health;
use crate::configuration::{ActiveConfig, Parts};
use crate::listener::accept_loop::AcceptSettings;
use crate::listener::bounds::Bounds;
use crate::listener::drain::Stop;
use crate::listener::files::OpenFiles;
use crate::listener::workers::Workers;
use crate::listener::{accept_loop, connection};
use seats::Seats;

/// How many may watch events at once.
const MOST_WATCHERS: usize = 64;

/// What every request of this API sees.
pub(crate) struct AdminApi {
    pub(crate) config: Arc<ActiveConfig>,
    pub(crate) host_check: HostCheck,
    pub(crate) bounds: Bounds,
    pub(crate) health: Health,
}

/// The API while it is served.
struct Open {
    api: AdminApi,
    stop: Stop,
    /// Seats for those who watch.
    seats: Seats,
}

impl Open {
    fn parts(&self) -> &Parts {
        self.api.config.parts()
    }
}

impl AdminApi {
    /// All paths, with what they need.
    pub(crate) fn router(self, stop: Stop) -> Router {
        let trusted = self.config.current().plan.listen.trusted_proxies.value.clone();
        let seats = Seats::new(MOST_WATCHERS, trusted);
        route::router(Arc::new(Open { api: self, stop, seats }))
    }

    /// Serves until told to stop, and then what is under way. Those who watch events are sent away.
    ///
    /// It should be told last: while the other listeners are being closed, this one says so.
    pub(crate) async fn serve(self, listener: TcpListener, files: OpenFiles, stop: Stop) {
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
                let answer =
                    move |request, peer| connection::answered(router.clone(), request, peer);
                connection::serve(stream, peer, answer, bounds, stop.clone())
            }
        };
        // It has little to do, and needs no threads of its own.
        let workers = Workers::here();
        accept_loop::serve(listener, settings, &workers, stop, connection).await;
    }
}
