//! HTTP to simulators without a network, and to scripts.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tidegate_gateway::RequestBody;
use tidegate_sim::Simulator;
use tokio::time::{Sleep, sleep};
use tower::BoxError;
use tower::Service;

/// One connection inside the process for each request, up to 20 ms late if it is told so.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    simulator: Simulator,
    jitter: Option<Arc<Mutex<u64>>>,
}

/// HTTP to this simulator.
pub(crate) fn http(simulator: &Simulator) -> Wire {
    Wire { simulator: simulator.clone(), jitter: None }
}

impl Wire {
    /// Over a network that takes up to 20 ms, each time another.
    pub(crate) fn jittering(mut self, seed: u64) -> Self {
        self.jitter = Some(Arc::new(Mutex::new(seed)));
        self
    }

    fn lateness(&self) -> Duration {
        let Some(jitter) = &self.jitter else { return Duration::ZERO };
        let mut state = jitter.lock().unwrap();
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        Duration::from_micros((*state >> 33) % 20_000)
    }
}

impl Service<Request<RequestBody>> for Wire {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<RequestBody>) -> Self::Future {
        let (simulator, lateness) = (self.simulator.clone(), self.lateness());
        Box::pin(async move {
            if !lateness.is_zero() {
                sleep(lateness).await;
            }
            let (mut sender, connection) =
                http1::handshake(TokioIo::new(simulator.connect()?)).await?;
            tokio::spawn(connection);
            let path = request.uri().path_and_query().cloned().unwrap();
            *request.uri_mut() = path.into();
            Ok(sender.send_request(request).await?)
        })
    }
}

/// What a provider got.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) fields: HeaderMap,
    pub(crate) body: Bytes,
}

/// What a script says to a request, by its number.
type Lines = dyn Fn(usize, &Got) -> Response<Full<Bytes>> + Send + Sync;

/// A provider that answers by a script, and remembers what it got.
#[derive(Clone)]
pub(crate) struct Script {
    got: Arc<Mutex<Vec<Got>>>,
    answer: Arc<Lines>,
}

impl Script {
    /// Answers by the number of the request, from 0.
    pub(crate) fn new(
        answer: impl Fn(usize, &Got) -> Response<Full<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        Self { got: Arc::default(), answer: Arc::new(answer) }
    }

    pub(crate) fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }
}

impl Service<Request<RequestBody>> for Script {
    type Response = Response<Full<Bytes>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let script = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let got = Got { method: head.method, uri: head.uri, fields: head.headers, body };
            let mut all = script.got.lock().unwrap();
            let response = (script.answer)(all.len(), &got);
            all.push(got);
            Ok(response)
        })
    }
}

/// A body that comes in pieces, each after a while.
pub(crate) struct Drip {
    pieces: std::vec::IntoIter<(Duration, Bytes)>,
    next: Option<(Pin<Box<Sleep>>, Bytes)>,
}

impl Drip {
    pub(crate) fn new(pieces: &[(Duration, &'static str)]) -> Self {
        let pieces =
            pieces.iter().map(|(after, text)| (*after, Bytes::from_static(text.as_bytes())));
        Self { pieces: pieces.collect::<Vec<_>>().into_iter(), next: None }
    }
}

impl http_body::Body for Drip {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.next.is_none() {
            let next = self.pieces.next();
            self.next = next.map(|(after, bytes)| (Box::pin(sleep(after)), bytes));
        }
        let Some((sleep, _)) = &mut self.next else { return Poll::Ready(None) };
        ready!(sleep.as_mut().poll(context));
        Poll::Ready(self.next.take().map(|(_, bytes)| Ok(Frame::data(bytes))))
    }
}
