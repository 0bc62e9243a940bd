//! Slots and settlements are owed until they are given back, whatever goes wrong meanwhile:
//! callers that leave, stores that fail, functions that panic.

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
use tidegate_http::layer::{AdmissionLayer, LimitLayer, Rule};
use tidegate_testkit::faulty_store::{Asked, Behaviour, FaultyStore, Timing, Verb};
use tower::{Layer, Service, ServiceExt, service_fn};

use super::door::Door;
use super::modes::Log;
use super::stores::{Faulty, engine_on, hourly, remote};
use super::{by_user, engine, left, limiter};

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

/// Asks, and goes away while the answer of the store is under way.
fn ask_and_leave(asking: impl Future) {
    let mut asking = Box::pin(asking);
    assert!(asking.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

async fn wait_for(limiter: &Limiter, left: u64) {
    let arrived = async {
        while limiter.peek("alice").cost(0).await.unwrap().remaining() != left {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), arrived).await.unwrap();
}

#[tokio::test]
async fn a_slot_taken_for_a_caller_that_is_gone_is_given_back() {
    let slots = one_slot(&engine_on(remote()));
    let service = LimitLayer::new().limit(slots.clone(), by_user()).layer(hello());
    ask_and_leave(service.clone().oneshot(as_alice()));
    assert_eq!(slots.peek("alice").cost(0).await.unwrap().remaining(), 0, "it was taken");
    wait_for(&slots, 1).await;
    assert_eq!(service.oneshot(as_alice()).await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_charge_for_a_caller_that_is_gone_is_settled_as_one_without_a_response() {
    let limit = engine_on(remote()).limiter("users", hourly(10)).unwrap();
    let layer = LimitLayer::new()
        .limit(limit.clone(), by_user())
        .cost(|_| 10)
        .settle(|served| if served.status().is_none() { 3 } else { 10 });
    ask_and_leave(layer.layer(hello()).oneshot(as_alice()));
    wait_for(&limit, 7).await;
}

#[tokio::test]
async fn an_admission_settles_for_callers_that_are_gone_as_well() {
    let rules = Rules::none().client(hourly(10));
    let admission = Admission::new(&engine_on(remote()), rules).unwrap();
    let layer = AdmissionLayer::new(admission.clone()).client(by_user()).cost(|_| 10).settle(|_| 0);
    ask_and_leave(layer.layer(hello()).oneshot(as_alice()));
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
async fn a_caller_that_leaves_before_anybody_asked_is_charged_nothing() {
    let slots = one_slot(&engine_on(remote()));
    let service = LimitLayer::new().limit(slots.clone(), by_user()).layer(hello());
    drop(service.clone().call(as_alice()));
    assert_eq!(service.oneshot(as_alice()).await.unwrap().status(), 200);
}

#[test]
fn outside_of_a_runtime_a_caller_that_is_gone_is_told_of_and_harms_nobody() {
    let log = Log::default();
    let _listening = log.listen();
    let service = LimitLayer::new().limit(one_slot(&engine_on(remote())), by_user()).layer(hello());
    ask_and_leave(service.oneshot(as_alice()));
    assert_eq!(log.count("outside of any tokio runtime"), 1, "{}", log.text());
}

fn settled_with_a_slot(store: Faulty) -> (LimitLayer, Limiter, Limiter) {
    let engine = engine_on(store);
    let users = engine.limiter("users", hourly(10)).unwrap();
    let slots = one_slot(&engine);
    let layer = LimitLayer::new()
        .rule(Rule::new(users.clone(), by_user()).settle(|_| 3))
        .limit(slots.clone(), by_user());
    (layer, users, slots)
}

#[tokio::test]
async fn a_store_that_answers_later_is_settled_once() {
    let store = FaultyStore::new(MemoryStore::new(), Timing::Deferred);
    let (layer, users, slots) = settled_with_a_slot(store.clone());
    let response = layer.layer(hello()).oneshot(as_alice()).await.unwrap();
    drop(response.into_body().collect().await.unwrap());
    wait_for(&slots, 1).await;
    assert_eq!(store.operations_of(Verb::Settle), 1);
    wait_for(&users, 7).await;
}

/// They once were two trips, one after the other.
#[tokio::test]
async fn a_remote_store_is_settled_and_given_its_slot_in_one_call() {
    let store = remote();
    let (layer, users, slots) = settled_with_a_slot(store.clone());
    let response = layer.layer(hello()).oneshot(as_alice()).await.unwrap();
    assert_eq!(store.submissions(), 1, "the request itself");
    drop(response.into_body().collect().await.unwrap());
    while store.submissions() < 2 {
        tokio::task::yield_now().await;
    }
    // The answers of that call are all there is to wait for.
    wait_for(&slots, 1).await;
    wait_for(&users, 7).await;
    assert_eq!(store.submissions(), 2 + 2, "one call, and two looks of this test");
}

#[tokio::test]
async fn a_settlement_that_fails_does_not_keep_the_slot() {
    let rejected = |asked: Asked<'_>| match asked.operation {
        Operation::Settle { .. } => Some(StoreError::Rejected("not this one".into())),
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
async fn a_settle_function_that_panics_is_left_out_and_told_of_once() {
    let log = Log::default();
    let _listening = log.listen();
    let (engine, _) = engine();
    let (users, slots) = (limiter(&engine, "users", 10), one_slot(&engine));
    let layer = LimitLayer::new()
        .rule(Rule::new(users.clone(), by_user()).settle(|_| panic!("a mistake about alice")))
        .limit(slots, by_user());
    let service = layer.layer(hello());
    for _ in 0..3 {
        let response = service.clone().oneshot(as_alice()).await.unwrap();
        assert_eq!(response.status(), 200, "the slot is free");
        assert!(catch_unwind(AssertUnwindSafe(move || drop(response))).is_ok());
    }
    assert_eq!(left(&users, "alice"), 7, "what was taken stays taken");
    assert_eq!(log.count("panicked"), 1, "{}", log.text());
    assert!(!log.text().contains("alice"));
}

async fn broken(_: Request<()>) -> Result<Response<Full<Bytes>>, Infallible> {
    panic!("a mistake of the handler")
}

/// Two panics at once would end the process, and with it this test.
#[tokio::test]
async fn a_settle_function_that_panics_after_its_handler_did_aborts_nothing() {
    let (engine, _) = engine();
    let (users, slots) = (limiter(&engine, "users", 10), one_slot(&engine));
    let layer = LimitLayer::new()
        .limit(users, by_user())
        .limit(slots.clone(), by_user())
        .settle(|served| u64::from(served.status().unwrap().is_success()));
    let serving = tokio::spawn(layer.layer(service_fn(broken)).oneshot(as_alice()));
    assert!(serving.await.unwrap_err().is_panic());
    assert_eq!(left(&slots, "alice"), 1);
}

#[tokio::test]
async fn a_layer_asks_once_what_a_response_cost() {
    let (engine, _) = engine();
    let (users, all) = (limiter(&engine, "users", 9), limiter(&engine, "all", 9));
    let asked = Arc::new(AtomicU64::new(0));
    let counter = asked.clone();
    let layer = LimitLayer::new()
        .limit(users.clone(), by_user())
        .limit(all.clone(), key::constant("all"))
        .settle(move |_| 2 + counter.fetch_add(1, Ordering::Relaxed));
    drop(layer.layer(hello()).oneshot(as_alice()).await.unwrap());
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    assert_eq!((left(&users, "alice"), left(&all, "all")), (7, 7));
}

#[tokio::test]
async fn one_limit_by_two_keys_that_meet_is_settled_for_both() {
    let (engine, _) = engine();
    let users = limiter(&engine, "users", 10);
    let layer = LimitLayer::new()
        .limit(users.clone(), by_user())
        .limit(users.clone(), key::header("x-other"))
        .settle(|_| 3);
    let request = Request::get("/").header("x-user", "a").header("x-other", "a").body(()).unwrap();
    drop(layer.layer(hello()).oneshot(request).await.unwrap());
    assert_eq!(left(&users, "a"), 4);
}

#[tokio::test]
async fn a_response_that_outlasts_the_lease_of_its_slot_loses_it() {
    let (engine, clock) = engine();
    let lease = Some(Duration::from_secs(30));
    let slots = engine.limiter("slots", Policy::concurrency(1, lease).unwrap()).unwrap();
    let endless = get(|| async {
        Body::from_stream(stream::repeat_with(|| Ok::<_, std::io::Error>("chunk")))
    });
    let layer = LimitLayer::new().limit(slots, by_user());
    let door = Door::open(Router::new().route("/", endless).layer(layer)).await;
    let user = [("x-user", "alice")];
    let mut body = door.begin(Method::GET, "/", &user).await.into_body();
    clock.advance(Duration::from_secs(29));
    assert!(body.frame().await.unwrap().is_ok());
    assert_eq!(door.begin(Method::GET, "/", &user).await.status(), 429);
    clock.advance(Duration::from_secs(2));
    assert!(body.frame().await.unwrap().is_ok(), "it is still being sent");
    assert_eq!(door.begin(Method::GET, "/", &user).await.status(), 200);
}

#[tokio::test]
async fn an_upgrade_ends_the_response_and_gives_its_slot_back() {
    let (engine, _) = engine();
    let slots = one_slot(&engine);
    let upgrade = service_fn(|_: Request<()>| async {
        let mut response = Response::new(Full::<Bytes>::default());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        Ok::<_, Infallible>(response)
    });
    let service = LimitLayer::new().limit(slots.clone(), by_user()).layer(upgrade);
    let _open = service.oneshot(as_alice()).await.unwrap();
    assert_eq!(left(&slots, "alice"), 1);
}
