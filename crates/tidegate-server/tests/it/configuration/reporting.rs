//! Events, metrics and readiness of a running server.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};

use serde_json::{Value, json};
use tidegate::clock::ManualClock;
use tidegate_server::{Drained, Server};
use tidegate_testkit::launch::{Flavor, RedisServer, check_metrics, wait_until};

use super::LIMITS;
use crate::wire::start_request;
use crate::{TestServer, layers};

/// Returns the next event with this name.
fn event(lines: &mut impl Iterator<Item = String>, name: &str) -> Value {
    let name = format!("event: {name}");
    assert!(lines.any(|line| line == name), "the stream ended before {name}");
    let data = lines.next().unwrap();
    serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap()
}

/// Events show changes with their origin, and refused changes.
#[test]
fn watchers_receive_changes_and_refusals() {
    let server = TestServer::configured(LIMITS);
    let request = server.agent.get(format!("{}/admin/events", server.admin()));
    let mut response = request.call().unwrap();
    let mut lines = BufReader::new(response.body_mut().as_reader()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "retry: 2000");
    assert_eq!(server.patch(&json!({"limits": {"api": {"capacity": 5}}})).status, 200);
    let expected = json!({
        "revision": 1,
        "changes": [{"key": "limits.api.capacity", "old": 10, "new": 5, "source": "runtime"}],
        "door": "admin",
        "who": "127.0.0.1",
    });
    assert_eq!(event(&mut lines, "config"), expected);
    assert_eq!(server.patch(&json!({"limits": {"api": {"capacity": 0}}})).status, 422);
    // Two warnings come with the change itself: it shadows the file, and it is not stored.
    let messages: Vec<_> =
        (0..3).map(|_| event(&mut lines, "warning")["message"].clone()).collect();
    let message = |index: usize| messages[index].as_str().unwrap();
    assert!(message(0).starts_with("limits.api.capacity: 10 of the file is shadowed by 5,"));
    assert!(message(1).contains("lost on restart"), "{messages:?}");
    assert!(
        message(2).contains("configuration change through admin refused: ")
            && message(2).contains("limits.api.capacity")
    );
}

#[test]
fn metrics_after_traffic_pass_promtool() {
    // Nothing listens on this port.
    let provider = "[providers.openai]\nbase_url = \"http://127.0.0.1:1\"\nmax_retries = 0\n";
    let server = TestServer::configured(&format!("{provider}{LIMITS}"));
    for cost in [1, 20] {
        server.post("/v1/take", &format!(r#"{{"key":"alice","limit":"api","cost":{cost}}}"#));
    }
    server.post("/v1/take", r#"{"key":"bob","policy":{"capacity":1,"rate":"1/s"}}"#);
    server.post("/v1/admit", r#"{"organization":"acme","client":"alice"}"#);
    server.put("/v1/pending", r#"{"value":101}"#);
    server.post("/v1/admit", r#"{"organization":"acme","client":"alice"}"#);
    server.post("/openai/v1/chat/completions", "{}");
    server.patch(&json!({"limits": {"api": {"capacity": 5}}}));
    server.patch(&json!({"limits": {"api": {"capacity": 0}}}));
    let text = server.admin_get("/metrics").body;
    assert_eq!(check_metrics(&text), Vec::<String>::new(), "{text}");
    for line in [
        r#"tidegate_decisions_total{door="http",limit="api",outcome="allowed"} 1"#,
        r#"tidegate_decisions_total{door="http",limit="api",outcome="denied"} 1"#,
        r#"tidegate_admissions_total{tier="backpressure",outcome="admitted"} 1"#,
        r#"tidegate_admissions_total{tier="backpressure",outcome="rejected"} 1"#,
        "tidegate_admission_pending 101",
        "tidegate_admission_backpressure_threshold 100",
        r#"tidegate_config_changes_total{door="admin",outcome="applied"} 1"#,
        r#"tidegate_config_changes_total{door="admin",outcome="refused"} 1"#,
    ] {
        assert!(text.lines().any(|it| it == line), "{line} in {text}");
    }
    assert!(!text.contains("alice") && !text.contains("acme"), "{text}");
}

fn reasons(server: &TestServer) -> (u16, Vec<Value>) {
    let response = server.admin_get("/readyz");
    let reasons = response.member("reasons").as_array().cloned().unwrap_or_default();
    (response.status, reasons.into_iter().map(|one| one["code"].clone()).collect())
}

/// G1: a node that decides locally is ready, one that denies everything is not.
#[test]
fn only_closed_limits_make_a_node_unready() {
    let redis = RedisServer::start(Flavor::Redis);
    let text = format!("[store]\nurl = {:?}\n{LIMITS}", redis.url());
    let server = TestServer::serving(Server::new(layers(&text)).unwrap(), ManualClock::new());
    redis.kill();
    wait_until("the store to be marked down", || {
        let body = server.post("/v1/take", r#"{"key":"alice","limit":"api"}"#).body;
        let down = server
            .admin_get("/metrics")
            .body
            .contains("tidegate_store_degraded{store=\"shared\"} 1");
        (down && body.contains("\"degraded\":\"local\"")).then_some(())
    });
    assert_eq!(reasons(&server), (200, Vec::new()));
    let closed = json!({"limits": {"api": {"on_failure": "closed"}}});
    assert_eq!(server.patch(&closed).status, 200);
    assert_eq!(reasons(&server), (503, vec!["store".into()]));
    assert_eq!(server.post("/v1/take", r#"{"key":"alice","limit":"api"}"#).status, 429);
    redis.restart();
    wait_until("the store to be back", || (reasons(&server).0 == 200).then_some(()));
}

#[test]
fn a_node_that_shuts_down_is_not_ready() {
    let mut server = TestServer::configured(LIMITS);
    let body = r#"{"key":"alice","limit":"api"}"#;
    let mut busy = start_request(server.address(), "/v1/take", body);
    let running = server.running.take().unwrap();
    let shutdown = server.runtime.spawn(running.shutdown());
    wait_until("the node to be unready", || {
        (reasons(&server) == (503, vec!["draining".into()])).then_some(())
    });
    busy.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    busy.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert_eq!(server.runtime.block_on(shutdown).unwrap(), Drained::Complete);
}
