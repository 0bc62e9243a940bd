//! Slots are released and charges settled whatever goes wrong: callers that disconnect, stores that
//! fail, functions that panic.

use std::convert::Infallible;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::get;
use futures_util::stream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tidegate::admission::{Admission, Caller, Rules, Tier};
use tidegate::{Engine, Limiter, MemoryStore, Policy, StoreError};
use tidegate_core::Operation;
use tidegate_http::key;
use tidegate_http::layer::{AdmissionLayer, LimitLayer, LimitRule};
use tidegate_testkit::faulty_store::{
    Behaviour, FaultyStore, OperationContext, OperationKind, Timing,
};
use tower::{Layer, Service, ServiceExt, service_fn};

use super::faulty_stores::{Faulty, delayed, engine_on, hourly};
use super::modes::Log;
use super::test_server::TestServer;
use super::{by_user, engine, limiter, remaining};

fn hello()
-> impl Service<Request<()>, Response = Response<Full<Bytes>>, Error = Infallible, Future = impl Send>
+ Clone {
    service_fn(|_: Request<()>| async { Ok(Response::new(Full::from("hello"))) })
}

fn as_alice() -> Request<()> {
    Request::get("/").header("x-user", "alice").body(()).unwrap()
}

fn one_slot(engine: &Engine) -> Limiter {
    engine.limiter("slots", Policy::concurrency(1, None).unwrap()).unwrap()
}

/// Polls the request once and drops it while the store call is in progress.
fn start_and_abandon(request: impl Future) {
    let mut request = Box::pin(request);
    assert!(request.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

async fn wait_for(limiter: &Limiter, remaining: u64) {
    let arrived = async {
        while limiter.peek("alice").cost(0).await.unwrap().remaining() != remaining {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), arrived).await.unwrap();
}

#[tokio::test]
async fn slot_of_an_abandoned_request_is_released() {
    let slots = one_slot(&engine_on(delayed()));
    let service = LimitLayer::new().limit(slots.clone(), by_user()).layer(hello());
    start_and_abandon(service.clone().oneshot(as_alice()));
    assert_eq!(slots.peek("alice").cost(0).await.unwrap().remaining(), 0, "the slot was taken");
    wait_for(&slots, 1).await;
    assert_eq!(service.oneshot(as_alice()).await.unwrap().status(), 200);
}

#[tokio::test]
async fn charge_of_an_abandoned_request_is_settled_without_a_response() {
    let limit = engine_on(delayed()).limiter("users", hourly(10)).unwrap();
    let layer = LimitLayer::new()
        .limit(limit.clone(), by_user())
        .cost(|_| 10)
        .settle(|summary| if summary.status().is_none() { 3 } else { 10 });
    start_and_abandon(layer.layer(hello()).oneshot(as_alice()));
    wait_for(&limit, 7).await;
}

#[tokio::test]
async fn admission_settles_abandoned_requests() {
    let rules = Rules::none().client(hourly(10));
    let admission = Admission::new(&engine_on(delayed()), rules).unwrap();
    let layer = AdmissionLayer::new(admission.clone()).client(by_user()).cost(|_| 10).settle(|_| 0);
    start_and_abandon(layer.layer(hello()).oneshot(as_alice()));
    let key = admission.key(Tier::Client, Caller::new().client("alice")).unwrap();
    let clients = admission.limiter(Tier::Client).unwrap();
    let settled = async {
        while clients.peek(&key).cost(0).await.unwrap().remaining() != 10 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), settled).await.unwrap();
    assert_eq!(admission.pending(), 0);
}

#[tokio::test]
async fn request_dropped_before_the_first_poll_is_not_charged() {
    let slots = one_slot(&engine_on(delayed()));
    let service = LimitLayer::new().limit(slots.clone(), by_user()).layer(hello());
    drop(service.clone().call(as_alice()));
    assert_eq!(service.oneshot(as_alice()).await.unwrap().status(), 200);
}

#[test]
fn abandoned_request_outside_a_runtime_is_logged() {
    let log = Log::default();
    let _capture = log.capture();
    let service =
        LimitLayer::new().limit(one_slot(&engine_on(delayed())), by_user()).layer(hello());
    start_and_abandon(service.oneshot(as_alice()));
    assert_eq!(log.count("outside a tokio runtime"), 1, "{}", log.text());
}

fn settled_with_a_slot(store: Faulty) -> (LimitLayer, Limiter, Limiter) {
    let engine = engine_on(store);
    let users = engine.limiter("users", hourly(10)).unwrap();
    let slots = one_slot(&engine);
    let layer = LimitLayer::new()
        .rule(LimitRule::new(users.clone(), by_user()).settle(|_| 3))
        .limit(slots.clone(), by_user());
    (layer, users, slots)
}

#[tokio::test]
async fn deferred_store_is_settled_once() {
    let store = FaultyStore::new(MemoryStore::new(), Timing::Deferred);
    let (layer, users, slots) = settled_with_a_slot(store.clone());
    let response = layer.layer(hello()).oneshot(as_alice()).await.unwrap();
    drop(response.into_body().collect().await.unwrap());
    wait_for(&slots, 1).await;
    assert_eq!(store.operations_by_kind(OperationKind::Settle), 1);
    wait_for(&users, 7).await;
}

/// Regression: these used to be two round trips.
#[tokio::test]
async fn shared_store_settles_and_releases_in_one_call() {
    let store = delayed();
    let (layer, users, slots) = settled_with_a_slot(store.clone());
    let response = layer.layer(hello()).oneshot(as_alice()).await.unwrap();
    assert_eq!(store.submissions(), 1, "the request itself");
    drop(response.into_body().collect().await.unwrap());
    while store.submissions() < 2 {
        tokio::task::yield_now().await;
    }
    // No further call follows; only its results are awaited.
    wait_for(&slots, 1).await;
    wait_for(&users, 7).await;
    assert_eq!(store.submissions(), 2 + 2, "one call, and two peeks of this test");
}

#[tokio::test]
async fn failed_settlement_still_releases_the_slot() {
    let rejected = |call: OperationContext<'_>| match call.operation {
        Operation::Settle { .. } => Some(StoreError::Rejected("rejected by the test".into())),
        _ => None,
    };
    let behaviour = Behaviour::from(Timing::Deferred).failing_if(rejected);
    let store = FaultyStore::new(MemoryStore::new(), behaviour);
    let (layer, _, slots) = settled_with_a_slot(store);
    let service = layer.layer(hello());
    drop(service.clone().oneshot(as_alice()).await.unwrap());
    wait_for(&slots, 1).await;
    assert_eq!(service.oneshot(as_alice()).await.unwrap().status(), 200);
}

