//! What a request has really cost, once its response is over.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use tidegate::admission::{Admission, Rules};
use tidegate::guard::Guarded;
use tidegate::{Engine, Limiter, MemoryStore, Policy, Store, StoreHandle};
use tidegate_http::field::Unit;
use tidegate_http::layer::{AdmissionLayer, LimitLayer, ResponseEnd, ResponseSummary, Rule};
use tokio::sync::mpsc;

use super::door::Door;
use super::{by_user, engine, left, limiter};

/// What was told to settle, in order.
fn listening() -> (
    impl Fn(&ResponseSummary) -> u64 + Send + Sync + Clone,
    mpsc::UnboundedReceiver<ResponseSummary>,
) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let tell = move |served: &ResponseSummary| {
        sender.send(*served).unwrap();
        1
    };
    (tell, receiver)
}

fn pages() -> Router {
    let chunks = || stream::iter([Ok::<_, std::io::Error>("12345"), Ok("67890")]);
    Router::new()
        .route("/", get(|| async { "0123456789" }))
        .route("/failed", get(|| async { StatusCode::INTERNAL_SERVER_ERROR }))
        .route("/empty", get(|| async { StatusCode::NO_CONTENT }))
        .route("/chunks", get(move || async move { Body::from_stream(chunks()) }))
        .route(
            "/long",
            get(|| async {
                // A length that is said, and a body that does not know it.
                let body = Body::from_stream(stream::iter([Ok::<_, std::io::Error>("12345")]));
                ([("content-length", "5")], body).into_response()
            }),
        )
}

#[tokio::test]
async fn what_failed_on_our_side_is_given_back() {
    let (engine, _) = engine();
    let limit = limiter(&engine, "users", 10);
    let layer = LimitLayer::new().limit(limit.clone(), by_user()).cost(|_| 4).settle(|served| {
        let failed = served.status().is_none_or(|status| status.is_server_error());
        if failed { 0 } else { 4 }
    });
    let door = Door::open(pages().layer(layer)).await;
    let asked = door.get("/failed", &[("x-user", "alice")]).await;
    assert_eq!((asked.status, asked.header("ratelimit")), (500, Some(r#""users";r=6;t=4"#)));
    assert_eq!(left(&limit, "alice"), 10);
    assert_eq!(door.as_user("alice").await.status, 200);
    assert_eq!(left(&limit, "alice"), 6);
}

#[tokio::test]
async fn content_is_charged_by_its_bytes_and_requests_are_not() {
    let (engine, _) = engine();
    let (requests, bytes) = (limiter(&engine, "requests", 10), limiter(&engine, "bytes", 12));
    let by_size = Rule::new(bytes.clone(), by_user()).cost(|_| 1).settle(ResponseSummary::bytes);
    let layer = LimitLayer::new().limit(requests.clone(), by_user()).rule(by_size);
    let door = Door::open(pages().layer(layer)).await;
    let user = [("x-user", "alice")];
    assert_eq!(door.get("/chunks", &user).await.body, "1234567890");
    assert_eq!((left(&requests, "alice"), left(&bytes, "alice")), (9, 2));
    // More than there was: into debt, and the next one waits for it.
    assert_eq!(door.get("/", &user).await.status, 200);
    assert_eq!((left(&requests, "alice"), left(&bytes, "alice")), (8, 0));
    let refused = door.get("/", &user).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("9")));
    assert_eq!(left(&requests, "alice"), 8);
}

#[tokio::test]
async fn the_end_of_a_response_is_told_once_and_as_it_was() {
    let (engine, _) = engine();
    let (tell, mut told) = listening();
    let layer = LimitLayer::new().limit(limiter(&engine, "users", 99), by_user()).settle(tell);
    let door = Door::open(pages().layer(layer)).await;
    for (method, path, status, bytes) in [
        (Method::GET, "/", 200, 10),
        (Method::GET, "/chunks", 200, 10),
        (Method::GET, "/long", 200, 5),
        (Method::GET, "/empty", 204, 0),
        (Method::GET, "/failed", 500, 0),
        (Method::HEAD, "/", 200, 0),
        (Method::HEAD, "/chunks", 200, 0),
    ] {
        door.ask(method.clone(), path, &[]).await;
        let served = told.recv().await.unwrap();
        let seen = (served.status().unwrap().as_u16(), served.bytes(), served.end());
        assert_eq!(seen, (status, bytes, ResponseEnd::Whole), "{method} {path}");
    }
    assert!(told.try_recv().is_err());
}

#[tokio::test]
async fn a_stream_that_breaks_is_cut() {
    let (engine, _) = engine();
    let (tell, mut told) = listening();
    let layer = LimitLayer::new().limit(limiter(&engine, "users", 9), by_user()).settle(tell);
    let (sender, receiver) = mpsc::unbounded_channel();
    let receiver = Arc::new(Mutex::new(Some(receiver)));
    let handler = get(move || async move {
        let receiver: mpsc::UnboundedReceiver<_> = receiver.lock().unwrap().take().unwrap();
        Body::from_stream(stream::unfold(receiver, |mut receiver| async move {
            Some((receiver.recv().await?, receiver))
        }))
    });
    let door = Door::open(Router::new().route("/", handler).layer(layer)).await;
    sender.send(Ok("12345")).unwrap();
    let mut body = door.begin(Method::GET, "/", &[]).await.into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "12345");
    sender.send(Err(std::io::Error::other("lost"))).unwrap();
    assert!(body.frame().await.unwrap().is_err());
    let served = told.recv().await.unwrap();
    assert_eq!((served.bytes(), served.end()), (5, ResponseEnd::Cut));
}

