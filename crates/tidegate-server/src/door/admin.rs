//! The admin door: what is configured and what happens, and changing the one while watching the
//! other.
//!
//! | path | |
//! | --- | --- |
//! | `GET /config` | a summary for anybody: providers and limits |
//! | `GET /admin/config` | every value, where it comes from and what it shadows |
//! | `PATCH`, `POST /admin/config` | changes some values, whole or not at all |
//! | `GET /admin/history` | what was changed, when and through which door |
//! | `GET /admin/events` | what happens, as server-sent events |
//! | `GET /metrics` | numbers for Prometheus |
//! | `GET /openapi.json` | this door, for programs |
//! | `GET /healthz`, `/readyz` | whether it lives, and whether to send requests |
//!
//! The door keeps no configuration: it asks whoever runs it, through [`Control`]. It shows neither
//! tokens nor keys.

mod config;
mod control;
mod etag;
mod problem;
mod route;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::bounds::Bounds;
use super::connection;
use super::guard::Guard;
use crate::connections;
use crate::drain::Stop;
use crate::events::Events;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::tokens::Tokens;
use crate::workers::Workers;

pub(crate) use control::{
    Audit, By, Control, ControlFuture, Fault, Setting, Shadowed, Shown, UpdateError,
};

/// How many may watch events at once.
const MOST_WATCHERS: usize = 64;

/// What every request of this door sees.
pub(crate) struct AdminDoor {
    pub(crate) control: Arc<dyn Control>,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) guard: Guard,
    pub(crate) bounds: Bounds,
    pub(crate) metrics: Metrics,
    pub(crate) events: Events,
    pub(crate) health: Health,
}

/// The door while it is open.
struct Open {
    door: AdminDoor,
    stop: Stop,
    /// Seats for those who watch.
    seats: Arc<Semaphore>,
}

impl AdminDoor {
    /// Serves until told to stop, and then what is under way. Those who watch events are sent away.
    ///
    /// It should be told last: while the other doors are being closed, this one says so.
    pub(crate) async fn serve(self, listener: TcpListener, stop: Stop) {
        let bounds = self.bounds;
        let seats = Arc::new(Semaphore::new(MOST_WATCHERS));
        let router = route::router(Arc::new(Open { door: self, stop: stop.clone(), seats }));
        let connection = {
            let stop = stop.clone();
            move |stream| {
                let router = router.clone();
                let answer = move |request, _| connection::answered(router.clone(), request);
                connection::serve(stream, answer, bounds, stop.clone())
            }
        };
        // It has little to do, and needs no threads of its own.
        let workers = Workers::here();
        connections::serve(listener, bounds.connections, &workers, stop, connection).await;
    }
}
