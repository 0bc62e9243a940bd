//! Unavailable stores, and servers that do not provide peer addresses.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tidegate::guard::GuardedStore;
use tidegate::{Engine, FailureRule, Policy, StoreHandle};
use tidegate_http::key;
use tidegate_http::layer::LimitLayer;

use super::faulty_stores::{engine_on, unavailable};
use super::modes::Log;
use super::test_server::TestServer;
use super::{by_user, engine, limiter};

fn router(layer: LimitLayer) -> Router {
    Router::new().route("/", get(|| async { "served" })).layer(layer)
}

fn policy() -> Policy {
    Policy::per_second(1).build().unwrap()
}

#[tokio::test]
async fn unavailable_store_is_503_and_logging_is_throttled() {
    let log = Log::default();
    let _capture = log.capture();
    let limit = engine_on(unavailable()).limiter("users", policy()).unwrap();
    let server = TestServer::start(router(LimitLayer::new().limit(limit.clone(), by_user()))).await;
    for _ in 0..5 {
        let response = server.as_user("alice").await;
        assert_eq!((response.status, response.header("cache-control")), (503, Some("no-store")));
        assert_eq!((response.header("retry-after"), response.header("ratelimit")), (None, None));
        let kind = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
        assert_eq!(response.json()["type"], kind);
    }
    assert_eq!(log.count("rate limit check failed"), 1, "{}", log.text());
    assert!(!log.text().contains("alice"));
    let server =
        TestServer::start(router(LimitLayer::new().limit(limit, by_user()).shadow())).await;
    assert_eq!(server.as_user("alice").await.status, 200, "shadow mode refuses nothing");
}

#[tokio::test]
async fn guard_that_fails_closed_is_503_with_a_retry_hint() {
    let store =
        GuardedStore::builder(unavailable()).default_rule(FailureRule::Closed).build().unwrap();
    let engine: Engine = Engine::on(StoreHandle::shared(Arc::new(store.clone())));
    let limit = engine.limiter("users", policy()).unwrap();
    let server = TestServer::start(router(LimitLayer::new().limit(limit, by_user()))).await;
    while store.is_up() {
        assert_eq!(server.as_user("alice").await.status, 503);
    }
    let response = server.as_user("alice").await;
    assert_eq!(response.status, 503);
    let hint: u64 = response.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=6).contains(&hint), "{hint}");
}

#[tokio::test]
async fn guard_with_local_share_decides_as_usual() {
    let store = GuardedStore::builder(unavailable()).build().unwrap();
    let engine: Engine = Engine::on(StoreHandle::shared(Arc::new(store)));
    let slow = Policy::per(1, Duration::from_secs(86_400)).capacity(1).build().unwrap();
    let limit = engine.limiter("users", slow).unwrap();
    let server = TestServer::start(router(LimitLayer::new().limit(limit, by_user()))).await;
    assert_eq!(server.as_user("alice").await.status, 200);
    assert_eq!(server.as_user("alice").await.status, 429);
}

#[tokio::test]
async fn unknown_peer_address_is_refused_and_logged_once() {
    let log = Log::default();
    let _capture = log.capture();
    let (engine, _) = engine();
    let layer = LimitLayer::new().limit(limiter(&engine, "users", 9), key::client_ip());
    let server = TestServer::start_without_peers(router(layer)).await;
    for _ in 0..3 {
        let response = server.get("/", &[]).await;
        assert_eq!(response.status, 500);
        assert_eq!(response.json()["type"], "urn:tidegate:problem:no-peer");
        let detail = response.json()["detail"].to_string();
        assert!(detail.contains("into_make_service_with_connect_info::<SocketAddr>()"), "{detail}");
    }
    assert_eq!(log.count("into_make_service_with_connect_info"), 1, "{}", log.text());
}
