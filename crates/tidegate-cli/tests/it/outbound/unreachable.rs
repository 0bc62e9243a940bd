//! Unreachable providers: the caller is told the reason quickly.

use std::net::TcpListener;
use std::time::Duration;

use tidegate_testkit::launch::{Flavor, RedisServer};

use super::fixtures::{Gateway, Sdk};
use super::traffic::{CallOptions, CallResult, Caller};

/// Time within which the failure must be reported.
pub(super) const BOUND: Duration = Duration::from_secs(4);

/// Makes a call and returns its result and the log.
fn call(base_url: &str) -> (CallResult, String) {
    let gateway = Gateway::start(Sdk::OPENAI, base_url, "");
    let reply = Caller::new(&gateway).call(CallOptions::default());
    (reply, gateway.stop().stderr)
}

/// Calls a port that is not open.
pub(super) fn refused() -> (CallResult, String) {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    call(&format!("http://{address}"))
}

pub(super) fn unknown_host() -> (CallResult, String) {
    call("http://nope.invalid")
}

/// Calls a TLS server whose certificate is from an unknown authority.
pub(super) fn certificate() -> (CallResult, String) {
    let server = RedisServer::builder(Flavor::Redis).tls().start();
    call(&format!("https://localhost:{}", server.port()))
}

fn assert_reported((reply, log): &(CallResult, String), reasons: &[&str]) {
    let message = reply.message();
    assert_eq!(reply.status, Some(502), "{reply:?}\n{log}");
    assert!(reasons.iter().all(|reason| message.contains(reason)), "{message}\n{log}");
    assert!(reply.took < BOUND, "{reply:?}\n{log}");
}

/// Setting: providers.*.base_url
#[test]
fn refused_connection_is_reported_quickly() {
    assert_reported(&refused(), &["connection refused", "127.0.0.1"]);
}

#[test]
fn unknown_host_is_reported_quickly() {
    assert_reported(&unknown_host(), &["nope.invalid", "cannot be resolved"]);
}

#[test]
fn untrusted_certificate_is_reported_quickly() {
    assert_reported(&certificate(), &["certificate", "localhost", "not trusted"]);
}
