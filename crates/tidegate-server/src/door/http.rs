//! The HTTP door: the decision API for programs of any language.
//!
//! A request passes the guard, is read whole, becomes a list of charges or a batch of such lists,
//! and is answered from one call to the engine. What is wrong with it is told as a problem document,
//! and spends nothing.

mod admission;
mod answer;
mod asked;
mod batch;
mod request;
mod route;
mod tally;
#[cfg(test)]
mod tests;
mod troubles;

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse as _;
use http::{Request, Response};
use hyper::body::Incoming;
use tidegate::admission::Admission;
use tidegate::{Engine, Store};
use tidegate_gateway::Gateway;
use tokio::net::TcpListener;

use super::connection;
use crate::connections;
use crate::drain::Stop;
use crate::live::Live;
use crate::metrics::{DoorMetrics, LimitMetrics};
use crate::workers::Workers;

pub(crate) use super::bounds::Bounds;
pub(crate) use super::guard::Guard;
pub(crate) use troubles::Troubles;

/// What every request of this door sees.
#[derive(Debug)]
pub(crate) struct HttpDoor {
    pub(crate) engine: Engine<dyn Store>,
    pub(crate) live: Arc<Live>,
    pub(crate) admission: Admission<dyn Store>,
    pub(crate) gateway: Gateway,
    pub(crate) metrics: DoorMetrics,
    /// Where decisions on policies that stand in requests are counted.
    pub(crate) inline: LimitMetrics,
    pub(crate) guard: Guard,
    pub(crate) bounds: Bounds,
    pub(crate) troubles: Troubles,
}

impl HttpDoor {
    /// Serves until told to stop, and then what is under way.
    pub(crate) async fn serve(self, listener: TcpListener, workers: Workers, stop: Stop) {
        let bounds = self.bounds;
        let door = Arc::new(self);
        let router = route::router(door.clone());
        let connection = {
            let stop = stop.clone();
            move |stream| {
                let (door, router) = (door.clone(), router.clone());
                let answer =
                    move |request, peer| door.clone().answer(request, peer, router.clone());
                connection::serve(stream, answer, bounds, stop.clone())
            }
        };
        connections::serve(listener, bounds.connections, &workers, stop, connection).await;
    }

    /// Answers a request: calls to providers go to the gateway at once, everything else by its
    /// path.
    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: IpAddr,
        router: Router,
    ) -> Response<Body> {
        if !self.gateway.serves(request.uri().path()) {
            return connection::answered(router, request).await;
        }
        match self.guard.admit(request.uri(), request.headers()) {
            Ok(()) => self.gateway.handle(request, peer).await.map(Body::new),
            Err(problem) => problem.into_response(),
        }
    }
}
