//! A provider that answers after a short latency and rejects unknown keys and calls above its
//! limit.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::stopwatch::Stopwatch;

/// Calls per minute in the configuration of the program. The total demand stays below it, so that
/// no call waits because of the limit.
pub(super) const PER_MINUTE: u64 = 60_000;
const TOLERATED: u64 = PER_MINUTE + PER_MINUTE / 10;
/// Latency of an answer; real providers take longer.
const LATENCY: Duration = Duration::from_millis(50);

const WHOLE: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1767225600,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"At half past nine."},"finish_reason":"stop"}],"usage":{"prompt_tokens":12,"completion_tokens":6,"total_tokens":18}}"#;
const EVENTS: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"At nine.\"},\"finish_reason\":null}]}\n\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":6,\"total_tokens\":18}}\n\n\
    data: [DONE]\n\n";
const UNKNOWN_KEY: &str = r#"{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","code":"invalid_api_key"}}"#;
const TOO_MANY: &str =
    r#"{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}"#;

/// A running provider.
pub(super) struct Provider {
    pub(super) address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    requests: AtomicU64,
    unknown_keys: AtomicU64,
    refused: AtomicU64,
    /// The current minute, and its number of requests.
    minute: Mutex<(u64, u64)>,
}

/// Requests that the provider received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    pub(super) requests: u64,
    pub(super) unknown_keys: u64,
    pub(super) refused: u64,
}

/// Starts a provider on a free port.
pub(super) async fn start() -> Result<Provider> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let provider = Provider { address: listener.local_addr()?, state: Arc::default() };
    let (state, clock) = (provider.state.clone(), Stopwatch::start());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let state = state.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let state = state.clone();
                    async move { Ok::<_, Infallible>(answer(request, &state, clock).await) }
                });
                // A caller may disconnect at any time.
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    Ok(provider)
}

async fn answer(
    request: Request<Incoming>,
    state: &State,
    clock: Stopwatch,
) -> Response<Full<Bytes>> {
    state.requests.fetch_add(1, Ordering::Relaxed);
    let key = request.headers().get(AUTHORIZATION).and_then(|key| key.to_str().ok());
    let is_known = key.is_some_and(|key| key.starts_with("Bearer sk-"));
    let is_call = request.method() == http::Method::POST;
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes);
    let streams = body.is_ok_and(|body| body.windows(13).any(|part| part == b"\"stream\":true"));
    tokio::time::sleep(LATENCY).await;
    let (status, kind, text) = match () {
        () if !is_known => {
            state.unknown_keys.fetch_add(1, Ordering::Relaxed);
            (401, "application/json", UNKNOWN_KEY)
        }
        () if is_call && !state.admits(clock) => {
            state.refused.fetch_add(1, Ordering::Relaxed);
            (429, "application/json", TOO_MANY)
        }
        () if streams => (200, "text/event-stream", EVENTS),
        () => (200, "application/json", WHOLE),
    };
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

impl State {
    fn admits(&self, clock: Stopwatch) -> bool {
        let now = clock.elapsed().as_secs() / 60;
        let mut minute = self.minute.lock().unwrap_or_else(PoisonError::into_inner);
        if minute.0 != now {
            *minute = (now, 0);
        }
        minute.1 += 1;
        minute.1 <= TOLERATED
    }
}

impl Provider {
    pub(super) fn figures(&self) -> Figures {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Figures {
            requests: read(&self.state.requests),
            unknown_keys: read(&self.state.unknown_keys),
            refused: read(&self.state.refused),
        }
    }
}
