//! Serves the requests of one HTTP/1.1 connection until it ends, times out, is evicted, or the
//! listener stops.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes};
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tower::Service as _;

use super::bounds::{Bounds, MAX_HEAD};
use super::drain::StopSignal;
use super::eviction::Evict;
use super::request_body::RequestBody;
use super::stream::TimedStream;
use super::timeouts::{CloseReason, Timeouts};
use super::workers::DetachedStream;

/// The response to a refused connection.
pub(crate) const REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    content-type: application/problem+json\r\n\
    retry-after: 1\r\n\
    connection: close\r\n\
    content-length: 187\r\n\
    \r\n\
    {\"type\":\"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity\",\
    \"title\":\"Temporarily reduced capacity\",\"status\":503,\
    \"detail\":\"too many connections from this address\"}";

/// Why a connection ended.
enum ConnectionEnd {
    Closed(hyper::Result<()>),
    Forced(CloseReason),
}

/// Returns the handle that evicts the connection, and the future that serves it. When the listener
/// stops, a request that has begun is still answered. `handler` gets each request with the peer
/// address.
pub(crate) fn serve<F>(
    stream: DetachedStream,
    peer: IpAddr,
    handler: impl Fn(Request<RequestBody>, IpAddr) -> F + Send + Sync + 'static,
    bounds: Bounds,
    stop: StopSignal,
) -> (Arc<dyn Evict>, impl Future<Output = ()> + Send + 'static)
where
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let timeouts = Arc::new(Timeouts::new(bounds));
    let handle = timeouts.clone();
    (handle, run(stream, timeouts, move |request| handler(request, peer), stop))
}

async fn run<F>(
    stream: DetachedStream,
    timeouts: Arc<Timeouts>,
    handler: impl Fn(Request<RequestBody>) -> F,
    stop: StopSignal,
) where
    F: Future<Output = Response<Body>>,
{
    let Some(stream) = stream.attach() else { return };
    let stream = TokioIo::new(TimedStream::new(stream, timeouts.clone()));
    let service = service_fn(|request: Request<Incoming>| {
        timeouts.head_received();
        let request = request.map(|body| RequestBody::new(body, timeouts.clone()));
        let (response, timeouts) = (handler(request), timeouts.clone());
        async move {
            let mut response = response.await;
            announce_close(&mut response, timeouts.unread());
            Ok::<_, Infallible>(response.map(|body| TimedBody { body, timeouts }))
        }
    });
    let mut http = http1::Builder::new();
    // Our own timeouts bound heads, since hyper's also runs while a connection is idle.
    http.header_read_timeout(None).max_buf_size(MAX_HEAD);
    let mut connection = pin!(http.serve_connection(stream, service));
    let mut timer = pin!(tokio::time::sleep_until(timeouts.first_deadline()));
    let (mut stop, mut stopping) = (pin!(stop.wait()), false);
    let end = poll_fn(|cx| {
        loop {
            if let Poll::Ready(end) = connection.as_mut().poll(cx) {
                return Poll::Ready(ConnectionEnd::Closed(end));
            }
            if stopping || stop.as_mut().poll(cx).is_pending() {
                break;
            }
            stopping = true;
            connection.as_mut().graceful_shutdown();
        }
        timeouts.poll_close(timer.as_mut(), cx).map(ConnectionEnd::Forced)
    });
    match end.await {
        ConnectionEnd::Closed(Ok(())) => {}
        ConnectionEnd::Closed(Err(error)) => tracing::debug!(%error, "connection failed"),
        ConnectionEnd::Forced(CloseReason::TimedOut) => tracing::debug!("connection timed out"),
        ConnectionEnd::Forced(CloseReason::Evicted) => tracing::debug!("idle connection evicted"),
    }
}

/// Adds `connection: close` if hyper will close the connection because the body is unread. A rest
/// that fits into the read buffer may have arrived already, and the connection stays open then.
fn announce_close(response: &mut Response<Body>, unread: Option<u64>) {
    let Some(remaining) = unread else { return };
    if remaining > MAX_HEAD as u64 || response.status() == StatusCode::PAYLOAD_TOO_LARGE {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Peer address of a request, stored in its extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// Calls a router with the peer address in the request's extensions.
pub(crate) async fn call_router<B>(
    mut router: Router,
    mut request: Request<B>,
    peer: IpAddr,
) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    request.extensions_mut().insert(Peer(peer));
    let Ok(response) = router.call(request).await;
    response
}

/// A response body that restarts the idle timeout when it ends or is dropped. Until then nothing is
/// expected of the caller: a response may be a stream that lasts for hours.
#[derive(Debug)]
struct TimedBody {
    body: Body,
    timeouts: Arc<Timeouts>,
}

impl Drop for TimedBody {
    fn drop(&mut self) {
        self.timeouts.response_ended();
    }
}

impl http_body::Body for TimedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
