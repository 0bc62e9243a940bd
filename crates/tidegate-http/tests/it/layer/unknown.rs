//! Callers of an admission that bring no key, or bring it twice, and servers that know no peers.

use axum::Router;
use axum::body::Bytes;
use axum::routing::get;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use tidegate::Change;
use tidegate::admission::{Admission, Rules};
use tidegate_http::key::{self, Missing};
use tidegate_http::layer::AdmissionLayer;
use tokio::net::TcpStream;

use super::door::Door;
use super::modes::Log;
use super::stores::hourly;
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

/// How many of five requests with these lines are served.
async fn served(door: &Door, lines: &[(&str, &str)]) -> usize {
    let mut served = 0;
    for _ in 0..5 {
        let status = door.get("/", lines).await.status;
        assert!(matches!(status, 200 | 429), "{status}");
        served += usize::from(status == 200);
    }
    served
}

#[tokio::test]
async fn a_header_that_stands_twice_skips_no_tier() {
    let (engine, _) = engine();
    let rules = Rules::none().client(hourly(1)).organization(hourly(2));
    let admission = Admission::new(&engine, rules).unwrap();
    let by_key = key::api_key("x-api-key");
    let layer = AdmissionLayer::new(admission).organization(by_org()).client(by_key);
    let door = Door::open(app(layer)).await;
    let twice = [("x-org", "acme"), ("x-org", "acme"), ("x-api-key", "k"), ("x-api-key", "k")];
    assert_eq!(served(&door, &twice).await, 1);
    // One of the two twice: the address stands in for that one alone.
    let client_twice = [("x-org", "acme"), ("x-api-key", "k"), ("x-api-key", "k")];
    assert_eq!(served(&door, &client_twice).await, 1);
    let once = [("x-org", "acme"), ("x-api-key", "k")];
    assert_eq!(served(&door, &once).await, 1, "the organization has one left");
}

#[tokio::test]
async fn callers_without_an_organization_share_that_of_their_address() {
    let (engine, _) = engine();
    let rules = Rules::none().client(hourly(9)).organization(hourly(2));
    let door = Door::open(app(layer(Admission::new(&engine, rules).unwrap()))).await;
    let asked = async |user| door.get("/", &[("x-user", user)]).await;
    assert_eq!((asked("alice").await.status, asked("bob").await.status), (200, 200));
    let refused = asked("carol").await;
    assert_eq!((refused.status, &refused.json()["level"]), (429, &"organization".into()));
}

#[tokio::test]
async fn a_server_that_tells_nothing_of_peers_refuses_and_says_why_once() {
    let log = Log::default();
    let _listening = log.listen();
    let (engine, _) = engine();
    let admission = Admission::new(&engine, Rules::none().client(hourly(9))).unwrap();
    let layer = AdmissionLayer::new(admission.clone()).client(key::client_ip());
    let door = Door::open_without_peers(app(layer)).await;
    for _ in 0..3 {
        let reply = door.get("/", &[]).await;
        assert_eq!(
            (reply.status, &reply.json()["type"]),
            (500, &"urn:tidegate:problem:no-peer".into())
        );
    }
    assert_eq!(log.count("into_make_service_with_connect_info"), 1, "{}", log.text());
    // A shadow refuses nobody, and whoever it lets in is pending.
    admission.reconfigure(Rules::none().client(hourly(9)).shadow(true), Change::default()).unwrap();
    assert_eq!(door.get("/", &[]).await.status, 200);
    assert_eq!(admission.pending(), 0);
}

#[tokio::test]
async fn an_admission_that_is_switched_off_needs_no_keys() {
    let (engine, _) = engine();
    let admission = Admission::new(&engine, Rules::none().client(hourly(1))).unwrap();
    let layer = layer(admission.clone()).missing_client(Missing::Unauthorized);
    let door = Door::open(app(layer)).await;
    assert_eq!(door.get("/", &[]).await.status, 401);
    admission.disable();
    assert_eq!(served(&door, &[]).await, 5);
}

#[tokio::test]
async fn requests_without_a_key_can_be_refused_or_share_a_bucket() {
    let (engine, _) = engine();
    let rules = Rules::none().client(hourly(2)).organization(hourly(9));
    let admission = Admission::new(&engine, rules).unwrap();
    let layer = layer(admission)
        .missing_organization(Missing::BadRequest)
        .missing_client(Missing::Shared("anonymous".into()));
    let door = Door::open(app(layer)).await;
    assert_eq!(door.get("/", &[("x-user", "alice")]).await.status, 400);
    assert_eq!(served(&door, &[("x-org", "acme")]).await, 2);
    assert_eq!(served(&door, &[("x-org", "acme"), ("x-user", "alice")]).await, 2);
}

/// Every request of the client here comes by a connection of its own.
#[tokio::test]
async fn who_may_skip_the_client_tier_is_charged_by_connection_if_the_rules_say_so() {
    let (engine, _) = engine();
    let rules = Rules::none().client(hourly(1));
    let admission = Admission::new(&engine, rules.clone()).unwrap();
    let door = Door::open(app(layer(admission.clone()).missing_client(Missing::Skip))).await;
    let fields = async || door.get("/", &[]).await.header("ratelimit").map(str::to_owned);
    assert_eq!(fields().await, None, "the tier is left out");
    let by_connection = rules.limit_connections(true);
    admission.reconfigure(by_connection, Change::default()).unwrap();
    for _ in 0..2 {
        assert_eq!(fields().await.as_deref(), Some(r#""client";r=0;t=3600"#));
    }
}

#[tokio::test]
async fn two_requests_by_one_connection_share_its_bucket() {
    let (engine, _) = engine();
    let rules = Rules::none().client(hourly(1)).limit_connections(true);
    let layer = layer(Admission::new(&engine, rules).unwrap()).missing_client(Missing::Skip);
    let door = Door::open(app(layer)).await;
    let stream = TcpStream::connect(door.address).await.unwrap();
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
