//! The HTTP API: decisions for programs of any language.
//!
//! A request passes the host check, is read whole, becomes a list of charges or a batch of such lists,
//! and is answered from one call to the engine. What is wrong with it is told as a problem document,
//! and spends nothing.

mod admission;
mod answer;
mod batch;
mod operation;
mod request;
mod route;
mod tally;
#[cfg(test)]
mod tests;
mod throttled_log;

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

use super::host_check::HostCheck;
use crate::configuration::ActiveConfig;
use crate::listener::bounds::Bounds;
use crate::listener::drain::Stop;
use crate::listener::workers::Workers;
use crate::listener::{connection, connections};
use crate::metrics::{DoorMetrics, LimitMetrics};
pub(crate) use throttled_log::ThrottledLog;

/// What every request of this API sees.
#[derive(Debug)]
pub(crate) struct HttpApi {
    pub(crate) engine: Engine<dyn Store>,
    pub(crate) config: Arc<ActiveConfig>,
    pub(crate) admission: Admission<dyn Store>,
    pub(crate) gateway: Gateway,
    pub(crate) metrics: DoorMetrics,
    /// Where decisions on policies that stand in requests are counted.
    pub(crate) inline: LimitMetrics,
    pub(crate) host_check: HostCheck,
    pub(crate) bounds: Bounds,
    pub(crate) store_errors: ThrottledLog,
}

impl HttpApi {
    /// Serves until told to stop, and then what is under way.
    pub(crate) async fn serve(self, listener: TcpListener, workers: Workers, stop: Stop) {
        let bounds = self.bounds;
        let api = Arc::new(self);
        let router = route::router(api.clone());
        let connection = {
            let stop = stop.clone();
            move |stream| {
                let (api, router) = (api.clone(), router.clone());
                let answer = move |request, peer| api.clone().answer(request, peer, router.clone());
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
        match self.host_check.admit(request.uri(), request.headers()) {
            Ok(()) => self.gateway.handle(request, peer).await.map(Body::new),
            Err(problem) => problem.into_response(),
        }
    }
}
