//! Retries, fallbacks and breakers over scripted providers.

mod breaker;
mod contract;
mod fallback;
mod jitter;
mod log;
mod retry;
mod sent;

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::StatusCode;
use tidegate_llm::{Call, CallError, CallOptions, ConnectionFailure, OutgoingCall as _};
use tidegate_providers::{Chat, Class, Failure};
use tokio::time::{Instant, sleep};
use tower::{Service, ServiceExt as _};

const SECOND: Duration = Duration::from_secs(1);

fn hello() -> Call {
    Call::new(Chat::user("hello"))
}

/// Returns a failure of this class from `openai`.
fn failed(class: Class) -> CallError {
    let status = match class {
        Class::RateLimited { .. } | Class::ExhaustedQuota { .. } => StatusCode::TOO_MANY_REQUESTS,
        Class::CredentialRejected => StatusCode::UNAUTHORIZED,
        Class::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Class::BadRequest => StatusCode::BAD_REQUEST,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    Box::new(Failure::new("openai".into(), class, status)).into()
}

fn rate_limited() -> CallError {
    failed(Class::RateLimited { after: None, dimension: None })
}

fn rate_limited_for(seconds: u32) -> CallError {
    failed(Class::RateLimited { after: Some(SECOND * seconds), dimension: None })
}

fn connection_failure(kind: ConnectionFailure) -> CallError {
    CallError::Connection { provider: "openai".into(), kind, source: None }
}

/// Time since the start and options of each call received.
type Seen = Vec<(Duration, CallOptions)>;
type Behaviour = dyn Fn(usize, Duration) -> Result<&'static str, CallError> + Send + Sync;

/// A scripted provider.
#[derive(Clone)]
struct Script {
    behaviour: Arc<Behaviour>,
    lasting: Duration,
    begin: Instant,
    seen: Arc<Mutex<Seen>>,
}

impl Script {
    /// Responds by the number of earlier calls and the time since the start.
    fn new(
        behaviour: impl Fn(usize, Duration) -> Result<&'static str, CallError> + Send + Sync + 'static,
    ) -> Self {
        let (lasting, begin) = (Duration::ZERO, Instant::now());
        Self { behaviour: Arc::new(behaviour), lasting, begin, seen: Arc::default() }
    }

    /// Fails this many times, then succeeds.
    fn failing(times: usize, error: fn() -> CallError) -> Self {
        Self::new(move |before, _| if before < times { Err(error()) } else { Ok("answer") })
    }

    /// Sets the duration of each call.
    fn lasting(mut self, span: Duration) -> Self {
        self.lasting = span;
        self
    }

    fn calls(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// Returns the times of its calls, in seconds since the start.
    fn times(&self) -> Vec<f64> {
        self.seen.lock().unwrap().iter().map(|(at, _)| at.as_secs_f64()).collect()
    }
}

impl Service<Call> for Script {
    type Response = &'static str;
    type Error = CallError;
    type Future = BoxFuture<'static, Result<&'static str, CallError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let (script, at) = (self.clone(), self.begin.elapsed());
        let before = {
            let mut seen = self.seen.lock().unwrap();
            seen.push((at, call.options().clone()));
            seen.len() - 1
        };
        Box::pin(async move {
            sleep(script.lasting).await;
            (script.behaviour)(before, at)
        })
    }
}

/// Calls a service once.
async fn ask<S>(service: &S, call: Call) -> Result<S::Response, CallError>
where
    S: Service<Call, Error = CallError> + Clone,
{
    service.clone().oneshot(call).await
}
