//! The HTTP door: the decision API for programs of any language.
//!
//! A request passes the guard, is read whole, becomes a list of charges, and is answered from
//! one call to the engine. What is wrong with it is told as a problem document, and spends
//! nothing.

mod answer;
mod guard;
mod problem;
mod request;
mod route;

use std::sync::Arc;

use tidegate::{Engine, Store};
use tokio::net::TcpListener;

use crate::listen;
use crate::served::Served;

pub(crate) use guard::Guard;

/// What every request of this door sees.
#[derive(Debug)]
pub(crate) struct HttpDoor {
    pub(crate) engine: Engine<dyn Store>,
    pub(crate) served: Arc<Served>,
    pub(crate) guard: Guard,
}

impl HttpDoor {
    /// Serves until `stop` is ready, and then what is under way.
    pub(crate) async fn serve(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()> + Send + 'static,
    ) {
        let router = route::router(Arc::new(self));
        let serving = axum::serve(listen::without_delay(listener), router);
        if let Err(error) = serving.with_graceful_shutdown(stop).await {
            tracing::error!(%error, "the http door ended");
        }
    }
}
