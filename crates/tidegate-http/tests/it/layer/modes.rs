//! Shadow, exceptions, and what handlers and logs are told.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::get;
use tidegate_http::layer::{Decided, LimitLayer};

use super::door::Door;
use super::{by_user, engine, left, limiter};

/// The lines that were logged on this thread.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(super) fn listen(&self) -> tracing::subscriber::DefaultGuard {
        let lines = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .with_writer(move || lines.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    /// Our lines that hold this text.
    pub(super) fn count(&self, text: &str) -> usize {
        self.text().lines().filter(|line| line.contains(text)).count()
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Says what it was told of the decision.
async fn says(decided: Option<Decided>) -> String {
    let Some(decided) = decided else { return "nothing".into() };
    let limit = decided.binding().unwrap();
    format!("{} {} {}", limit.name(), limit.remaining(), decided.would_be_refused())
}

#[tokio::test]
async fn a_shadow_refuses_nobody_and_tells_who_would_be() {
    let log = Log::default();
    let _listening = log.listen();
    let (engine, _) = engine();
    let limit = limiter(&engine, "users", 1);
    let layer = LimitLayer::new().limit(limit.clone(), by_user()).shadow();
    let door = Door::open(Router::new().route("/", get(says)).layer(layer)).await;
    let told = async || {
        let reply = door.as_user("alice").await;
        assert_eq!(reply.status, 200);
        assert!(reply.headers.keys().all(|name| !name.as_str().contains("ratelimit")));
        String::from_utf8(reply.body.to_vec()).unwrap()
    };
    assert_eq!(told().await, "users 0 false");
    assert_eq!(log.count("shadow"), 0);
    assert_eq!(told().await, "users 0 true");
    assert_eq!(log.count("shadow"), 1);
    assert!(log.text().contains("limit=\"users\""), "{}", log.text());
    assert!(!log.text().contains("alice"));
    assert_eq!(left(&limit, "alice"), 0, "it is charged as if it were no shadow");
}

#[tokio::test]
async fn those_on_the_list_are_charged_nothing() {
    let log = Log::default();
    let _listening = log.listen();
    let (engine, _) = engine();
    let limit = limiter(&engine, "users", 1);
    let layer = LimitLayer::new()
        .limit(limit.clone(), by_user())
        .allow(|head| head.headers().get("x-user").is_some_and(|user| user == "monitor"));
    let door = Door::open(Router::new().route("/", get(says)).layer(layer)).await;
    for _ in 0..3 {
        let reply = door.as_user("monitor").await;
        assert_eq!((reply.status, reply.header("ratelimit")), (200, None));
    }
    assert_eq!((left(&limit, "monitor"), log.count("charged nothing")), (1, 3));
    assert_eq!(door.as_user("alice").await.status, 200);
    assert_eq!(door.as_user("alice").await.status, 429);
}

#[tokio::test]
async fn handlers_are_told_of_the_decision_if_they_want() {
    let (engine, _) = engine();
    let limit = limiter(&engine, "users", 5);
    let told = async |layer| {
        let door = Door::open(Router::new().route("/", get(says)).layer(layer)).await;
        String::from_utf8(door.as_user("alice").await.body.to_vec()).unwrap()
    };
    let layer = LimitLayer::new().limit(limit, by_user());
    assert_eq!(told(layer.clone()).await, "nothing");
    assert_eq!(told(layer.expose()).await, "users 3 false");
}

#[tokio::test]
async fn a_handler_that_needs_a_decision_that_nobody_exposed_says_so() {
    let handler = get(|decided: Decided| async move { decided.would_be_refused().to_string() });
    let reply = Door::open(Router::new().route("/", handler)).await.get("/", &[]).await;
    assert_eq!(reply.status, 500);
    assert_eq!(&reply.body[..], b"no layer has exposed its decision; see LimitLayer::expose");
}

#[test]
fn nothing_shows_keys() {
    let (engine, _) = engine();
    let layer = LimitLayer::new().limit(limiter(&engine, "users", 5), by_user());
    let shown = format!("{layer:?}");
    assert!(shown.contains("\"users\"") && !shown.contains("x-user"), "{shown}");
}
