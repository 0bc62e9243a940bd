//! Responses while the store is unavailable: decisions by the failure rules, marked as such.

use std::sync::Arc;

use tidegate::clock::ManualClock;
use tidegate::{MemoryStore, StoreError};
use tidegate_server::Server;
use tidegate_testkit::faulty_store::{Behaviour, FaultyStore, Timing};

use crate::{TestServer, layers};

const LIMITS: &str = r#"
[store]
expected_nodes = 3
[limits.local]
capacity = 10
rate = "1/min"
[limits.open]
capacity = 10
rate = "1/min"
on_failure = "open"
[limits.closed]
capacity = 10
rate = "1/min"
on_failure = "closed"
[limits.daily]
quota = 10
every = "day"
"#;

/// Starts a server on a store that the test can break.
fn server() -> (TestServer, Arc<FaultyStore<MemoryStore>>) {
    let store = FaultyStore::new(MemoryStore::new(), Timing::AtOnce);
    let server = Server::with_shared_store(layers(LIMITS), store.clone()).unwrap();
    (TestServer::serving(server, ManualClock::new()), store)
}

#[test]
fn decisions_by_failure_rules_are_marked() {
    let (server, store) = server();
    let take =
        |limit: &str| server.post("/v1/take", &format!(r#"{{"key":"k","limit":"{limit}"}}"#));
    for limit in ["local", "open", "closed", "daily"] {
        let response = take(limit);
        assert_eq!(response.status, 200);
        assert!(!response.body.contains("degraded"), "{}", response.body);
    }
    store.set(Behaviour::from(Timing::AtOnce).unavailable());
    for (limit, status, rule, remaining) in
        [("local", 200, "local", 2), ("open", 200, "open", 10), ("closed", 429, "closed", 0)]
    {
        let response = take(limit);
        assert_eq!(
            (response.status, response.member("degraded")),
            (status, rule.into()),
            "{limit}"
        );
        assert_eq!(response.member("remaining"), remaining, "{limit}");
    }
    let closed = take("daily");
    assert_eq!((closed.status, closed.header("retry-after")), (429, Some("1")));
    assert_eq!(closed.member("degraded"), "closed", "quotas are closed by default");
    let list = r#"{"charges":[{"key":"k","limit":"open"},{"key":"k","limit":"closed"}]}"#;
    let response = server.post("/v1/take?deny_status=200", list);
    assert_eq!((response.status, response.member("by")), (200, "closed".into()));
    assert_eq!(response.member("degraded"), "closed");
}

/// Each operation follows the failure rule of its limit; one that no rule can decide is a problem.
#[test]
fn each_operation_of_a_batch_follows_its_failure_rule() {
    let (server, store) = server();
    let of_store = server.post("/v1/take", r#"{"key":"k","limit":"local","receipt":true}"#);
    store.set(Behaviour::from(Timing::AtOnce).unavailable());
    let take = |limit: &str| format!(r#"{{"op":"take","key":"k","limit":"{limit}"}}"#);
    let settle = format!(
        r#"{{"op":"settle","key":"k","limit":"local","delta":-1,"receipt":{}}}"#,
        of_store.member("receipt")
    );
    let operations = [take("local"), take("open"), settle, take("closed"), take("local")];
    let body = format!(r#"{{"operations":[{}]}}"#, operations.join(","));
    for _ in 0..3 {
        let response = server.post("/v1/batch", &body);
        assert_eq!(response.status, 200, "{}", response.body);
        let answers = response.member("answers");
        let rules = [0, 1, 3, 4].map(|index| answers[index]["degraded"].clone());
        assert_eq!(rules, ["local", "open", "closed", "local"]);
        assert_eq!(
            (&answers[2]["status"], &answers[2]["type"]),
            (
                &503.into(),
                &"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
                    .into()
            )
        );
    }
    // The breaker is open by now, and the operation that needs the store gets a retry time.
    assert_eq!(server.running.as_ref().unwrap().store_is_up(), Some(false));
    let answers = server.post("/v1/batch", &body).member("answers");
    assert!(answers[2]["retry_after_ms"].as_u64().is_some_and(|wait| wait > 0), "{answers}");
    assert_eq!(answers[1]["degraded"], "open");
}

#[test]
fn operations_that_no_rule_can_decide_are_problems() {
    let (server, store) = server();
    let body = r#"{"key":"k","limit":"local","receipt":true}"#;
    let of_store = server.post("/v1/take", body).member("receipt");
    store.set(Behaviour::from(Timing::AtOnce).unavailable());
    let of_rule = server.post("/v1/take", body).member("receipt");
    let settle = |receipt: &serde_json::Value| {
        server.post(
            "/v1/settle",
            &format!(r#"{{"key":"k","limit":"local","delta":-1,"receipt":{receipt}}}"#),
        )
    };
    let settled = settle(&of_rule);
    assert_eq!((settled.status, settled.member("remaining")), (200, 3.into()), "{}", settled.body);
    for _ in 0..5 {
        let refused = settle(&of_store);
        assert_eq!(refused.status, 503);
        assert_eq!(
            refused.member("type"),
            "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
        );
    }
    let running = server.running.as_ref().unwrap();
    assert_eq!(running.store_is_up(), Some(false));
    assert!(running.store_stats().unwrap().local > 0);
    let refused = settle(&of_store);
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    let millis: u64 = refused.header("retry-after-ms").unwrap().parse().unwrap();
    assert!((1..=1_000).contains(&millis), "{millis}");
    let held = server.post("/v1/hold", r#"{"key":"k","limit":"local","for_ms":5000}"#);
    assert_eq!(held.status, 200, "{}", held.body);
}

/// If the store cannot process the state of one key, rules decide; where they cannot, that is not
/// an outage of the store.
#[test]
fn operations_that_the_store_rejects_are_problems() {
    let (server, store) = server();
    let odd = || StoreError::Rejected("of another format".into());
    store.set(Behaviour::from(Timing::AtOnce).failing(odd));
    let take = server.post("/v1/take", r#"{"key":"k","limit":"open"}"#);
    assert_eq!((take.status, take.member("degraded")), (200, "local".into()), "{}", take.body);
    for _ in 0..5 {
        let refused = server.post("/v1/settle", r#"{"key":"k","limit":"open","delta":1}"#);
        assert_eq!((refused.status, refused.header("retry-after")), (500, None));
        assert_eq!(
            refused.body,
            r#"{"type":"urn:tidegate:problem:store-rejected","title":"Store cannot perform the operation","status":500,"detail":"the store cannot execute this operation"}"#
        );
    }
    assert_eq!(server.running.as_ref().unwrap().store_is_up(), Some(true));
}

#[test]
fn a_server_starts_without_its_store_and_hides_the_password() {
    let layers =
        layers("[store]\nurl = \"redis://:secret@127.0.0.1:1\"\n[limits.api]\nrate = \"1/s\"\n");
    let server = Server::new(layers).unwrap();
    assert_eq!(server.max_keys(), None);
    assert!(!format!("{server:?}").contains("secret"));
    let server = TestServer::serving(server, ManualClock::new());
    let response = server.post("/v1/take", r#"{"key":"k","limit":"api"}"#);
    assert_eq!((response.status, response.member("degraded")), (200, "local".into()));
}
