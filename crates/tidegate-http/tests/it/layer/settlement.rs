//! Settlement of the actual cost of a request when its response ends.

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
use tidegate::guard::GuardedStore;
use tidegate::{Engine, Limiter, MemoryStore, Policy, Store, StoreHandle};
use tidegate_http::field::Unit;
use tidegate_http::layer::{AdmissionLayer, LimitLayer, LimitRule, ResponseEnd, ResponseSummary};
use tokio::sync::mpsc;

use super::test_server::TestServer;
use super::{by_user, engine, limiter, remaining};

/// A settle function, and the summaries it was called with, in order.
fn recording() -> (
    impl Fn(&ResponseSummary) -> u64 + Send + Sync + Clone,
    mpsc::UnboundedReceiver<ResponseSummary>,
) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let on_end = move |summary: &ResponseSummary| {
        sender.send(*summary).unwrap();
        1
    };
    (on_end, receiver)
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
                // A declared content length, with a body that does not know it.
                let body = Body::from_stream(stream::iter([Ok::<_, std::io::Error>("12345")]));
                ([("content-length", "5")], body).into_response()
            }),
        )
}

#[tokio::test]
async fn cost_of_server_errors_is_returned() {
    let (engine, _) = engine();
    let limit = limiter(&engine, "users", 10);
    let layer = LimitLayer::new().limit(limit.clone(), by_user()).cost(|_| 4).settle(|summary| {
        let failed = summary.status().is_none_or(|status| status.is_server_error());
        if failed { 0 } else { 4 }
    });
    let server = TestServer::start(pages().layer(layer)).await;
    let response = server.get("/failed", &[("x-user", "alice")]).await;
    assert_eq!((response.status, response.header("ratelimit")), (500, Some(r#""users";r=6;t=4"#)));
    assert_eq!(remaining(&limit, "alice"), 10);
    assert_eq!(server.as_user("alice").await.status, 200);
    assert_eq!(remaining(&limit, "alice"), 6);
}

#[tokio::test]
async fn content_is_charged_by_bytes_and_requests_by_number() {
    let (engine, _) = engine();
    let (requests, bytes) = (limiter(&engine, "requests", 10), limiter(&engine, "bytes", 12));
    let by_size =
        LimitRule::new(bytes.clone(), by_user()).cost(|_| 1).settle(ResponseSummary::bytes);
    let layer = LimitLayer::new().limit(requests.clone(), by_user()).rule(by_size);
    let server = TestServer::start(pages().layer(layer)).await;
    let user = [("x-user", "alice")];
    assert_eq!(server.get("/chunks", &user).await.body, "1234567890");
    assert_eq!((remaining(&requests, "alice"), remaining(&bytes, "alice")), (9, 2));
    // More than was left: the limit goes into debt, and the next request must wait.
    assert_eq!(server.get("/", &user).await.status, 200);
    assert_eq!((remaining(&requests, "alice"), remaining(&bytes, "alice")), (8, 0));
    let refused = server.get("/", &user).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("9")));
    assert_eq!(remaining(&requests, "alice"), 8);
}

#[tokio::test]
async fn settle_is_called_once_with_the_summary() {
    let (engine, _) = engine();
    let (on_end, mut summaries) = recording();
    let layer = LimitLayer::new().limit(limiter(&engine, "users", 99), by_user()).settle(on_end);
    let server = TestServer::start(pages().layer(layer)).await;
    for (method, path, status, bytes) in [
        (Method::GET, "/", 200, 10),
        (Method::GET, "/chunks", 200, 10),
        (Method::GET, "/long", 200, 5),
        (Method::GET, "/empty", 204, 0),
        (Method::GET, "/failed", 500, 0),
        (Method::HEAD, "/", 200, 0),
        (Method::HEAD, "/chunks", 200, 0),
    ] {
        server.request(method.clone(), path, &[]).await;
        let summary = summaries.recv().await.unwrap();
        let seen = (summary.status().unwrap().as_u16(), summary.bytes(), summary.end());
        assert_eq!(seen, (status, bytes, ResponseEnd::Complete), "{method} {path}");
    }
    assert!(summaries.try_recv().is_err());
}

#[tokio::test]
async fn failed_stream_is_reported_as_cut() {
    let (engine, _) = engine();
    let (on_end, mut summaries) = recording();
    let layer = LimitLayer::new().limit(limiter(&engine, "users", 9), by_user()).settle(on_end);
    let (sender, receiver) = mpsc::unbounded_channel();
    let receiver = Arc::new(Mutex::new(Some(receiver)));
    let handler = get(move || async move {
        let receiver: mpsc::UnboundedReceiver<_> = receiver.lock().unwrap().take().unwrap();
        Body::from_stream(stream::unfold(receiver, |mut receiver| async move {
            Some((receiver.recv().await?, receiver))
        }))
    });
    let server = TestServer::start(Router::new().route("/", handler).layer(layer)).await;
    sender.send(Ok("12345")).unwrap();
    let mut body = server.send(Method::GET, "/", &[]).await.into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "12345");
    sender.send(Err(std::io::Error::other("lost"))).unwrap();
    assert!(body.frame().await.unwrap().is_err());
    let summary = summaries.recv().await.unwrap();
    assert_eq!((summary.bytes(), summary.end()), (5, ResponseEnd::Aborted));
}

