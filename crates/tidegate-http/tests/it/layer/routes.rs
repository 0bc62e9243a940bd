//! Policies per route.

use axum::Router;
use axum::routing::get;
use http::Method;
use tidegate_http::key;
use tidegate_http::layer::LimitLayer;
use tidegate_http::route::PerRoute;

use super::test_server::{TestResponse, TestServer};
use super::{engine, limiter, remaining};

fn policy(response: &TestResponse) -> Option<&str> {
    response.header("ratelimit-policy")
}

#[tokio::test]
async fn route_and_method_select_the_policy() {
    let (engine, _) = engine();
    let of = |name| LimitLayer::new().limit(limiter(&engine, name, 9), key::client_ip());
    let limits = PerRoute::new()
        .route("/users/{id}", of("users"))
        .method(Method::GET, "/orders", of("reading"))
        .method(Method::POST, "/orders", of("ordering"))
        .fallback(of("rest"));
    let page = || get(|| async { "page" }).post(|| async { "page" }).put(|| async { "page" });
    let router = Router::new()
        .route("/users/{id}", page())
        .route("/orders", page())
        .route("/about", page())
        .layer(limits);
    let server = TestServer::start(router).await;
    for (method, path, name) in [
        (Method::GET, "/users/1", "users"),
        (Method::PUT, "/users/2", "users"),
        (Method::GET, "/orders", "reading"),
        (Method::HEAD, "/orders", "reading"),
        (Method::POST, "/orders", "ordering"),
        (Method::PUT, "/orders", "rest"),
        (Method::GET, "/about", "rest"),
        (Method::GET, "/nowhere", "rest"),
    ] {
        let response = server.request(method.clone(), path, &[]).await;
        assert_eq!(
            policy(&response),
            Some(format!("\"{name}\";q=9;w=9").as_str()),
            "{method} {path}"
        );
    }
}

#[tokio::test]
async fn route_without_a_policy_is_not_limited() {
    let (engine, _) = engine();
    let limit = limiter(&engine, "users", 1);
    let layer = LimitLayer::new().limit(limit, key::client_ip());
    let router = Router::new()
        .route("/users/{id}", get(|| async { "user" }))
        .route("/about", get(|| async { "about" }))
        .layer(PerRoute::new().route("/users/{id}", layer));
    let server = TestServer::start(router).await;
    for _ in 0..3 {
        let response = server.get("/about", &[]).await;
        assert_eq!((response.status, policy(&response)), (200, None));
    }
    assert_eq!(server.get("/users/1", &[]).await.status, 200);
    assert_eq!(server.get("/users/2", &[]).await.status, 429);
}

#[tokio::test]
async fn matched_routes_are_keys_and_others_share_one() {
    let (engine, _) = engine();
    let limit = limiter(&engine, "routes", 5);
    let layer = LimitLayer::new().limit(limit.clone(), key::matched_path());
    let router = Router::new().route("/users/{id}", get(|| async { "user" })).layer(layer);
    let server = TestServer::start(router).await;
    for path in ["/users/1", "/users/2", "/.env", "/wp-login.php", "/x"] {
        server.get(path, &[]).await;
    }
    assert_eq!((remaining(&limit, "/users/{id}"), remaining(&limit, "other")), (3, 2));
}
