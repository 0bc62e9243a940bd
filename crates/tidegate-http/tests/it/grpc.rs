//! gRPC over real sockets with a tonic server and client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate::admission::{Admission, Rules};
use tidegate::clock::ManualClock;
use tidegate::{Engine, Limiter, MemoryStore, Policy, Retry};
use tidegate_http::field::{Report, RetryAfter};
use tidegate_http::grpc::{CallError, PerMethod, status};
use tidegate_http::key::{self, MissingKey};
use tidegate_http::layer::{AdmissionLayer, LimitLayer, LimitRule, Limited};
use tidegate_http::{Refusal, RefusalCause};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt as _;
use tower::Layer;

/// A running server, stopped on drop.
struct Service {
    address: SocketAddr,
    server: JoinHandle<()>,
}

impl Service {
    async fn behind<L>(layer: L) -> Self
    where
        L: Layer<tonic::service::Routes, Service = Limited<tonic::service::Routes>>
            + Clone
            + Send
            + 'static,
    {
        let (_, health) = tonic_health::server::health_reporter();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server::builder().layer(layer).add_service(health);
        let server = tokio::spawn(async move {
            server.serve_with_incoming(TcpIncoming::from(listener)).await.unwrap();
        });
        Self { address, server }
    }

    async fn client(&self) -> HealthClient<Channel> {
        let endpoint = Channel::from_shared(format!("http://{}", self.address)).unwrap();
        HealthClient::new(endpoint.connect().await.unwrap())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn check(client: &mut HealthClient<Channel>, user: &str) -> Result<(), Status> {
    let mut request = Request::new(HealthCheckRequest { service: String::new() });
    request.metadata_mut().insert("x-user", user.parse().unwrap());
    client.check(request).await.map(drop)
}

fn engine() -> (Engine, ManualClock) {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    (Engine::on(Arc::new(store)), clock)
}

fn limiter(engine: &Engine, name: &str, capacity: u64) -> Limiter {
    engine.limiter(name, Policy::per_second(2).capacity(capacity).build().unwrap()).unwrap()
}

fn by_user(limiter: Limiter) -> LimitLayer {
    LimitLayer::new().limit(limiter, key::header("x-user"))
}

#[tokio::test]
async fn refusal_has_code_metadata_and_details() {
    let (engine, clock) = engine();
    let service = Service::behind(by_user(limiter(&engine, "users", 2))).await;
    let mut client = service.client().await;
    check(&mut client, "alice").await.unwrap();
    check(&mut client, "alice").await.unwrap();
    clock.advance(Duration::from_micros(100));
    let status = check(&mut client, "alice").await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "Rate limit exceeded"));
    assert_eq!(status.metadata().get("retry-after-ms").unwrap(), "500");
    assert_eq!(status.metadata().get("grpc-retry-pushback-ms").unwrap(), "500");
    let details = status.get_error_details();
    let hint = details.retry_info().unwrap().retry_delay;
    assert_eq!(hint, Some(Duration::from_millis(500)));
    let violation = &details.quota_failure().unwrap().violations[0];
    assert_eq!((violation.quota_id.as_str(), violation.quota_value), ("users", 2));
    match CallError::from(status) {
        CallError::RateLimited { retry_after, .. } => {
            assert_eq!(retry_after, Duration::from_millis(500));
        }
        other => panic!("{other}"),
    }
    check(&mut client, "bob").await.unwrap();
    clock.advance(Duration::from_millis(500));
    check(&mut client, "alice").await.unwrap();
}

#[tokio::test]
async fn cost_above_capacity_is_failed_precondition() {
    let (engine, _) = engine();
    let layer = by_user(limiter(&engine, "users", 2)).cost(|_| 3);
    let service = Service::behind(layer).await;
    let status = check(&mut service.client().await, "alice").await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert_eq!(status.message(), "Operation cost exceeds rate limit capacity");
    assert_eq!(status.metadata().get("retry-after-ms"), None);
    assert_eq!(status.metadata().get("grpc-retry-pushback-ms").unwrap(), "-1");
    assert!(status.get_error_details().retry_info().is_none());
    assert!(matches!(CallError::from(status), CallError::Other(_)));
}