#[tokio::test]
async fn a_caller_that_goes_away_cuts_its_stream() {
    let (engine, _) = engine();
    let (tell, mut told) = listening();
    let limit = limiter(&engine, "users", 9);
    let layer = LimitLayer::new().limit(limit, by_user()).settle(tell);
    // It goes on for as long as somebody listens.
    let endless =
        || stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[0; 4096])));
    let handler = get(move || async move { Body::from_stream(endless()) });
    let door = Door::open(Router::new().route("/", handler).layer(layer)).await;
    let mut body = door.begin(Method::GET, "/", &[]).await.into_body();
    assert!(body.frame().await.unwrap().is_ok());
    drop(body);
    let served = told.recv().await.unwrap();
    assert_eq!((served.status(), served.end()), (Some(StatusCode::OK), ResponseEnd::Cut));
    assert!(served.bytes() >= 4_096);
}

#[tokio::test]
async fn a_request_that_is_dropped_before_its_response_has_no_status() {
    let (engine, _) = engine();
    let (tell, mut told) = listening();
    let layer = LimitLayer::new().limit(limiter(&engine, "users", 9), by_user()).settle(tell);
    let (started, mut starts) = mpsc::unbounded_channel();
    let handler = get(move || async move {
        started.send(()).unwrap();
        std::future::pending::<Response>().await
    });
    let door = Door::open(Router::new().route("/", handler).layer(layer)).await;
    let asking = door.begin(Method::GET, "/", &[]);
    tokio::select! {
        _ = asking => panic!("it never answers"),
        _ = starts.recv() => {}
    }
    let served = told.recv().await.unwrap();
    assert_eq!((served.status(), served.bytes(), served.end()), (None, 0, ResponseEnd::Cut));
}

#[tokio::test]
async fn a_store_that_is_waited_for_is_settled_too() {
    let store = Arc::new(MemoryStore::new());
    let guarded: Arc<dyn Store> = Arc::new(Guarded::builder(store).build().unwrap());
    let engine: Engine = Engine::on(StoreHandle::shared(guarded));
    let slow = |capacity| Policy::per(1, Duration::from_secs(86_400)).capacity(capacity).build();
    let limit = engine.limiter("users", slow(10).unwrap()).unwrap();
    let slots = engine.limiter("slots", Policy::concurrency(1, None).unwrap()).unwrap();
    let layer = LimitLayer::new()
        .rule(Rule::new(limit.clone(), by_user()).cost(|_| 1).settle(|_| 3))
        .limit(slots.clone(), by_user());
    let door = Door::open(pages().layer(layer)).await;
    assert_eq!(door.as_user("alice").await.status, 200);
    // The task that settles is on its way.
    wait_for(&limit, 7).await;
    wait_for(&slots, 1).await;
    assert_eq!(door.as_user("alice").await.status, 200);
    wait_for(&limit, 4).await;
}

#[tokio::test]
async fn a_limit_by_bytes_that_costs_nothing_before_limits_all_the_same() {
    let (engine, _) = engine();
    let bytes = limiter(&engine, "bytes", 15);
    let rule = Rule::new(bytes.clone(), by_user())
        .unit(Unit::CONTENT_BYTES)
        .cost(|_| 0)
        .settle(ResponseSummary::bytes);
    let door = Door::open(pages().layer(LimitLayer::new().rule(rule))).await;
    let user = [("x-user", "alice")];
    assert_eq!(door.get("/empty", &user).await.status, 204);
    assert_eq!(left(&bytes, "alice"), 15, "what was free is given back");
    assert_eq!(door.get("/", &user).await.status, 200);
    assert_eq!(left(&bytes, "alice"), 5);
    assert_eq!(door.get("/", &user).await.status, 200);
    let refused = door.get("/", &user).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("6")));
}

#[tokio::test]
async fn an_admission_by_bytes_limits_too() {
    let (engine, _) = engine();
    let bucket = Policy::per_second(1).capacity(15).build().unwrap();
    let admission = Admission::new(&engine, Rules::none().client(bucket)).unwrap();
    let layer =
        AdmissionLayer::new(admission).client(by_user()).cost(|_| 0).settle(ResponseSummary::bytes);
    let door = Door::open(pages().layer(layer)).await;
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(door.as_user("alice").await.status);
    }
    assert_eq!(statuses, [200, 200, 429]);
}

#[tokio::test]
async fn absurd_costs_are_refused_and_absurd_settlements_are_charged() {
    let (engine, _) = engine();
    let users = limiter(&engine, "users", 10);
    let layer = LimitLayer::new().limit(users.clone(), by_user());
    let door = Door::open(pages().layer(layer.clone().cost(|_| u64::MAX))).await;
    assert_eq!(door.as_user("alice").await.status, 429);
    let door = Door::open(pages().layer(layer.settle(|_| u64::MAX))).await;
    assert_eq!(door.as_user("alice").await.status, 200);
    assert_eq!(left(&users, "alice"), 0);
}

async fn wait_for(limiter: &Limiter, left: u64) {
    while limiter.peek("alice").cost(0).await.unwrap().remaining() != left {
        tokio::task::yield_now().await;
    }
}
