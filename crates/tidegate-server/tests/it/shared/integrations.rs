//! Admission, the HTTP layer and the WebSocket gate on a real shared store: nodes share what was
//! spent, and abandoned slots are given back.

use std::time::Duration;

use axum::Router;
use axum::http::{Request, StatusCode};
use axum::routing::get;
use tidegate::admission::{Admission, Caller, Rules, Tier};
use tidegate::{Engine, Policy};
use tidegate_http::key;
use tidegate_http::layer::{AdmissionLayer, LimitLayer};
use tidegate_testkit::launch::{Flavor, RedisServer};
use tidegate_ws::{Gate, KeyParts, MessageDecision, MessageRule, Peer, RefusalReason};
use tower::ServiceExt as _;

use super::{nodes, slow};

fn admission(engine: &Engine) -> Admission {
    Admission::new(engine, Rules::default().client(slow(3)).organization(slow(4))).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_share_admission_tiers() {
    let server = RedisServer::start(Flavor::Redis);
    let nodes = nodes(&server, 2).await;
    let [one, other] = [0, 1].map(|node: usize| admission(&nodes[node].engine));
    let alice = Caller::new().organization("acme").client("alice");
    let bob = Caller::new().organization("acme").client("bob");
    let admitted = one.admit(alice.cost(2)).with_receipt().await.unwrap().admitted().unwrap();
    let rejected = other.admit(alice.cost(2)).await.unwrap().rejected().unwrap();
    assert_eq!((rejected.tier, rejected.id), (Tier::Client, Some("alice")));
    let rejected = other.admit(bob.cost(3)).await.unwrap().rejected().unwrap();
    assert_eq!((rejected.tier, rejected.id), (Tier::Organization, Some("acme")));
    // Rejected requests were not charged, and both nodes see a refund.
    assert!(other.admit(bob.cost(2)).await.unwrap().is_admitted());
    one.settle(alice, -2, &admitted.receipt().unwrap()).await.unwrap();
    assert!(other.admit(alice.cost(2)).await.unwrap().is_admitted());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_share_the_limits_of_layers() {
    let server = RedisServer::start(Flavor::Redis);
    let nodes = nodes(&server, 2).await;
    let user = || key::header("x-user");
    let apps: Vec<Router> = nodes
        .iter()
        .map(|node| {
            let limiter = node.engine.limiter("users", slow(3)).unwrap();
            let limits = LimitLayer::new().limit(limiter, user());
            let tiers = AdmissionLayer::new(admission(&node.engine)).client(user());
            let handler = || async { "served" };
            Router::new().route("/", get(handler).layer(limits)).route(
                "/tiers",
                get(handler).layer(tiers.missing_organization(key::MissingKey::Skip)),
            )
        })
        .collect();
    let request = async |node: usize, path: &str| {
        let request = Request::get(path).header("x-user", "alice").body(String::new()).unwrap();
        apps[node].clone().oneshot(request).await.unwrap().status()
    };
    for path in ["/", "/tiers"] {
        for node in [0, 1, 0] {
            assert_eq!(request(node, path).await, StatusCode::OK);
        }
        for node in [1, 0] {
            assert_eq!(request(node, path).await, StatusCode::TOO_MANY_REQUESTS);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_share_slots_of_websocket_gates() {
    let server = RedisServer::start(Flavor::Redis);
    let nodes = nodes(&server, 2).await;
    let gates: Vec<Gate<()>> = nodes
        .iter()
        .map(|node| {
            let slots = Policy::concurrency(1, Some(Duration::from_secs(60))).unwrap();
            let limiter = node.engine.limiter("calls", slots).unwrap();
            let rule = MessageRule::<()>::new(limiter).key(|_| KeyParts::from(["all"]));
            Gate::for_types(["Ask"]).limit(rule).build().unwrap()
        })
        .collect();
    let frame = r#"{"type":"Ask"}"#;
    let [mut one, mut other] = [0, 1].map(|node: usize| gates[node].connect(Peer::new(())));
    let MessageDecision::Accepted(running) = one.ingress(frame).await.unwrap() else {
        panic!("refused")
    };
    match other.ingress(frame).await.unwrap() {
        MessageDecision::Refused(refusal) => assert_eq!(refusal.reason(), RefusalReason::Rate),
        MessageDecision::Accepted(_) => panic!("two at a time"),
    }
    drop(running);
    let free = async {
        while !matches!(other.ingress(frame).await.unwrap(), MessageDecision::Accepted(_)) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), free).await.unwrap();
}
