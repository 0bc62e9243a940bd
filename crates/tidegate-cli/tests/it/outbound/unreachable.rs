//! Providers to which there is no connection: the caller is told the reason, and soon.

use std::net::TcpListener;
use std::time::Duration;

use tidegate_testkit::launch::{Flavor, RedisServer};

use super::stage::{Gateway, Sdk};
use super::traffic::{CallOptions, Caller, Reply};

/// How soon a caller is told.
pub(super) const BOUND: Duration = Duration::from_secs(4);

/// What a caller gets, and the log.
fn call(base_url: &str) -> (Reply, String) {
    let gateway = Gateway::start(Sdk::OPENAI, base_url, "");
    let reply = Caller::new(&gateway).call(CallOptions::default());
    (reply, gateway.stop().stderr)
}

/// A port that was free a moment ago, where nobody listens.
pub(super) fn refused() -> (Reply, String) {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    call(&format!("http://{address}"))
}

pub(super) fn unknown_host() -> (Reply, String) {
    call("http://nope.invalid")
}

/// Any TLS server will do whose certificate comes from an authority that nobody knows.
pub(super) fn certificate() -> (Reply, String) {
    let server = RedisServer::builder(Flavor::Redis).tls().start();
    call(&format!("https://localhost:{}", server.port()))
}

fn assert_told((reply, log): &(Reply, String), reasons: &[&str]) {
    let message = reply.message();
    assert_eq!(reply.status, Some(502), "{reply:?}\n{log}");
    assert!(reasons.iter().all(|reason| message.contains(reason)), "{message}\n{log}");
    assert!(reply.took < BOUND, "{reply:?}\n{log}");
}

/// Setting: providers.*.base_url
#[test]
fn a_refused_connection_is_told_soon() {
    assert_told(&refused(), &["connection refused", "127.0.0.1"]);
}

#[test]
fn an_unknown_host_is_told_soon() {
    assert_told(&unknown_host(), &["nope.invalid", "cannot be resolved"]);
}

#[test]
fn a_certificate_that_is_not_trusted_is_told_soon() {
    assert_told(&certificate(), &["certificate", "localhost", "not trusted"]);
}
