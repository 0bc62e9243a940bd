//! Shadow mode, exemptions, exposed decisions and logs.

use std::sync::{Arc, LazyLock, Mutex};

use axum::Router;
use axum::routing::get;
use tidegate::admission::{Admission, Rules};
use tidegate_http::RefusalCause;
use tidegate_http::key::{self, MissingKey};
use tidegate_http::layer::{AdmissionLayer, LimitLayer, LimitRule, RequestDecision};

use super::faulty_stores::{engine_on, hourly, unavailable};
use super::test_server::TestServer;
use super::{by_user, engine, limiter, remaining};

/// With a single subscriber, `tracing` caches the interest of a callsite by the thread that reaches
/// it first, so a concurrent test without a subscriber could silence it.
static SECOND_SUBSCRIBER: LazyLock<tracing::Dispatch> = LazyLock::new(|| {
    let everything = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
    everything.with_writer(std::io::sink).finish().into()
});

/// Lines logged on this thread.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(super) fn capture(&self) -> tracing::subscriber::DefaultGuard {
        LazyLock::force(&SECOND_SUBSCRIBER);
        let writer = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    /// Number of lines that contain `text`.
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

/// Responds with the decision that the handler got.
async fn describe(decided: Option<RequestDecision>) -> String {
    let Some(decided) = decided else { return "nothing".into() };
    let limit = decided.binding().unwrap();
    format!("{} {} {}", limit.name(), limit.remaining(), decided.would_be_refused())
}

#[tokio::test]
async fn shadow_mode_admits_and_logs_would_be_refusals() {
    let log = Log::default();
    let _capture = log.capture();
    let (engine, _) = engine();
    let limit = limiter(&engine, "users", 1);
    let layer = LimitLayer::new().limit(limit.clone(), by_user()).shadow();
    let server = TestServer::start(Router::new().route("/", get(describe)).layer(layer)).await;
    let reported = async || {
        let response = server.as_user("alice").await;
        assert_eq!(response.status, 200);
        assert!(response.headers.keys().all(|name| !name.as_str().contains("ratelimit")));
        String::from_utf8(response.body.to_vec()).unwrap()
    };
    assert_eq!(reported().await, "users 0 false");
    assert_eq!(log.count("shadow"), 0);
    assert_eq!(reported().await, "users 0 true");
    assert_eq!(log.count("shadow"), 1);
    assert!(log.text().contains("limit=\"users\""), "{}", log.text());
    assert!(!log.text().contains("alice"));
    assert_eq!(remaining(&limit, "alice"), 0, "shadow mode charges as usual");
}

#[tokio::test]
async fn exempt_requests_are_not_charged() {
    let log = Log::default();
    let _capture = log.capture();
    let (engine, _) = engine();
    let limit = limiter(&engine, "users", 1);
    let layer = LimitLayer::new()
        .limit(limit.clone(), by_user())
        .allow(|head| head.headers().get("x-user").is_some_and(|user| user == "monitor"));
    let server = TestServer::start(Router::new().route("/", get(describe)).layer(layer)).await;
    for _ in 0..3 {
        let response = server.as_user("monitor").await;
        assert_eq!((response.status, response.header("ratelimit")), (200, None));
    }
    assert_eq!((remaining(&limit, "monitor"), log.count("exempt request admitted")), (1, 3));
    assert_eq!(server.as_user("alice").await.status, 200);
    assert_eq!(server.as_user("alice").await.status, 429);
}

#[tokio::test]
async fn exposed_decision_reaches_the_handler() {
    let (engine, _) = engine();
    let limit = limiter(&engine, "users", 5);
    let reported = async |layer| {
        let server = TestServer::start(Router::new().route("/", get(describe)).layer(layer)).await;
        String::from_utf8(server.as_user("alice").await.body.to_vec()).unwrap()
    };
    let layer = LimitLayer::new().limit(limit, by_user());
    assert_eq!(reported(layer.clone()).await, "nothing");
    assert_eq!(reported(layer.expose()).await, "users 3 false");
}

#[tokio::test]
async fn missing_decision_is_reported_by_the_extractor() {
    let handler =
        get(|decided: RequestDecision| async move { decided.would_be_refused().to_string() });
    let response = TestServer::start(Router::new().route("/", handler)).await.get("/", &[]).await;
    assert_eq!(response.status, 500);
    assert_eq!(&response.body[..], b"no layer has exposed its decision; see LimitLayer::expose");
}

#[test]
fn debug_output_hides_keys() {
    let (engine, _) = engine();
    let layer = LimitLayer::new().limit(limiter(&engine, "users", 5), by_user());
    let shown = format!("{layer:?}");
    assert!(shown.contains("\"users\"") && !shown.contains("x-user"), "{shown}");
}

/// Handler that requires a decision.
async fn refused(decided: RequestDecision) -> String {
    format!("{} {}", decided.would_be_refused(), decided.limits().len())
}

async fn reported(server: &TestServer, headers: &[(&str, &str)]) -> (u16, String) {
    let response = server.get("/", headers).await;
    (response.status, String::from_utf8(response.body.to_vec()).unwrap())
}

