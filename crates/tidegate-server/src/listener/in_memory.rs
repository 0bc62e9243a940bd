//! HTTP/1.1 on a stream that no listener accepted: no timeouts, not counted, not evicted.

use std::convert::Infallible;

use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::bounds::MAX_HEAD;

/// Serves one connection until it ends, with the parser and the bound on request heads of real
/// listeners.
pub(crate) fn serve<S, F>(
    stream: S,
    handler: impl Fn(Request<Incoming>) -> F,
) -> impl Future<Output = ()>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Response<Body>>,
{
    let service = service_fn(move |request| {
        let response = handler(request);
        async move { Ok::<_, Infallible>(response.await) }
    });
    let mut builder = http1::Builder::new();
    builder.header_read_timeout(None).max_buf_size(MAX_HEAD);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    async move {
        // The caller ended it early.
        let _ = connection.await;
    }
}
