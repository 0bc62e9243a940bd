//! Shadow, exceptions, and what handlers and logs are told.

use std::sync::{Arc, LazyLock, Mutex};

use axum::Router;
use axum::routing::get;
use tidegate::admission::{Admission, Rules};
use tidegate_http::RefusalCause;
use tidegate_http::key::{self, Missing};
use tidegate_http::layer::{AdmissionLayer, Decided, LimitLayer, Rule};

use super::door::Door;
use super::stores::{engine_on, gone, hourly};
use super::{by_user, engine, left, limiter};

/// With one listener alone, a place that logs for the first time goes by whether its own thread
/// listens, and remembers that: a test beside could silence it.
static SECOND_LISTENER: LazyLock<tracing::Dispatch> = LazyLock::new(|| {
    let everything = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
    everything.with_writer(std::io::sink).finish().into()
});

/// The lines that were logged on this thread.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(super) fn listen(&self) -> tracing::subscriber::DefaultGuard {
        LazyLock::force(&SECOND_LISTENER);
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

/// Handlers that cannot do without a decision.
async fn refused(decided: Decided) -> String {
    format!("{} {}", decided.would_be_refused(), decided.limits().len())
}

async fn told(door: &Door, lines: &[(&str, &str)]) -> (u16, String) {
    let reply = door.get("/", lines).await;
    (reply.status, String::from_utf8(reply.body.to_vec()).unwrap())
}

#[tokio::test]
async fn every_request_has_a_decision_if_decisions_are_exposed() {
    let (engine, _) = engine();
    let rule = Rule::new(limiter(&engine, "users", 9), by_user()).missing(Missing::Skip);
    let layer =
        LimitLayer::new().rule(rule).allow(|head| head.headers().contains_key("x-probe")).expose();
    let door = Door::open(Router::new().route("/", get(refused)).layer(layer)).await;
    let user = ("x-user", "alice");
    assert_eq!(told(&door, &[user]).await, (200, "false 1".into()));
    assert_eq!(told(&door, &[user, ("x-probe", "1")]).await, (200, "false 0".into()));
    assert_eq!(told(&door, &[]).await, (200, "false 0".into()), "no limit applies");
}

#[tokio::test]
async fn a_shadow_whose_store_is_gone_tells_handlers_that_nothing_was_decided() {
    let limit = engine_on(gone()).limiter("users", hourly(9)).unwrap();
    let layer = LimitLayer::new().limit(limit, by_user()).shadow();
    let door = Door::open(Router::new().route("/", get(refused)).layer(layer)).await;
    assert_eq!(told(&door, &[("x-user", "alice")]).await, (200, "true 0".into()));
}

#[tokio::test]
async fn a_shadow_lets_requests_in_that_have_no_key() {
    let (engine, _) = engine();
    let rule = Rule::new(limiter(&engine, "users", 9), by_user()).missing(Missing::Unauthorized);
    let layer = LimitLayer::new().rule(rule).shadow();
    let door = Door::open(Router::new().route("/", get(refused)).layer(layer)).await;
    assert_eq!(told(&door, &[]).await, (200, "true 0".into()));
}

#[tokio::test]
async fn an_admission_in_shadow_refuses_nobody_when_its_store_is_gone() {
    let rules = Rules::none().client(hourly(1)).shadow(true);
    let admission = Admission::new(&engine_on(gone()), rules).unwrap();
    let pending = admission.clone();
    let handler = get(move |decided: Decided| async move {
        format!("{} {}", decided.would_be_refused(), pending.pending())
    });
    let layer = AdmissionLayer::new(admission.clone()).client(by_user());
    let door = Door::open(Router::new().route("/", handler).layer(layer)).await;
    assert_eq!(told(&door, &[("x-user", "alice")]).await, (200, "true 1".into()));
    assert_eq!(admission.pending(), 0);
}

#[tokio::test]
async fn an_admission_in_shadow_adds_no_fields_and_tells_every_handler() {
    let (engine, _) = engine();
    let rules = Rules::none().client(hourly(1)).shadow(true);
    let admission = Admission::new(&engine, rules).unwrap();
    let layer = AdmissionLayer::new(admission).client(by_user());
    let door = Door::open(Router::new().route("/", get(refused)).layer(layer)).await;
    for would_be in ["false 1", "true 0"] {
        let reply = door.as_user("alice").await;
        assert_eq!((reply.status, &reply.body[..]), (200, would_be.as_bytes()));
        assert!(reply.headers.keys().all(|name| !name.as_str().contains("ratelimit")));
    }
}

#[tokio::test]
async fn the_application_hears_of_every_refusal_and_of_nothing_else() {
    let (engine, _) = engine();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let listener = heard.clone();
    let layer = LimitLayer::new()
        .rule(Rule::new(limiter(&engine, "users", 1), by_user()).missing(Missing::BadRequest))
        .on_refused(move |refusal| {
            let names: Vec<_> = refusal.violated().map(|report| report.name().to_owned()).collect();
            listener.lock().unwrap().push((refusal.cause(), names));
        });
    let shadow = layer.clone().shadow();
    let door = Door::open(Router::new().route("/", get(says)).layer(layer)).await;
    assert_eq!(door.as_user("alice").await.status, 200);
    assert!(heard.lock().unwrap().is_empty());
    assert_eq!(door.as_user("alice").await.status, 429);
    assert_eq!(door.get("/", &[]).await.status, 400);
    let heard_of = std::mem::take(&mut *heard.lock().unwrap());
    assert_eq!(heard_of.len(), 2);
    assert_eq!(heard_of[0], (RefusalCause::Limit, vec!["users".to_owned()]));
    assert_eq!(heard_of[1], (RefusalCause::Unkeyed(key::Unkeyed::BadRequest), vec![]));
    let door = Door::open(Router::new().route("/", get(says)).layer(shadow)).await;
    assert_eq!(door.as_user("alice").await.status, 200);
    assert!(heard.lock().unwrap().is_empty(), "a shadow refuses nobody");
}

#[tokio::test]
async fn a_listener_that_panics_keeps_nobody_from_an_answer() {
    let log = Log::default();
    let _listening = log.listen();
    let (engine, _) = engine();
    let admission = Admission::new(&engine, Rules::none().client(hourly(1))).unwrap();
    let layer = AdmissionLayer::new(admission).client(by_user()).on_refused(|refusal| {
        assert_eq!(refusal.level(), Some("backpressure"), "a mistake");
    });
    let door = Door::open(Router::new().route("/", get(says)).layer(layer)).await;
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(door.as_user("alice").await.status);
    }
    assert_eq!(statuses, [200, 429, 429]);
    assert_eq!(log.count("panicked"), 1, "{}", log.text());
}
