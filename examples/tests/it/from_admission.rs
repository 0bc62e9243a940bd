//! The programs in `docs/from-three-tier-admission.md`: they compile, they do what the page says,
//! and the page shows them verbatim.
#![allow(missing_docs, unreachable_pub, reason = "the programs are written as users would")]

mod change;
mod check;
mod service;

use std::time::Duration;

use check::Checked;
use tidegate::admission::{Caller, Rules, Tier};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::page::assert_shows;

#[test]
fn the_page_shows_the_programs() {
    assert_shows(
        "docs/from-three-tier-admission.md",
        include_str!("../../../docs/from-three-tier-admission.md"),
        &[
            ("from_admission/check.rs", include_str!("from_admission/check.rs")),
            ("from_admission/change.rs", include_str!("from_admission/change.rs")),
            ("from_admission/service.rs", include_str!("from_admission/service.rs")),
        ],
    );
}

fn is_admitted(checked: &Checked) -> bool {
    matches!(checked, Checked::Admitted(Some(_)))
}

#[test]
fn writes_are_rejected_by_client_and_by_pending_count() {
    let admission = check::admission().unwrap();
    assert_eq!(admission.rules(), Rules::default());
    let check = |client: &str| check::check(&admission, "acme", client).unwrap();
    let admitted = (0..200).filter(|_| is_admitted(&check("alice"))).count();
    assert!((100..200).contains(&admitted), "{admitted}");
    change::observe(&admission, 160);
    let Checked::Exhausted { level, reason, retry_after } = check("bob") else { panic!() };
    assert_eq!((level, reason), ("backpressure", "queue_depth"));
    assert_eq!(retry_after, Some(Duration::from_millis(600)));
    change::observe(&admission, 0);
    let pending: Vec<_> = (0..102).map(|number| check(&format!("client-{number}"))).collect();
    assert_eq!(
        pending.iter().filter(|it| is_admitted(it)).count(),
        101,
        "counted without a report"
    );
    drop(pending);
    assert_eq!(admission.pending(), 0);
}

#[test]
fn thresholds_change_while_buckets_keep_their_tokens() {
    let admission = check::admission().unwrap();
    let alice = Caller::new().organization("acme").client("alice");
    assert!(admission.admit(alice.cost(95)).now().unwrap().is_admitted());
    change::update(&admission, 7, 500).unwrap();
    assert!(change::update(&admission, 0, 500).is_err(), "invalid rules change nothing");
    assert_eq!(admission.rules().threshold(), Some(7));
    let rejection = admission.admit(alice.cost(900)).now().unwrap().rejected().unwrap();
    assert_eq!(rejection.tier, Tier::Client, "a larger bucket is not a fuller one");
}

#[tokio::test]
async fn a_tonic_service_answers_resource_exhausted() {
    let admission = check::admission().unwrap();
    let (_reporter, health) = tonic_health::server::health_reporter();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder().layer(service::layer(admission.clone())).add_service(health);
    let server = tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await;
    let mut client = HealthClient::new(channel.unwrap());
    let mut call = async || {
        let mut request = Request::new(HealthCheckRequest { service: String::new() });
        request.metadata_mut().insert("x-organization", "acme".parse().unwrap());
        request.metadata_mut().insert("x-client-id", "alice".parse().unwrap());
        client.check(request).await
    };
    assert!(call().await.is_ok());
    let limiter = admission.limiter(Tier::Client).unwrap();
    let key = admission.key(Tier::Client, Caller::new().organization("acme").client("alice"));
    limiter.hold(key.unwrap(), Duration::from_secs(60)).now().unwrap();
    let status = call().await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let hint: u64 =
        status.metadata().get("retry-after-ms").unwrap().to_str().unwrap().parse().unwrap();
    assert!((50_000..=60_020).contains(&hint), "{hint}");
    server.abort();
}