#[tokio::test]
async fn disconnect_is_reported_as_cut() {
    let (engine, _) = engine();
    let (on_end, mut summaries) = recording();
    let limit = limiter(&engine, "users", 9);
    let layer = LimitLayer::new().limit(limit, by_user()).settle(on_end);
    // The stream runs until the client disconnects.
    let endless =
        || stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[0; 4096])));
    let handler = get(move || async move { Body::from_stream(endless()) });
    let server = TestServer::start(Router::new().route("/", handler).layer(layer)).await;
    let mut body = server.send(Method::GET, "/", &[]).await.into_body();
    assert!(body.frame().await.unwrap().is_ok());
    drop(body);
    let summary = summaries.recv().await.unwrap();
    assert_eq!((summary.status(), summary.end()), (Some(StatusCode::OK), ResponseEnd::Aborted));
    assert!(summary.bytes() >= 4_096);
}

#[tokio::test]
async fn request_dropped_before_its_response_has_no_status() {
    let (engine, _) = engine();
    let (on_end, mut summaries) = recording();
    let layer = LimitLayer::new().limit(limiter(&engine, "users", 9), by_user()).settle(on_end);
    let (started, mut starts) = mpsc::unbounded_channel();
    let handler = get(move || async move {
        started.send(()).unwrap();
        std::future::pending::<Response>().await
    });
    let server = TestServer::start(Router::new().route("/", handler).layer(layer)).await;
    let sending = server.send(Method::GET, "/", &[]);
    tokio::select! {
        _ = sending => panic!("the handler never responds"),
        _ = starts.recv() => {}
    }
    let summary = summaries.recv().await.unwrap();
    assert_eq!((summary.status(), summary.bytes(), summary.end()), (None, 0, ResponseEnd::Aborted));
}

#[tokio::test]
async fn shared_store_is_settled() {
    let store = Arc::new(MemoryStore::new());
    let guarded: Arc<dyn Store> = Arc::new(GuardedStore::builder(store).build().unwrap());
    let engine: Engine = Engine::on(StoreHandle::shared(guarded));
    let slow = |capacity| Policy::per(1, Duration::from_secs(86_400)).capacity(capacity).build();
    let limit = engine.limiter("users", slow(10).unwrap()).unwrap();
    let slots = engine.limiter("slots", Policy::concurrency(1, None).unwrap()).unwrap();
    let layer = LimitLayer::new()
        .rule(LimitRule::new(limit.clone(), by_user()).cost(|_| 1).settle(|_| 3))
        .limit(slots.clone(), by_user());
    let server = TestServer::start(pages().layer(layer)).await;
    assert_eq!(server.as_user("alice").await.status, 200);
    // A task settles in the background.
    wait_for(&limit, 7).await;
    wait_for(&slots, 1).await;
    assert_eq!(server.as_user("alice").await.status, 200);
    wait_for(&limit, 4).await;
}

#[tokio::test]
async fn limit_by_bytes_with_zero_initial_cost_still_limits() {
    let (engine, _) = engine();
    let bytes = limiter(&engine, "bytes", 15);
    let rule = LimitRule::new(bytes.clone(), by_user())
        .unit(Unit::CONTENT_BYTES)
        .cost(|_| 0)
        .settle(ResponseSummary::bytes);
    let server = TestServer::start(pages().layer(LimitLayer::new().rule(rule))).await;
    let user = [("x-user", "alice")];
    assert_eq!(server.get("/empty", &user).await.status, 204);
    assert_eq!(remaining(&bytes, "alice"), 15, "the cost taken up front is returned");
    assert_eq!(server.get("/", &user).await.status, 200);
    assert_eq!(remaining(&bytes, "alice"), 5);
    assert_eq!(server.get("/", &user).await.status, 200);
    let refused = server.get("/", &user).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("6")));
}

#[tokio::test]
async fn admission_by_bytes_limits() {
    let (engine, _) = engine();
    let bucket = Policy::per_second(1).capacity(15).build().unwrap();
    let admission = Admission::new(&engine, Rules::none().client(bucket)).unwrap();
    let layer =
        AdmissionLayer::new(admission).client(by_user()).cost(|_| 0).settle(ResponseSummary::bytes);
    let server = TestServer::start(pages().layer(layer)).await;
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(server.as_user("alice").await.status);
    }
    assert_eq!(statuses, [200, 200, 429]);
}

#[tokio::test]
async fn huge_costs_are_refused_and_huge_settlements_charged() {
    let (engine, _) = engine();
    let users = limiter(&engine, "users", 10);
    let layer = LimitLayer::new().limit(users.clone(), by_user());
    let server = TestServer::start(pages().layer(layer.clone().cost(|_| u64::MAX))).await;
    assert_eq!(server.as_user("alice").await.status, 429);
    let server = TestServer::start(pages().layer(layer.settle(|_| u64::MAX))).await;
    assert_eq!(server.as_user("alice").await.status, 200);
    assert_eq!(remaining(&users, "alice"), 0);
}

async fn wait_for(limiter: &Limiter, remaining: u64) {
    while limiter.peek("alice").cost(0).await.unwrap().remaining() != remaining {
        tokio::task::yield_now().await;
    }
}
