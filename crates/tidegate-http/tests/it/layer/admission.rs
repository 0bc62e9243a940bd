//! The admission layer: tiers, pending requests and rejections.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use futures_util::stream;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::json;
use tidegate::admission::{Admission, Caller, Rules, Tier};
use tidegate::guard::GuardedStore;
use tidegate::{Engine, MemoryStore, Policy};
use tidegate_http::key;
use tidegate_http::layer::{AdmissionLayer, RequestDecision};
use tokio::sync::Notify;

use super::engine;
use super::test_server::{TestResponse, TestServer};

fn bucket(capacity: u64) -> Policy {
    Policy::per_second(1).capacity(capacity).build().unwrap()
}

/// A layer with callers identified by the headers `x-org` and `x-user`.
fn layer(admission: Admission) -> AdmissionLayer {
    AdmissionLayer::new(admission).organization(key::header("x-org")).client(key::header("x-user"))
}

async fn request(server: &TestServer, organization: &str, user: &str) -> TestResponse {
    server.get("/", &[("x-org", organization), ("x-user", user)]).await
}

#[tokio::test]
async fn rejections_name_the_tier() {
    let (engine, _) = engine();
    let rules = Rules::default().client(bucket(2)).organization(bucket(3));
    let admission = Admission::new(&engine, rules).unwrap();
    let app = Router::new().route("/", get(|| async { "served" })).layer(layer(admission));
    let server = TestServer::start(app).await;
    let first = request(&server, "acme", "alice").await;
    assert_eq!(first.status, 200);
    assert_eq!(
        first.header("ratelimit-policy"),
        Some(r#""client";q=2;w=2, "organization";q=3;w=3"#)
    );
    assert_eq!(first.header("ratelimit"), Some(r#""client";r=1;t=1, "organization";r=2;t=1"#));
    assert_eq!(request(&server, "acme", "alice").await.status, 200);

    let by_client = request(&server, "acme", "alice").await;
    assert_eq!((by_client.status, by_client.header("retry-after")), (429, Some("1")));
    assert_eq!(by_client.json()["level"], "client");
    assert_eq!(by_client.json()["reason"], "tokens_exhausted");
    assert_eq!(by_client.json()["violated-policies"], json!(["client"]));

    assert_eq!(request(&server, "acme", "bob").await.status, 200);
    let by_organization = request(&server, "acme", "carol").await;
    assert_eq!(by_organization.status, 429);
    assert_eq!(by_organization.json()["level"], "organization");
    assert_eq!(request(&server, "other", "alice").await.status, 200);
}

#[tokio::test]
async fn request_is_pending_until_its_response_ends() {
    let (engine, _) = engine();
    let admission = Admission::new(&engine, Rules::none().backpressure(1)).unwrap();
    let (go_on, entered) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (inside, arrived) = (go_on.clone(), entered.clone());
    let slow = get(move || async move {
        arrived.notify_one();
        inside.notified().await;
        Body::from_stream(stream::iter([Ok::<_, std::io::Error>("ab"), Ok("cd")]))
    });
    let app = Router::new()
        .route("/slow", slow)
        .route("/", get(|| async { "served" }))
        .layer(layer(admission.clone()));
    let server = TestServer::start(app).await;
    let slow_request = server.send(Method::GET, "/slow", &[]);
    let (response, ()) = tokio::join!(slow_request, async {
        entered.notified().await;
        assert_eq!(admission.pending(), 1);
        let outside = admission.track_request();
        let rejected = server.get("/", &[]).await;
        assert_eq!(rejected.status, 503);
        assert_eq!(rejected.header("retry-after"), Some("1"));
        assert_eq!(rejected.header("retry-after-ms"), Some("10"));
        assert_eq!(
            rejected.json(),
            json!({
                "type": "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
                "title": "Temporarily reduced capacity",
                "status": 503,
                "detail": "The service is overloaded.",
                "retry_after_ms": 10,
                "level": "backpressure",
                "reason": "queue_depth",
            })
        );
        drop(outside);
        assert_eq!(server.get("/", &[]).await.status, 200);
        go_on.notify_one();
    });
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "abcd");
    assert_eq!(admission.pending(), 0);
}

#[tokio::test]
async fn abandoned_request_is_no_longer_pending() {
    let (engine, _) = engine();
    let admission = Admission::new(&engine, Rules::default()).unwrap();
    let entered = Arc::new(Notify::new());
    let arrived = entered.clone();
    let forever = get(move || async move {
        arrived.notify_one();
        std::future::pending::<&str>().await
    });
    let app = Router::new().route("/", forever).layer(layer(admission.clone()));
    let server = TestServer::start(app).await;
    tokio::select! {
        _ = server.send(Method::GET, "/", &[]) => unreachable!("the handler never responds"),
        () = entered.notified() => {}
    }
    // Dropping the client future closes its connection; wait until the server notices.
    let disconnected = async {
        while admission.pending() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), disconnected).await.unwrap();
}

#[tokio::test]
async fn costs_are_settled_in_both_tiers() {
    let (engine, _) = engine();
    let rules = Rules::default().client(bucket(10)).organization(bucket(20));
    let admission = Admission::new(&engine, rules).unwrap();
    let app = Router::new()
        .route("/", get(|| async { "0123456789" }))
        .route("/failed", get(|| async { StatusCode::INTERNAL_SERVER_ERROR }))
        .layer(layer(admission.clone()).cost(|_| 8).settle(|summary| {
            if summary.status().is_none_or(|status| status.is_server_error()) { 0 } else { 3 }
        }));
    let server = TestServer::start(app).await;
    let callers = [("x-org", "acme"), ("x-user", "alice")];
    let failed = server.get("/failed", &callers).await;
    assert_eq!(failed.header("ratelimit"), Some(r#""client";r=2;t=8, "organization";r=12;t=8"#));
    let served = server.get("/", &callers).await;
    assert_eq!(served.header("ratelimit"), Some(r#""client";r=2;t=8, "organization";r=12;t=8"#));
    let alice = Caller::new().organization("acme").client("alice");
    for (tier, remaining) in [(Tier::Client, 7), (Tier::Organization, 17)] {
        let key = admission.key(tier, alice).unwrap();
        let limiter = admission.limiter(tier).unwrap();
        assert_eq!(limiter.peek(&key).cost(0).now().unwrap().remaining(), remaining);
    }
}

#[tokio::test]
async fn shadow_mode_exposes_the_decision_to_the_handler() {
    let (engine, _) = engine();
    let rules = Rules::none().client(bucket(1)).shadow(true);
    let admission = Admission::new(&engine, rules).unwrap();
    let handler =
        get(|decided: RequestDecision| async move { decided.would_be_refused().to_string() });
    let app = Router::new().route("/", handler).layer(layer(admission).expose());
    let server = TestServer::start(app).await;
    assert_eq!(request(&server, "acme", "alice").await.body, "false");
    let shadowed = request(&server, "acme", "alice").await;
    assert_eq!((shadowed.status, &shadowed.body[..]), (200, &b"true"[..]));
}

#[tokio::test]
async fn shared_store_admits_and_settles() {
    let guarded = GuardedStore::builder(Arc::new(MemoryStore::new())).build().unwrap();
    let engine: Engine = Engine::on(guarded);
    let hourly = Policy::per(1, Duration::from_secs(3_600)).capacity(2).build().unwrap();
    let admission = Admission::new(&engine, Rules::default().client(hourly)).unwrap();
    let app = Router::new()
        .route("/", get(|| async { "served" }))
        .layer(layer(admission.clone()).settle(|_| 0));
    let server = TestServer::start(app).await;
    for _ in 0..5 {
        assert_eq!(
            request(&server, "acme", "alice").await.status,
            200,
            "the cost is returned each time"
        );
        let settled = async {
            let key =
                admission.key(Tier::Client, Caller::new().organization("acme").client("alice"));
            let limiter = admission.limiter(Tier::Client).unwrap();
            while limiter.peek(key.clone().unwrap()).cost(0).await.unwrap().remaining() < 2 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), settled).await.unwrap();
    }
    assert_eq!(admission.pending(), 0);
}
