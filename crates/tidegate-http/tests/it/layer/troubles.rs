//! Stores that do not answer, and servers that forget to tell of their peers.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tidegate::guard::Guarded;
use tidegate::{Engine, FailureRule, Policy, StoreHandle};
use tidegate_http::key;
use tidegate_http::layer::LimitLayer;

use super::door::Door;
use super::modes::Log;
use super::stores::{engine_on, gone};
use super::{by_user, engine, limiter};

fn router(layer: LimitLayer) -> Router {
    Router::new().route("/", get(|| async { "served" })).layer(layer)
}

fn policy() -> Policy {
    Policy::per_second(1).build().unwrap()
}

#[tokio::test]
async fn a_store_that_cannot_answer_is_503_and_logged_once_in_a_while() {
    let log = Log::default();
    let _listening = log.listen();
    let limit = engine_on(gone()).limiter("users", policy()).unwrap();
    let door = Door::open(router(LimitLayer::new().limit(limit.clone(), by_user()))).await;
    for _ in 0..5 {
        let reply = door.as_user("alice").await;
        assert_eq!((reply.status, reply.header("cache-control")), (503, Some("no-store")));
        assert_eq!((reply.header("retry-after"), reply.header("ratelimit")), (None, None));
        let kind = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
        assert_eq!(reply.json()["type"], kind);
    }
    assert_eq!(log.count("limits not checked"), 1, "{}", log.text());
    assert!(!log.text().contains("alice"));
    let door = Door::open(router(LimitLayer::new().limit(limit, by_user()).shadow())).await;
    assert_eq!(door.as_user("alice").await.status, 200, "a shadow stops nobody");
}

#[tokio::test]
async fn a_guard_that_fails_closed_is_503_with_a_hint() {
    let store = Guarded::builder(gone()).default_rule(FailureRule::Closed).build().unwrap();
    let engine: Engine = Engine::on(StoreHandle::shared(Arc::new(store.clone())));
    let limit = engine.limiter("users", policy()).unwrap();
    let door = Door::open(router(LimitLayer::new().limit(limit, by_user()))).await;
    while store.is_up() {
        assert_eq!(door.as_user("alice").await.status, 503);
    }
    let reply = door.as_user("alice").await;
    assert_eq!(reply.status, 503);
    let hint: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=6).contains(&hint), "{hint}");
}

#[tokio::test]
async fn a_guard_that_decides_by_itself_answers_as_ever() {
    let store = Guarded::builder(gone()).build().unwrap();
    let engine: Engine = Engine::on(StoreHandle::shared(Arc::new(store)));
    let slow = Policy::per(1, Duration::from_secs(86_400)).capacity(1).build().unwrap();
    let limit = engine.limiter("users", slow).unwrap();
    let door = Door::open(router(LimitLayer::new().limit(limit, by_user()))).await;
    assert_eq!(door.as_user("alice").await.status, 200);
    assert_eq!(door.as_user("alice").await.status, 429);
}

#[tokio::test]
async fn a_server_that_tells_nothing_of_peers_refuses_and_says_why_once() {
    let log = Log::default();
    let _listening = log.listen();
    let (engine, _) = engine();
    let layer = LimitLayer::new().limit(limiter(&engine, "users", 9), key::client_ip());
    let door = Door::open_without_peers(router(layer)).await;
    for _ in 0..3 {
        let reply = door.get("/", &[]).await;
        assert_eq!(reply.status, 500);
        assert_eq!(reply.json()["type"], "urn:tidegate:problem:no-peer");
        let detail = reply.json()["detail"].to_string();
        assert!(detail.contains("into_make_service_with_connect_info::<SocketAddr>()"), "{detail}");
    }
    assert_eq!(log.count("into_make_service_with_connect_info"), 1, "{}", log.text());
}