#[tokio::test]
async fn each_method_has_its_own_policy() {
    let (engine, _) = engine();
    let limits = PerMethod::new()
        .method("/grpc.health.v1.Health/Check", by_user(limiter(&engine, "checks", 1)))
        .service("/grpc.health.v1.Health", by_user(limiter(&engine, "health", 2)))
        .fallback(by_user(limiter(&engine, "rest", 9)));
    let service = Service::behind(limits).await;
    let mut client = service.client().await;
    check(&mut client, "alice").await.unwrap();
    assert_eq!(check(&mut client, "alice").await.unwrap_err().code(), Code::ResourceExhausted);
    let watch = || {
        let mut request = Request::new(HealthCheckRequest { service: String::new() });
        request.metadata_mut().insert("x-user", "alice".parse().unwrap());
        request
    };
    // A stream is charged once; its messages are not.
    let mut first = client.watch(watch()).await.unwrap().into_inner();
    assert!(first.message().await.unwrap().is_some());
    assert!(client.watch(watch()).await.is_ok());
    assert_eq!(client.watch(watch()).await.unwrap_err().code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn back_pressure_is_resource_exhausted_with_level() {
    let (engine, _) = engine();
    let admission = Admission::new(&engine, Rules::default().backpressure(5)).unwrap();
    admission.set_pending(12, Duration::from_secs(60));
    let service = Service::behind(AdmissionLayer::new(admission.clone())).await;
    let mut client = service.client().await;
    let status = check(&mut client, "alice").await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.metadata().get("retry-after-ms").unwrap(), "70");
    let details = status.get_error_details();
    let info = details.error_info().unwrap();
    assert_eq!(
        (info.reason.as_str(), info.metadata["level"].as_str()),
        ("QUEUE_DEPTH", "backpressure")
    );
    admission.set_pending(5, Duration::from_secs(60));
    check(&mut client, "alice").await.unwrap();
}

#[tokio::test]
async fn calls_without_a_key_are_refused_as_configured() {
    let (engine, _) = engine();
    let rule = |missing| {
        let user = key::header("x-token");
        LimitLayer::new().rule(LimitRule::new(limiter(&engine, "users", 2), user).missing(missing))
    };
    for (missing, code) in [
        (MissingKey::BadRequest, Code::InvalidArgument),
        (MissingKey::Unauthorized, Code::Unauthenticated),
    ] {
        let service = Service::behind(rule(missing)).await;
        let status = check(&mut service.client().await, "alice").await.unwrap_err();
        assert_eq!(status.code(), code);
    }
    // The default charges the client address, which tonic provides.
    let service = Service::behind(rule(MissingKey::ChargeClient)).await;
    let mut client = service.client().await;
    check(&mut client, "alice").await.unwrap();
    check(&mut client, "bob").await.unwrap();
    assert_eq!(check(&mut client, "carol").await.unwrap_err().code(), Code::ResourceExhausted);
}

/// A single HEADERS frame, so that the retry policy of clients sees the push-back.
#[tokio::test]
async fn refusal_is_trailers_only() {
    let (engine, _) = engine();
    let service = Service::behind(by_user(limiter(&engine, "users", 1)).cost(|_| 9)).await;
    let stream = TokioIo::new(TcpStream::connect(service.address).await.unwrap());
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream);
    let (mut sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::post("http://test/grpc.health.v1.Health/Check")
        .header("content-type", "application/grpc")
        .header("x-user", "alice")
        .body(Empty::<bytes::Bytes>::new())
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["grpc-status"], "9");
    assert_eq!(response.headers()["content-type"], "application/grpc");
    let body = response.into_body().collect().await.unwrap();
    assert!(body.trailers().is_none());
    assert!(body.to_bytes().is_empty());
}

#[tokio::test]
async fn service_name_may_have_a_leading_slash() {
    for name in ["grpc.health.v1.Health", "/grpc.health.v1.Health"] {
        let (engine, _) = engine();
        let limits = PerMethod::new().service(name, by_user(limiter(&engine, "calls", 1)));
        let service = Service::behind(limits).await;
        let mut client = service.client().await;
        assert!(check(&mut client, "alice").await.is_ok());
        assert_eq!(check(&mut client, "alice").await.unwrap_err().code(), Code::ResourceExhausted);
    }
}

#[tokio::test]
async fn method_takes_precedence_over_its_service() {
    for name in ["grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Check"] {
        let (engine, _) = engine();
        let limits = PerMethod::new()
            .method(name, LimitLayer::new())
            .service("grpc.health.v1.Health", by_user(limiter(&engine, "calls", 1)));
        let service = Service::behind(limits).await;
        let mut client = service.client().await;
        for _ in 0..3 {
            assert!(check(&mut client, "alice").await.is_ok());
        }
    }
}

#[test]
fn invalid_names_panic() {
    let panics = |name: &'static str, of_method: bool| {
        let made = std::panic::catch_unwind(|| {
            let limits = PerMethod::new();
            if of_method {
                limits.method(name, LimitLayer::new())
            } else {
                limits.service(name, LimitLayer::new())
            }
        });
        made.is_err()
    };
    for name in ["", "/", "ledger.v1.Ledger", "/ledger.v1.Ledger/", "a/b/c", "//a", "/a//b"] {
        assert!(panics(name, true), "{name:?}");
    }
    for name in ["", "/", "ledger.v1.Ledger/Append", "/ledger.v1.Ledger/", "//a"] {
        assert!(panics(name, false), "{name:?}");
    }
}

#[test]
fn client_reads_the_exact_wait() {
    let month = Duration::from_secs(30 * 86_400);
    let rendered =
        status(&Refusal::new(RefusalCause::Limit).retry(RetryAfter::of(Retry::After(month))));
    assert_eq!(rendered.metadata().get("grpc-retry-pushback-ms").unwrap(), "2147483647");
    match CallError::from(rendered) {
        CallError::RateLimited { retry_after, .. } => assert_eq!(retry_after, month),
        other => panic!("{other}"),
    }
}

#[test]
fn exhausted_allowance_differs_from_excessive_cost() {
    let (engine, _) = engine();
    let limit = engine.limiter("trial", Policy::allowance(2).unwrap()).unwrap();
    let rendered = |cost| {
        let denied = limit.take("alice").cost(cost).now().unwrap();
        let limit_now = limit.limit();
        let reports = [Report::of(&limit_now, &denied.outcomes()[0])];
        status(&Refusal::new(RefusalCause::Limit).limits(&reports)).message().to_owned()
    };
    assert_eq!(rendered(3), "Operation cost exceeds rate limit capacity");
    assert!(limit.take("alice").cost(2).now().unwrap().is_allowed());
    assert_eq!(rendered(1), "Allowance used up");
}
