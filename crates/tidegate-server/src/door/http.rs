//! The HTTP door: the decision API for programs of any language.
//!
//! A request passes the guard, is read whole, becomes a list of charges, and is answered from
//! one call to the engine. What is wrong with it is told as a problem document, and spends
//! nothing.

mod admission;
mod answer;
mod bounds;
mod connection;
mod guard;
mod patience;
mod problem;
mod request;
mod route;
mod stream;
#[cfg(test)]
mod tests;
mod troubles;

use std::sync::Arc;

use tidegate::admission::Admission;
use tidegate::{Engine, Store};
use tokio::net::TcpListener;

use crate::connections;
use crate::drain::Stop;
use crate::served::Served;

pub(crate) use bounds::Bounds;
pub(crate) use guard::Guard;
pub(crate) use troubles::Troubles;

/// What every request of this door sees.
#[derive(Debug)]
pub(crate) struct HttpDoor {
    pub(crate) engine: Engine<dyn Store>,
    pub(crate) served: Arc<Served>,
    pub(crate) admission: Admission<dyn Store>,
    pub(crate) guard: Guard,
    pub(crate) bounds: Bounds,
    pub(crate) troubles: Troubles,
}

impl HttpDoor {
    /// Serves until told to stop, and then what is under way.
    pub(crate) async fn serve(self, listener: TcpListener, stop: Stop) {
        let bounds = self.bounds;
        let router = route::router(Arc::new(self));
        let connection = {
            let stop = stop.clone();
            move |stream| connection::serve(stream, router.clone(), bounds, stop.clone())
        };
        connections::serve(listener, bounds.connections, stop, connection).await;
    }
}
