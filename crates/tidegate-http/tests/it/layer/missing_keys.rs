//! Admission of callers without a key or with a repeated one, and of servers without peer addresses.

use axum::Router;
use axum::body::Bytes;
use axum::routing::get;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use tidegate::PolicyChange;
use tidegate::admission::{Admission, Rules};
use tidegate_http::key::{self, MissingKey};
use tidegate_http::layer::AdmissionLayer;
use tokio::net::TcpStream;

use super::faulty_stores::hourly;
use super::modes::Log;
use super::test_server::TestServer;
use super::{by_user, engine};

fn by_org() -> key::RequestKey {
    key::header("x-org")
}

fn app(layer: AdmissionLayer) -> Router {
    Router::new().route("/", get(|| async { "served" })).layer(layer)
}

fn layer(admission: Admission) -> AdmissionLayer {
    AdmissionLayer::new(admission).client(by_user()).organization(by_org())
}

/// Sends five requests with these headers and returns how many are served.
async fn admitted_of_five(server: &TestServer, headers: &[(&str, &str)]) -> usize {
    let mut admitted = 0;
    for _ in 0..5 {
        let status = server.get("/", headers).await.status;
        assert!(matches!(status, 200 | 429), "{status}");
        admitted += usize::from(status == 200);
    }
    admitted
}

#[tokio::test]
async fn repeated_header_skips_no_tier() {
    let (engine, _) = engine();
    let rules = Rules::none().client(hourly(1)).organization(hourly(2));
    let admission = Admission::new(&engine, rules).unwrap();
    let by_key = key::api_key("x-api-key");
    let layer = AdmissionLayer::new(admission).organization(by_org()).client(by_key);
    let server = TestServer::start(app(layer)).await;
    let twice = [("x-org", "acme"), ("x-org", "acme"), ("x-api-key", "k"), ("x-api-key", "k")];
    assert_eq!(admitted_of_five(&server, &twice).await, 1);
    // Only the client key is repeated: the address replaces that one alone.
    let client_twice = [("x-org", "acme"), ("x-api-key", "k"), ("x-api-key", "k")];
    assert_eq!(admitted_of_five(&server, &client_twice).await, 1);
    let once = [("x-org", "acme"), ("x-api-key", "k")];
    assert_eq!(admitted_of_five(&server, &once).await, 1, "the organization has one left");
}

#[tokio::test]
async fn callers_without_an_organization_share_the_bucket_of_their_address() {
    let (engine, _) = engine();
    let rules = Rules::none().client(hourly(9)).organization(hourly(2));
    let server = TestServer::start(app(layer(Admission::new(&engine, rules).unwrap()))).await;
    let get_as = async |user| server.get("/", &[("x-user", user)]).await;
    assert_eq!((get_as("alice").await.status, get_as("bob").await.status), (200, 200));
    let refused = get_as("carol").await;
    assert_eq!((refused.status, &refused.json()["level"]), (429, &"organization".into()));
}

#[tokio::test]
async fn unknown_peer_address_is_refused_and_logged_once() {
    let log = Log::default();
    let _capture = log.capture();
    let (engine, _) = engine();
    let admission = Admission::new(&engine, Rules::none().client(hourly(9))).unwrap();
    let layer = AdmissionLayer::new(admission.clone()).client(key::client_ip());
    let server = TestServer::start_without_peers(app(layer)).await;
    for _ in 0..3 {
        let response = server.get("/", &[]).await;
        assert_eq!(
            (response.status, &response.json()["type"]),
            (500, &"urn:tidegate:problem:no-peer".into())
        );
    }
    assert_eq!(log.count("into_make_service_with_connect_info"), 1, "{}", log.text());
    // Shadow mode admits the request, and it counts as pending.
    admission
        .reconfigure(Rules::none().client(hourly(9)).shadow(true), PolicyChange::default())
        .unwrap();
    assert_eq!(server.get("/", &[]).await.status, 200);
    assert_eq!(admission.pending(), 0);
}

#[tokio::test]
async fn disabled_admission_needs_no_keys() {
    let (engine, _) = engine();
    let admission = Admission::new(&engine, Rules::none().client(hourly(1))).unwrap();
    let layer = layer(admission.clone()).missing_client(MissingKey::Unauthorized);
    let server = TestServer::start(app(layer)).await;
    assert_eq!(server.get("/", &[]).await.status, 401);
    admission.disable();
    assert_eq!(admitted_of_five(&server, &[]).await, 5);
}

#[tokio::test]
async fn requests_without_a_key_can_be_refused_or_share_a_bucket() {
    let (engine, _) = engine();
    let rules = Rules::none().client(hourly(2)).organization(hourly(9));
    let admission = Admission::new(&engine, rules).unwrap();
    let layer = layer(admission)
        .missing_organization(MissingKey::BadRequest)
        .missing_client(MissingKey::Shared("anonymous".into()));
    let server = TestServer::start(app(layer)).await;
    assert_eq!(server.get("/", &[("x-user", "alice")]).await.status, 400);
    assert_eq!(admitted_of_five(&server, &[("x-org", "acme")]).await, 2);
    assert_eq!(admitted_of_five(&server, &[("x-org", "acme"), ("x-user", "alice")]).await, 2);
}

/// The test client opens a new connection for every request.
#[tokio::test]
async fn skipped_client_tier_charges_the_connection_if_configured() {
    let (engine, _) = engine();
    let rules = Rules::none().client(hourly(1));
    let admission = Admission::new(&engine, rules.clone()).unwrap();
    let server =
        TestServer::start(app(layer(admission.clone()).missing_client(MissingKey::Skip))).await;
    let fields = async || server.get("/", &[]).await.header("ratelimit").map(str::to_owned);
    assert_eq!(fields().await, None, "the tier is skipped");
    let by_connection = rules.limit_connections(true);
    admission.reconfigure(by_connection, PolicyChange::default()).unwrap();
    for _ in 0..2 {
        assert_eq!(fields().await.as_deref(), Some(r#""client";r=0;t=3600"#));
    }
}

#[tokio::test]
async fn requests_on_one_connection_share_its_bucket() {
    let (engine, _) = engine();
    let rules = Rules::none().client(hourly(1)).limit_connections(true);
    let layer = layer(Admission::new(&engine, rules).unwrap()).missing_client(MissingKey::Skip);
    let server = TestServer::start(app(layer)).await;
    let stream = TcpStream::connect(server.address).await.unwrap();
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut statuses = Vec::new();
    for _ in 0..2 {
        let request = Request::get("/").header("host", "test").body(Empty::<Bytes>::new()).unwrap();
        let response = sender.send_request(request).await.unwrap();
        statuses.push(response.status().as_u16());
        response.into_body().collect().await.unwrap();
        sender.ready().await.unwrap();
    }
    assert_eq!(statuses, [200, 429]);
}