#[tokio::test]
async fn expose_gives_every_request_a_decision() {
    let (engine, _) = engine();
    let rule = LimitRule::new(limiter(&engine, "users", 9), by_user()).missing(MissingKey::Skip);
    let layer =
        LimitLayer::new().rule(rule).allow(|head| head.headers().contains_key("x-probe")).expose();
    let server = TestServer::start(Router::new().route("/", get(refused)).layer(layer)).await;
    let user = ("x-user", "alice");
    assert_eq!(reported(&server, &[user]).await, (200, "false 1".into()));
    assert_eq!(reported(&server, &[user, ("x-probe", "1")]).await, (200, "false 0".into()));
    assert_eq!(reported(&server, &[]).await, (200, "false 0".into()), "no limit applies");
}

#[tokio::test]
async fn shadow_mode_with_unavailable_store_reports_undecided() {
    let limit = engine_on(unavailable()).limiter("users", hourly(9)).unwrap();
    let layer = LimitLayer::new().limit(limit, by_user()).shadow();
    let server = TestServer::start(Router::new().route("/", get(refused)).layer(layer)).await;
    assert_eq!(reported(&server, &[("x-user", "alice")]).await, (200, "true 0".into()));
}

#[tokio::test]
async fn shadow_mode_admits_requests_without_a_key() {
    let (engine, _) = engine();
    let rule =
        LimitRule::new(limiter(&engine, "users", 9), by_user()).missing(MissingKey::Unauthorized);
    let layer = LimitLayer::new().rule(rule).shadow();
    let server = TestServer::start(Router::new().route("/", get(refused)).layer(layer)).await;
    assert_eq!(reported(&server, &[]).await, (200, "true 0".into()));
}

#[tokio::test]
async fn admission_in_shadow_mode_admits_when_store_is_unavailable() {
    let rules = Rules::none().client(hourly(1)).shadow(true);
    let admission = Admission::new(&engine_on(unavailable()), rules).unwrap();
    let pending = admission.clone();
    let handler = get(move |decided: RequestDecision| async move {
        format!("{} {}", decided.would_be_refused(), pending.pending())
    });
    let layer = AdmissionLayer::new(admission.clone()).client(by_user());
    let server = TestServer::start(Router::new().route("/", handler).layer(layer)).await;
    assert_eq!(reported(&server, &[("x-user", "alice")]).await, (200, "true 1".into()));
    assert_eq!(admission.pending(), 0);
}

#[tokio::test]
async fn admission_in_shadow_mode_adds_no_fields_but_exposes_decisions() {
    let (engine, _) = engine();
    let rules = Rules::none().client(hourly(1)).shadow(true);
    let admission = Admission::new(&engine, rules).unwrap();
    let layer = AdmissionLayer::new(admission).client(by_user());
    let server = TestServer::start(Router::new().route("/", get(refused)).layer(layer)).await;
    for would_be in ["false 1", "true 0"] {
        let response = server.as_user("alice").await;
        assert_eq!((response.status, &response.body[..]), (200, would_be.as_bytes()));
        assert!(response.headers.keys().all(|name| !name.as_str().contains("ratelimit")));
    }
}

#[tokio::test]
async fn on_refused_is_called_for_refusals_only() {
    let (engine, _) = engine();
    let refusals = Arc::new(Mutex::new(Vec::new()));
    let recorder = refusals.clone();
    let layer = LimitLayer::new()
        .rule(
            LimitRule::new(limiter(&engine, "users", 1), by_user()).missing(MissingKey::BadRequest),
        )
        .on_refused(move |refusal| {
            let names: Vec<_> = refusal.violated().map(|report| report.name().to_owned()).collect();
            recorder.lock().unwrap().push((refusal.cause(), names));
        });
    let shadow = layer.clone().shadow();
    let server = TestServer::start(Router::new().route("/", get(describe)).layer(layer)).await;
    assert_eq!(server.as_user("alice").await.status, 200);
    assert!(refusals.lock().unwrap().is_empty());
    assert_eq!(server.as_user("alice").await.status, 429);
    assert_eq!(server.get("/", &[]).await.status, 400);
    let seen = std::mem::take(&mut *refusals.lock().unwrap());
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0], (RefusalCause::Limit, vec!["users".to_owned()]));
    assert_eq!(seen[1], (RefusalCause::MissingKey(key::MissingKeyError::BadRequest), vec![]));
    let server = TestServer::start(Router::new().route("/", get(describe)).layer(shadow)).await;
    assert_eq!(server.as_user("alice").await.status, 200);
    assert!(refusals.lock().unwrap().is_empty(), "shadow mode refuses nothing");
}

#[tokio::test]
async fn panicking_on_refused_does_not_affect_responses() {
    let log = Log::default();
    let _capture = log.capture();
    let (engine, _) = engine();
    let admission = Admission::new(&engine, Rules::none().client(hourly(1))).unwrap();
    let layer = AdmissionLayer::new(admission).client(by_user()).on_refused(|refusal| {
        assert_eq!(refusal.level(), Some("backpressure"), "callback bug");
    });
    let server = TestServer::start(Router::new().route("/", get(describe)).layer(layer)).await;
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(server.as_user("alice").await.status);
    }
    assert_eq!(statuses, [200, 429, 429]);
    assert_eq!(log.count("panicked"), 1, "{}", log.text());
}
