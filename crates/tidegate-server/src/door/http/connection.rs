//! One connection: its requests one after the other, until it ends, keeps the door waiting for too
//! long, or the door is told to stop.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::Service as _;

use super::bounds::{Bounds, MAX_HEAD};
use super::patience::Patience;
use super::stream::ToldStream;
use crate::drain::Stop;

/// How a connection ends.
enum End {
    Closed(hyper::Result<()>),
    OutOfPatience,
}

/// Serves a connection to its end. When told to stop, a request that has begun is answered first.
pub(crate) async fn serve(stream: TcpStream, router: Router, bounds: Bounds, stop: Stop) {
    let patience = Arc::new(Patience::new(bounds));
    let stream = TokioIo::new(ToldStream::new(stream, patience.clone()));
    let service = service_fn(|request: hyper::Request<Incoming>| {
        patience.asked();
        let (answer, patience) = (router.clone().call(request), patience.clone());
        async move {
            let answer = answer.await;
            patience.answered();
            answer
        }
    });
    let mut http = http1::Builder::new();
    // Heads are bounded by our own patience, which tells them from idle connections.
    http.header_read_timeout(None).max_buf_size(MAX_HEAD);
    let mut connection = pin!(http.serve_connection(stream, service));
    let mut timer = pin!(tokio::time::sleep(bounds.head));
    let (mut stop, mut stopping) = (pin!(stop.told()), false);
    let end = poll_fn(|cx| {
        loop {
            if let Poll::Ready(end) = connection.as_mut().poll(cx) {
                return Poll::Ready(End::Closed(end));
            }
            if stopping || stop.as_mut().poll(cx).is_pending() {
                break;
            }
            stopping = true;
            connection.as_mut().graceful_shutdown();
        }
        patience.poll_end(timer.as_mut(), cx).map(|()| End::OutOfPatience)
    });
    match end.await {
        End::Closed(Ok(())) => {}
        End::Closed(Err(error)) => tracing::debug!(%error, "a connection failed"),
        End::OutOfPatience => tracing::debug!("a connection kept us waiting and is cut"),
    }
}
