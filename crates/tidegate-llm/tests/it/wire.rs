//! In-process HTTP connections to a simulator, one per request.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tidegate_sim::Simulator;
use tower::BoxError;
use tower::Service;

/// HTTP service that connects to a simulator.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    simulator: Simulator,
}

/// Creates an HTTP service for a simulator.
pub(crate) fn http(simulator: &Simulator) -> Wire {
    // The same counts in every run.
    tidegate_providers::tokens::prepare();
    Wire { simulator: simulator.clone() }
}

impl Service<Request<Full<Bytes>>> for Wire {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Full<Bytes>>) -> Self::Future {
        let simulator = self.simulator.clone();
        Box::pin(async move {
            let (mut sender, connection) =
                http1::handshake(TokioIo::new(simulator.connect()?)).await?;
            tokio::spawn(connection);
            let host = request.uri().authority().map_or("sim", |authority| authority.as_str());
            let host = HeaderValue::from_str(host)?;
            request.headers_mut().insert(HOST, host);
            let path = request.uri().path_and_query().cloned().unwrap();
            *request.uri_mut() = path.into();
            Ok(sender.send_request(request).await?)
        })
    }
}
