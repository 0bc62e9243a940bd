//! HTTP services for tests: to a simulator without a network, and scripted providers.

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

/// Opens an in-process connection per request, optionally with up to 20 ms of random delay.
#[derive(Clone, Debug)]
pub(crate) struct SimulatorTransport {
    simulator: Simulator,
    jitter: Option<Arc<Mutex<u64>>>,
}

/// Returns a transport to this simulator.
pub(crate) fn http(simulator: &Simulator) -> SimulatorTransport {
    SimulatorTransport { simulator: simulator.clone(), jitter: None }
}

impl SimulatorTransport {
    /// Adds a random delay of up to 20 ms to each request.
    pub(crate) fn with_jitter(mut self, seed: u64) -> Self {
        self.jitter = Some(Arc::new(Mutex::new(seed)));
        self
    }

    fn delay(&self) -> Duration {
        let Some(jitter) = &self.jitter else { return Duration::ZERO };
        let mut state = jitter.lock().unwrap();
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        Duration::from_micros((*state >> 33) % 20_000)
    }
}

impl Service<Request<RequestBody>> for SimulatorTransport {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<RequestBody>) -> Self::Future {
        let (simulator, delay) = (self.simulator.clone(), self.delay());
        Box::pin(async move {
            if !delay.is_zero() {
                sleep(delay).await;
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

/// A request that a provider received.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Returns the response to a request, given its number.
type Responder = dyn Fn(usize, &ReceivedRequest) -> Response<Full<Bytes>> + Send + Sync;

/// A provider that responds as scripted and records the requests it received.
#[derive(Clone)]
pub(crate) struct ScriptedProvider {
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    respond: Arc<Responder>,
}

impl ScriptedProvider {
    /// `respond` gets the number of the request, starting at 0.
    pub(crate) fn new(
        respond: impl Fn(usize, &ReceivedRequest) -> Response<Full<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        Self { requests: Arc::default(), respond: Arc::new(respond) }
    }

    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }
}

impl Service<Request<RequestBody>> for ScriptedProvider {
    type Response = Response<Full<Bytes>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let provider = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let received =
                ReceivedRequest { method: head.method, uri: head.uri, headers: head.headers, body };
            let mut all = provider.requests.lock().unwrap();
            let response = (provider.respond)(all.len(), &received);
            all.push(received);
            Ok(response)
        })
    }
}

/// A body that sends each chunk after a delay.
pub(crate) struct SlowBody {
    chunks: std::vec::IntoIter<(Duration, Bytes)>,
    next: Option<(Pin<Box<Sleep>>, Bytes)>,
}

impl SlowBody {
    pub(crate) fn new(chunks: &[(Duration, &'static str)]) -> Self {
        let chunks =
            chunks.iter().map(|(after, text)| (*after, Bytes::from_static(text.as_bytes())));
        Self { chunks: chunks.collect::<Vec<_>>().into_iter(), next: None }
    }
}

impl http_body::Body for SlowBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.next.is_none() {
            let next = self.chunks.next();
            self.next = next.map(|(after, bytes)| (Box::pin(sleep(after)), bytes));
        }
        let Some((sleep, _)) = &mut self.next else { return Poll::Ready(None) };
        ready!(sleep.as_mut().poll(context));
        Poll::Ready(self.next.take().map(|(_, bytes)| Ok(Frame::data(bytes))))
    }
}