#[tokio::test]
async fn panicking_settle_function_is_ignored_and_logged_once() {
    let log = Log::default();
    let _capture = log.capture();
    let (engine, _) = engine();
    let (users, slots) = (limiter(&engine, "users", 10), one_slot(&engine));
    let layer = LimitLayer::new()
        .rule(LimitRule::new(users.clone(), by_user()).settle(|_| panic!("settle bug about alice")))
        .limit(slots, by_user());
    let service = layer.layer(hello());
    for _ in 0..3 {
        let response = service.clone().oneshot(as_alice()).await.unwrap();
        assert_eq!(response.status(), 200, "the slot is free");
        assert!(catch_unwind(AssertUnwindSafe(move || drop(response))).is_ok());
    }
    assert_eq!(remaining(&users, "alice"), 7, "the cost taken up front is kept");
    assert_eq!(log.count("panicked"), 1, "{}", log.text());
    assert!(!log.text().contains("alice"));
}

async fn broken(_: Request<()>) -> Result<Response<Full<Bytes>>, Infallible> {
    panic!("handler bug")
}

/// A panic during unwinding would abort the process, and with it this test.
#[tokio::test]
async fn panicking_settle_function_after_a_handler_panic_does_not_abort() {
    let (engine, _) = engine();
    let (users, slots) = (limiter(&engine, "users", 10), one_slot(&engine));
    let layer = LimitLayer::new()
        .limit(users, by_user())
        .limit(slots.clone(), by_user())
        .settle(|summary| u64::from(summary.status().unwrap().is_success()));
    let serving = tokio::spawn(layer.layer(service_fn(broken)).oneshot(as_alice()));
    assert!(serving.await.unwrap_err().is_panic());
    assert_eq!(remaining(&slots, "alice"), 1);
}

#[tokio::test]
async fn settle_function_is_called_once_per_response() {
    let (engine, _) = engine();
    let (users, all) = (limiter(&engine, "users", 9), limiter(&engine, "all", 9));
    let calls = Arc::new(AtomicU64::new(0));
    let counter = calls.clone();
    let layer = LimitLayer::new()
        .limit(users.clone(), by_user())
        .limit(all.clone(), key::constant("all"))
        .settle(move |_| 2 + counter.fetch_add(1, Ordering::Relaxed));
    drop(layer.layer(hello()).oneshot(as_alice()).await.unwrap());
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert_eq!((remaining(&users, "alice"), remaining(&all, "all")), (7, 7));
}

#[tokio::test]
async fn limit_charged_twice_with_equal_keys_is_settled_for_both() {
    let (engine, _) = engine();
    let users = limiter(&engine, "users", 10);
    let layer = LimitLayer::new()
        .limit(users.clone(), by_user())
        .limit(users.clone(), key::header("x-other"))
        .settle(|_| 3);
    let request = Request::get("/").header("x-user", "a").header("x-other", "a").body(()).unwrap();
    drop(layer.layer(hello()).oneshot(request).await.unwrap());
    assert_eq!(remaining(&users, "a"), 4);
}

#[tokio::test]
async fn response_longer_than_its_slot_lease_loses_the_slot() {
    let (engine, clock) = engine();
    let lease = Some(Duration::from_secs(30));
    let slots = engine.limiter("slots", Policy::concurrency(1, lease).unwrap()).unwrap();
    let endless = get(|| async {
        Body::from_stream(stream::repeat_with(|| Ok::<_, std::io::Error>("chunk")))
    });
    let layer = LimitLayer::new().limit(slots, by_user());
    let server = TestServer::start(Router::new().route("/", endless).layer(layer)).await;
    let user = [("x-user", "alice")];
    let mut body = server.send(Method::GET, "/", &user).await.into_body();
    clock.advance(Duration::from_secs(29));
    assert!(body.frame().await.unwrap().is_ok());
    assert_eq!(server.send(Method::GET, "/", &user).await.status(), 429);
    clock.advance(Duration::from_secs(2));
    assert!(body.frame().await.unwrap().is_ok(), "it is still being sent");
    assert_eq!(server.send(Method::GET, "/", &user).await.status(), 200);
}

#[tokio::test]
async fn upgrade_ends_the_response_and_releases_its_slot() {
    let (engine, _) = engine();
    let slots = one_slot(&engine);
    let upgrade = service_fn(|_: Request<()>| async {
        let mut response = Response::new(Full::<Bytes>::default());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        Ok::<_, Infallible>(response)
    });
    let service = LimitLayer::new().limit(slots.clone(), by_user()).layer(upgrade);
    let _open = service.oneshot(as_alice()).await.unwrap();
    assert_eq!(remaining(&slots, "alice"), 1);
}
