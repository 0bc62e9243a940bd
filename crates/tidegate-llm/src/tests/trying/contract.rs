//! The contract of tower services: none is called before it is ready, and none is kept ready
//! without need. Responses that were handed out are no longer handled.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::stream;
use tidegate_core::breaker::{BreakerSettings, BreakerState};
use tidegate_llm::breaker::{BreakerLayer, Circuit};
use tidegate_llm::fallback::FallbackLayer;
use tidegate_llm::retry::RetryLayer;
use tidegate_llm::{Call, CallError, CallResponse, ConnectionFailure};
use tidegate_providers::{Class, Event};
use tokio::time::sleep;
use tower::{Layer as _, Service, ServiceExt as _, service_fn};

use super::{SECOND, ask, connection_failure, failed, hello};

/// Counts of reservations held by ready services, and of calls.
#[derive(Clone, Default)]
struct Counts {
    reserved: Arc<AtomicUsize>,
    calls: Arc<AtomicUsize>,
}

impl Counts {
    fn reserved(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

struct Reserved(Counts);

impl Drop for Reserved {
    fn drop(&mut self) {
        self.0.reserved.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A service that holds a reservation while ready, panics if called without one, and always fails.
#[derive(Default)]
struct Strict {
    counts: Counts,
    reservation: Option<Reserved>,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { counts: self.counts.clone(), reservation: None }
    }
}

impl Service<Call> for Strict {
    type Response = &'static str;
    type Error = CallError;
    type Future = Ready<Result<&'static str, CallError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        if self.reservation.is_none() {
            self.counts.reserved.fetch_add(1, Ordering::Relaxed);
            self.reservation = Some(Reserved(self.counts.clone()));
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Call) -> Self::Future {
        drop(self.reservation.take().expect("called without being ready"));
        self.counts.calls.fetch_add(1, Ordering::Relaxed);
        ready(Err(failed(Class::Transient)))
    }
}

#[tokio::test(start_paused = true)]
async fn retry_reserves_nothing_during_delays_and_polls_ready_before_each_attempt() {
    let strict = Strict::default();
    let counts = strict.counts.clone();
    let service = RetryLayer::new("openai").layer(strict);
    let call = tokio::spawn(async move { ask(&service, hello()).await });
    for _ in 0..300 {
        sleep(SECOND).await;
        assert_eq!(counts.reserved(), 0);
    }
    assert!(call.await.unwrap().is_err());
    assert_eq!(counts.calls(), 9);
}

#[tokio::test(start_paused = true)]
async fn service_can_be_called_again_while_a_call_is_in_flight() {
    let (strict, retry) = (Strict::default(), RetryLayer::new("openai"));
    let counts = strict.counts.clone();
    let mut service = retry.layer(strict);
    let first = service.ready().await.unwrap().call(hello());
    let second = service.ready().await.unwrap().call(hello());
    assert_eq!(counts.reserved(), 2);
    drop(first);
    assert_eq!((counts.reserved(), counts.calls()), (1, 0));
    assert!(second.await.is_err());
    assert_eq!((counts.reserved(), counts.calls()), (0, 9));
}

#[tokio::test]
async fn targets_are_polled_ready_only_when_called() {
    let (primary, target) = (Strict::default(), Strict::default());
    let counts = target.counts.clone();
    let layer = FallbackLayer::new("openai", [("groq", target)]).unwrap();
    let mut service = layer.layer(primary);
    for calls in 1..=2 {
        let call = service.ready().await.unwrap().call(hello());
        assert_eq!(counts.reserved(), 0);
        call.await.unwrap_err();
        assert_eq!((counts.reserved(), counts.calls()), (0, calls));
    }
}

#[tokio::test(start_paused = true)]
async fn refused_call_releases_its_reservation() {
    let strict = Strict::default();
    let (counts, circuit) =
        (strict.counts.clone(), Circuit::new("openai", BreakerSettings::after_failures(1)));
    let mut service = BreakerLayer::new(circuit.clone()).layer(strict);
    service.ready().await.unwrap().call(hello()).await.unwrap_err();
    let refused = service.ready().await.unwrap().call(hello()).await.unwrap_err();
    assert!(matches!(refused, CallError::CircuitOpen { .. }), "{refused}");
    assert_eq!((counts.reserved(), counts.calls(), circuit.state()), (0, 1, BreakerState::Open));
}

/// A response counts as received with its head; later failures are the reader's to handle.
#[tokio::test]
async fn broken_stream_is_neither_retried_nor_sent_to_a_fallback() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let streaming = service_fn(move |_: Call| {
        counted.fetch_add(1, Ordering::Relaxed);
        let events = stream::iter([
            Ok(Event::Text("the ".into())),
            Err(connection_failure(ConnectionFailure::Closed)),
        ]);
        ready(Ok::<_, CallError>(CallResponse::streamed("openai".into(), Box::pin(events))))
    });
    let layer = FallbackLayer::new("openai", [("groq", streaming.clone())]).unwrap();
    let service = RetryLayer::new("openai").layer(layer.layer(streaming));
    let response = ask(&service, hello().streamed()).await.unwrap();
    assert!(matches!(response.into_reply().await, Err(CallError::Connection { .. })));
    assert_eq!((calls.load(Ordering::Relaxed), layer.fallbacks()), (1, 0));
}
