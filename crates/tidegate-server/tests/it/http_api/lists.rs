//! Lists of charges over HTTP: all or nothing.

use crate::TestServer;

fn both(client: u64, organization: u64) -> String {
    format!(
        r#"{{"charges":[
            {{"key":"alice","cost":{client},"limit":"client"}},
            {{"key":"acme","cost":{organization},"limit":"organization"}}
        ]}}"#
    )
}

#[test]
fn a_list_reports_the_state_of_each_bucket() {
    let server = TestServer::open();
    server.expect(
        "/v1/take",
        &both(2, 5),
        200,
        r#"{"allowed":true,"remaining":8,"reset_after_ms":2000,"charges":[{"limit":"client","remaining":8,"reset_after_ms":2000},{"limit":"organization","remaining":10,"reset_after_ms":500}]}"#,
    );
    let response = server.post("/v1/take", &both(2, 12));
    assert_eq!((response.status, response.header("retry-after")), (429, Some("1")));
    assert_eq!(
        response.body,
        r#"{"allowed":false,"by":"organization","by_index":1,"remaining":8,"retry_after_ms":200,"charges":[{"limit":"client","remaining":8,"reset_after_ms":2000},{"limit":"organization","remaining":10,"reset_after_ms":500}]}"#
    );
}

#[test]
fn a_denied_list_spends_nothing() {
    let server = TestServer::open();
    for _ in 0..5 {
        assert_eq!(server.post("/v1/take", &both(10, 16)).status, 429);
        assert_eq!(server.post("/v1/take", &both(11, 1)).status, 429);
    }
    assert_eq!(server.post("/v1/take", &both(10, 15)).status, 200);
}

#[test]
fn the_charge_with_the_longest_wait_binds() {
    let server = TestServer::open();
    assert_eq!(server.post("/v1/take", &both(10, 15)).status, 200);
    let response = server.post("/v1/take", &both(3, 10));
    assert_eq!((response.text("by"), response.member("by_index")), ("client".into(), 0.into()));
    assert_eq!(response.member("retry_after_ms"), 3_000);
    let response = server.post("/v1/take", &both(3, 16));
    assert_eq!(response.text("by"), "organization");
    assert_eq!(response.member("retry_after_ms"), serde_json::Value::Null);
    assert_eq!(response.header("retry-after"), None);
}

#[test]
fn equal_buckets_of_a_list_are_charged_together() {
    let server = TestServer::open();
    let twice = r#"{"charges":[{"key":"a","cost":6,"limit":"client"},{"key":"a","cost":5,"limit":"client"}]}"#;
    let response = server.post("/v1/take", twice);
    assert_eq!((response.status, response.text("by")), (429, "client".into()));
    let twice = r#"{"charges":[{"key":"a","cost":6,"limit":"client"},{"key":"a","cost":4,"limit":"client"}]}"#;
    assert_eq!(server.post("/v1/take", twice).member("remaining"), 0);
}

#[test]
fn lists_can_have_one_charge_and_mixed_kinds() {
    let server = TestServer::open();
    server.expect(
        "/v1/take",
        r#"{"charges":[{"key":"alice","limit":"messages"}]}"#,
        200,
        r#"{"allowed":true,"remaining":1,"reset_after_ms":null,"charges":[{"limit":"messages","remaining":1,"reset_after_ms":null}]}"#,
    );
    let all = r#"{"charges":[
        {"key":"bob","limit":"messages"},
        {"key":"bob","limit":"daily"},
        {"key":"bob","policy":{"strict":"5/s","burst":5}}
    ]}"#;
    server.expect(
        "/v1/take",
        all,
        200,
        r#"{"allowed":true,"remaining":1,"reset_after_ms":null,"charges":[{"limit":"messages","remaining":1,"reset_after_ms":null},{"limit":"daily","remaining":2,"reset_after_ms":3600000},{"limit":"inline","remaining":4,"reset_after_ms":1001}]}"#,
    );
}

#[test]
fn lists_can_be_settled() {
    let server = TestServer::open();
    assert_eq!(server.post("/v1/take", &both(10, 15)).status, 200);
    let settle = r#"{"charges":[
        {"key":"alice","delta":-4,"limit":"client"},
        {"key":"acme","delta":5,"limit":"organization"}
    ]}"#;
    server.expect(
        "/v1/settle",
        settle,
        200,
        r#"{"remaining":0,"reset_after_ms":6000,"saturated":false,"dropped":false,"charges":[{"limit":"client","remaining":4,"reset_after_ms":6000},{"limit":"organization","remaining":0,"reset_after_ms":2000}]}"#,
    );
}

/// Concurrent requests never get more than the bucket holds.
#[test]
fn lists_are_atomic_under_concurrency() {
    let server = TestServer::open();
    let (alice, others) = (both(1, 1), both(0, 0));
    let allowed = std::thread::scope(|scope| {
        let take_ten = || (0..10).filter(|_| server.post("/v1/take", &alice).status == 200).count();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(take_ten)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    assert_eq!(allowed, 10);
    let response = server.post("/v1/peek", &others);
    assert_eq!(response.member("charges")[0]["remaining"], 0);
    assert_eq!(response.member("charges")[1]["remaining"], 5);
}
