//! Responses to callers: statuses, header fields and bodies; and the keys they are charged to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use serde_json::json;
use tidegate::{Policy, PolicyChange};
use tidegate_http::field::{Reset, Style, Styles, Unit};
use tidegate_http::identity::ClientAddress;
use tidegate_http::key::{self, MissingKey};
use tidegate_http::layer::{LimitLayer, LimitRule};

use super::test_server::TestServer;
use super::{by_user, engine, limiter, remaining};

/// A handler that counts how often it runs.
fn counting(layer: LimitLayer) -> (Router, Arc<AtomicUsize>) {
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = runs.clone();
    let handler = get(move || async move {
        counter.fetch_add(1, Ordering::SeqCst);
        "served"
    });
    (Router::new().route("/", handler.clone()).route("/{*rest}", handler).layer(layer), runs)
}

#[tokio::test]
async fn requests_over_the_limit_are_refused() {
    let (engine, clock) = engine();
    let (router, runs) = counting(LimitLayer::new().limit(limiter(&engine, "users", 2), by_user()));
    let server = TestServer::start(router).await;

    let first = server.as_user("alice").await;
    assert_eq!((first.status, &first.body[..]), (200, &b"served"[..]));
    assert_eq!(first.header("ratelimit-policy"), Some(r#""users";q=2;w=2"#));
    assert_eq!(first.header("ratelimit"), Some(r#""users";r=1;t=1"#));
    assert_eq!(first.header("retry-after"), None);
    assert_eq!(server.as_user("alice").await.header("ratelimit"), Some(r#""users";r=0;t=2"#));

    let refused = server.as_user("alice").await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert_eq!(refused.header("cache-control"), Some("no-store"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.header("retry-after-ms"), Some("1000"));
    assert_eq!(refused.header("ratelimit-policy"), Some(r#""users";q=2;w=2"#));
    assert_eq!(refused.header("ratelimit"), Some(r#""users";r=0;t=2"#));
    assert_eq!(
        refused.json(),
        json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Quota exceeded",
            "status": 429,
            "detail": "The request is over the limit for now; nothing was charged.",
            "violated-policies": ["users"],
            "retry_after_ms": 1_000,
            "limit": 2,
            "remaining": 0,
        })
    );
    assert_eq!(runs.load(Ordering::SeqCst), 2, "the handler did not run");

    assert_eq!(server.as_user("bob").await.status, 200, "another user has its own bucket");
    clock.advance(Duration::from_millis(999));
    let early = server.as_user("alice").await;
    assert_eq!((early.status, early.header("retry-after-ms")), (429, Some("1")));
    clock.advance(Duration::from_millis(1));
    assert_eq!(server.as_user("alice").await.status, 200);
}

#[tokio::test]
async fn cost_above_capacity_has_no_retry_hint() {
    let (engine, _) = engine();
    let layer = LimitLayer::new().limit(limiter(&engine, "users", 2), by_user()).cost(|_| 3);
    let (router, runs) = counting(layer);
    let refused = TestServer::start(router).await.as_user("alice").await;
    assert_eq!(refused.status, 429);
    assert_eq!((refused.header("retry-after"), refused.header("retry-after-ms")), (None, None));
    assert_eq!(refused.json().get("retry_after_ms"), None);
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn all_chosen_styles_are_written() {
    let (engine, _) = engine();
    let styles = [Style::Draft11, Style::Draft06, Style::XRateLimit(Reset::Epoch)];
    let layer = LimitLayer::new()
        .limit(limiter(&engine, "users", 5), by_user())
        .headers(styles)
        .expose_headers();
    let (router, _) = counting(layer);
    let server = TestServer::start(router).await;
    let response = server.as_user("alice").await;
    for (name, value) in [
        ("ratelimit", r#""users";r=4;t=1"#),
        ("ratelimit-policy", r#""users";q=5;w=5"#),
        ("ratelimit-limit", "5"),
        ("ratelimit-remaining", "4"),
        ("ratelimit-reset", "1"),
        ("x-ratelimit-limit", "5"),
        ("x-ratelimit-remaining", "4"),
        ("x-ratelimit-reset", "1794000001"),
        (
            "access-control-expose-headers",
            "retry-after, retry-after-ms, ratelimit, ratelimit-policy, ratelimit-limit, \
             ratelimit-remaining, ratelimit-reset, x-ratelimit-limit, x-ratelimit-remaining, \
             x-ratelimit-reset",
        ),
    ] {
        assert_eq!(response.header(name), Some(value), "{name}");
    }
}

#[tokio::test]
async fn without_styles_only_retry_hints_are_written() {
    let (engine, _) = engine();
    let layer =
        LimitLayer::new().limit(limiter(&engine, "users", 1), by_user()).headers(Styles::NONE);
    let (router, _) = counting(layer);
    let server = TestServer::start(router).await;
    let (admitted, refused) = (server.as_user("alice").await, server.as_user("alice").await);
    for response in [&admitted, &refused] {
        assert!(response.headers.keys().all(|name| !name.as_str().contains("ratelimit")));
    }
    assert_eq!(refused.header("retry-after"), Some("1"));
}

#[tokio::test]
async fn policy_change_shows_from_the_next_request() {
    let (engine, _) = engine();
    let limit = limiter(&engine, "users", 2);
    let (router, _) = counting(LimitLayer::new().limit(limit.clone(), by_user()));
    let server = TestServer::start(router).await;
    for capacity in [2, 7, 3] {
        let policy = Policy::per_second(1).capacity(capacity).build().unwrap();
        limit.reconfigure(policy, PolicyChange::Reset).unwrap();
        for _ in 0..2 {
            let reported = format!("\"users\";q={capacity};w={capacity}");
            let response = server.as_user("alice").await;
            assert_eq!(response.header("ratelimit-policy"), Some(reported.as_str()));
        }
    }
}

#[tokio::test]
async fn only_limits_that_apply_are_reported() {
    let (engine, _) = engine();
    let (user, team) = (limiter(&engine, "user", 9), limiter(&engine, "team", 9));
    let by_team = key::header("x-team");
    let layer = LimitLayer::new()
        .rule(LimitRule::new(user, by_user()).missing(MissingKey::Skip))
        .rule(LimitRule::new(team, by_team).missing(MissingKey::Skip));
    let (router, _) = counting(layer);
    let server = TestServer::start(router).await;
    for _ in 0..2 {
        for (headers, reported) in [
            (&[("x-user", "a")][..], Some(r#""user";q=9;w=9"#)),
            (&[("x-team", "a")], Some(r#""team";q=9;w=9"#)),
            (&[("x-user", "a"), ("x-team", "a")], Some(r#""user";q=9;w=9, "team";q=9;w=9"#)),
            (&[], None),
        ] {
            assert_eq!(server.get("/", headers).await.header("ratelimit-policy"), reported);
        }
    }
}

#[tokio::test]
async fn several_limits_are_charged_together_or_not_at_all() {
    let (engine, _) = engine();
    let (user, all) = (limiter(&engine, "user", 1), limiter(&engine, "all", 3));
    let layer = LimitLayer::new()
        .limit(user.clone(), by_user())
        .rule(LimitRule::new(all.clone(), key::constant("all")).unit(Unit::TOKENS).cost(|_| 2));
    let (router, runs) = counting(layer);
    let server = TestServer::start(router).await;
    let first = server.as_user("alice").await;
    assert_eq!(first.header("ratelimit"), Some(r#""user";r=0;t=1, "all";r=1;t=2"#));
    assert_eq!(
        first.header("ratelimit-policy"),
        Some(r#""user";q=1;w=1, "all";q=3;qu="tokens";w=3"#)
    );
    // The user limit denies, and nothing is taken from the other.
    assert_eq!(server.as_user("alice").await.json()["violated-policies"], json!(["user", "all"]));
    assert_eq!(remaining(&all, "all"), 1);
    // The shared limit denies, and nothing is taken from the user.
    assert_eq!(server.as_user("bob").await.json()["violated-policies"], json!(["all"]));
    assert_eq!((remaining(&user, "bob"), runs.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test]
async fn slots_are_released_when_the_response_ends() {
    let (engine, _) = engine();
    let slots = engine.limiter("slots", Policy::concurrency(1, None).unwrap()).unwrap();
    let layer = LimitLayer::new().limit(slots.clone(), key::constant("all"));
    let (router, _) = counting(layer);
    let server = TestServer::start(router).await;
    for _ in 0..3 {
        let response = server.as_user("alice").await;
        assert_eq!(response.status, 200);
        let policy = r#""slots";q=1;qu="concurrent-requests""#;
        assert_eq!(response.header("ratelimit-policy"), Some(policy));
    }
    let held = slots.take("all").now().unwrap();
    let refused = server.as_user("alice").await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    drop(held);
}

#[tokio::test]
async fn requests_without_a_key_are_charged_to_the_client_address() {
    let (engine, _) = engine();
    let limit = limiter(&engine, "users", 1);
    let (router, _) = counting(LimitLayer::new().limit(limit.clone(), by_user()));
    let server = TestServer::start(router).await;
    assert_eq!(server.get("/", &[]).await.status, 200);
    assert_eq!(server.get("/", &[]).await.status, 429);
    assert_eq!(remaining(&limit, "%ip:127.0.0.1"), 0);
    for name in ["127.0.0.1", "%ip:127.0.0.1"] {
        assert_eq!(
            server.as_user(name).await.status,
            200,
            "a user of that name has its own bucket"
        );
    }
}

#[tokio::test]
async fn missing_key_is_skipped_shared_or_refused() {
    let (engine, _) = engine();
    let limit = limiter(&engine, "users", 1);
    let run = async |missing: MissingKey| {
        let (router, runs) = counting(
            LimitLayer::new().rule(LimitRule::new(limit.clone(), by_user()).missing(missing)),
        );
        let server = TestServer::start(router).await;
        let responses = (server.get("/", &[]).await, server.get("/", &[]).await);
        (responses.0, responses.1.status, runs.load(Ordering::SeqCst))
    };
    let (response, status, runs) = run(MissingKey::Skip).await;
    assert_eq!((response.status, status, runs), (200, 200, 2));
    assert_eq!(response.header("ratelimit"), None);
    let (response, status, runs) = run(MissingKey::Shared("anonymous".into())).await;
    assert_eq!((response.status, status, runs), (200, 429, 1));
    let (response, _, runs) = run(MissingKey::BadRequest).await;
    assert_eq!((response.status, runs), (400, 0));
    assert_eq!(response.json()["type"], "urn:tidegate:problem:no-key");
    let (response, _, runs) = run(MissingKey::Unauthorized).await;
    assert_eq!(
        (response.status, response.header("www-authenticate"), runs),
        (401, Some("Bearer"), 0)
    );
}

#[tokio::test]
async fn credentials_and_path_templates_are_keys() {
    let (engine, _) = engine();
    let limit = limiter(&engine, "keys", 1);
    let source =
        key::all_of().and(key::api_key("x-api-key")).and(key::path(["/users/{id}"]).unwrap());
    let (router, _) = counting(LimitLayer::new().limit(limit.clone(), source));
    let server = TestServer::start(router).await;
    let status = async |path: &str, key: &str| server.get(path, &[("x-api-key", key)]).await.status;
    assert_eq!(status("/users/1", "secret-1").await, 200);
    assert_eq!(status("/users/2", "secret-1").await, 429, "the same route");
    assert_eq!(status("/users/2", "secret-2").await, 200, "another credential");
    assert_eq!(status("/x", "secret-1").await, 200);
    assert_eq!(status("/y", "secret-1").await, 429, "unknown paths share one key");
    assert_eq!(remaining(&limit, "f7e7c36e458e80e6b6a2c67d0a9ec09b:/users/{id}"), 0);
}

#[tokio::test]
async fn forwarding_headers_of_untrusted_peers_are_ignored() {
    let (engine, _) = engine();
    let limit = limiter(&engine, "clients", 1);
    let open = async |clients| {
        let layer = LimitLayer::new().limit(limit.clone(), key::client_ip());
        TestServer::start(counting(layer.client_address(clients)).0).await
    };
    let clients = ClientAddress::from_x_forwarded_for();
    let server = open(clients.clone().trust_proxies(["10.0.0.0/8"]).unwrap()).await;
    assert_eq!(server.get("/", &[("x-forwarded-for", "198.51.100.1")]).await.status, 200);
    assert_eq!(server.get("/", &[("x-forwarded-for", "198.51.100.2")]).await.status, 429);
    assert_eq!((remaining(&limit, "127.0.0.1"), remaining(&limit, "198.51.100.1")), (0, 1));

    let server = open(clients.trust_proxies(["127.0.0.1", "10.0.0.0/8"]).unwrap()).await;
    let hops = "6.6.6.6, 198.51.100.2, 10.0.0.7";
    assert_eq!(server.get("/", &[("x-forwarded-for", hops)]).await.status, 200);
    let hops = "7.7.7.7, 198.51.100.2";
    assert_eq!(server.get("/", &[("x-forwarded-for", hops)]).await.status, 429);
    assert_eq!(remaining(&limit, "198.51.100.2"), 0);
}

#[tokio::test]
async fn retry_hints_have_jitter() {
    let (engine, _) = engine();
    let slow = Policy::per(1, Duration::from_secs(100)).capacity(1).build().unwrap();
    let layer = LimitLayer::new()
        .limit(engine.limiter("slow", slow).unwrap(), key::constant("all"))
        .retry_jitter(20);
    let (router, _) = counting(layer);
    let server = TestServer::start(router).await;
    assert_eq!(server.as_user("alice").await.status, 200);
    let mut hints = Vec::new();
    for _ in 0..20 {
        let hint = server.as_user("alice").await.header("retry-after-ms").unwrap().parse::<u64>();
        hints.push(hint.unwrap());
    }
    let (first, last) = (hints.iter().min().unwrap(), hints.iter().max().unwrap());
    assert!(*first >= 100_000 && *last <= 120_000, "{hints:?}");
    assert!(last - first >= 10_000, "at least a tenth of the hint: {hints:?}");
}
