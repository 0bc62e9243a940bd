//! HTTP to a simulator without a socket, over a network with latency.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tidegate_llm::adapter::Adapter;
use tidegate_providers::request::Target;
use tidegate_providers::{Credential, Dialect};
use tidegate_sim::Simulator;
use tokio::time::sleep;
use tower::BoxError;
use tower::util::BoxCloneService;
use tower::{ServiceExt as _, service_fn};

use super::scenario::{KEY, MODEL};
use crate::keys::SplitMix;

/// Maximum one-way latency.
const MAX_LATENCY: Duration = Duration::from_millis(20);

/// Reproducible random numbers. Clones share the sequence.
#[derive(Clone, Debug)]
pub(super) struct Dice(Arc<Mutex<SplitMix>>);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(SplitMix(seed))))
    }

    /// A random fraction of a duration, in whole microseconds.
    pub(super) fn part_of(&self, span: Duration) -> Duration {
        let micros = usize::try_from(span.as_micros()).unwrap_or(usize::MAX);
        let part = self.0.lock().unwrap_or_else(PoisonError::into_inner).below(micros);
        Duration::from_micros(part as u64)
    }
}

/// An HTTP service of any kind.
pub(super) type Http = BoxCloneService<Request<Full<Bytes>>, Response<Incoming>, BoxError>;

/// The adapter for the model of a simulator.
pub(super) fn adapter(simulator: &Simulator, dice: &Dice) -> Result<Adapter<Http>> {
    let target = Target::new(Dialect::OpenAi, "http://sim", MODEL, &Credential::new(KEY))?;
    Ok(Adapter::new(http(simulator, dice), "openai", target))
}

fn http(simulator: &Simulator, dice: &Dice) -> Http {
    let (simulator, dice) = (simulator.clone(), dice.clone());
    let service = service_fn(move |request| {
        let (simulator, way) = (simulator.clone(), dice.part_of(MAX_LATENCY));
        async move {
            sleep(way).await;
            send(&simulator, request).await
        }
    });
    service.boxed_clone()
}

/// Sends one request on a new connection.
async fn send(
    simulator: &Simulator,
    mut request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, BoxError> {
    let connection = TokioIo::new(simulator.connect()?);
    let (mut sender, driver) = http1::handshake(connection).await?;
    tokio::spawn(driver);
    request.headers_mut().insert(HOST, HeaderValue::from_static("sim"));
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = path.map_or_else(Uri::default, Uri::from);
    Ok(sender.send_request(request).await?)
}
