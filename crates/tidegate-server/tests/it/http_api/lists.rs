//! Lists of charges over HTTP: all or nothing.

use crate::Gate;

fn both(client: u64, organization: u64) -> String {
    format!(
        r#"{{"charges":[
            {{"key":"alice","cost":{client},"limit":"client"}},
            {{"key":"acme","cost":{organization},"limit":"organization"}}
        ]}}"#
    )
}

#[test]
fn a_list_tells_how_each_of_its_buckets_stands() {
    let gate = Gate::open();
    gate.expect(
        "/v1/take",
        &both(2, 5),
        200,
        r#"{"allowed":true,"remaining":8,"reset_after_ms":2000,"charges":[{"limit":"client","remaining":8,"reset_after_ms":2000},{"limit":"organization","remaining":10,"reset_after_ms":500}]}"#,
    );
    let reply = gate.post("/v1/take", &both(2, 12));
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("1")));
    assert_eq!(
        reply.body,
        r#"{"allowed":false,"by":"organization","by_index":1,"remaining":8,"retry_after_ms":200,"charges":[{"limit":"client","remaining":8,"reset_after_ms":2000},{"limit":"organization","remaining":10,"reset_after_ms":500}]}"#
    );
}

#[test]
fn a_denied_list_spends_nothing_anywhere() {
    let gate = Gate::open();
    for _ in 0..5 {
        assert_eq!(gate.post("/v1/take", &both(10, 16)).status, 429);
        assert_eq!(gate.post("/v1/take", &both(11, 1)).status, 429);
    }
    assert_eq!(gate.post("/v1/take", &both(10, 15)).status, 200);
}

#[test]
fn the_longest_wait_binds() {
    let gate = Gate::open();
    assert_eq!(gate.post("/v1/take", &both(10, 15)).status, 200);
    let reply = gate.post("/v1/take", &both(3, 10));
    assert_eq!((reply.text("by"), reply.member("by_index")), ("client".into(), 0.into()));
    assert_eq!(reply.member("retry_after_ms"), 3_000);
    let reply = gate.post("/v1/take", &both(3, 16));
    assert_eq!(reply.text("by"), "organization");
    assert_eq!(reply.member("retry_after_ms"), serde_json::Value::Null);
    assert_eq!(reply.header("retry-after"), None);
}

#[test]
fn equal_buckets_of_a_list_are_charged_together() {
    let gate = Gate::open();
    let twice = r#"{"charges":[{"key":"a","cost":6,"limit":"client"},{"key":"a","cost":5,"limit":"client"}]}"#;
    let reply = gate.post("/v1/take", twice);
    assert_eq!((reply.status, reply.text("by")), (429, "client".into()));
    let twice = r#"{"charges":[{"key":"a","cost":6,"limit":"client"},{"key":"a","cost":4,"limit":"client"}]}"#;
    assert_eq!(gate.post("/v1/take", twice).member("remaining"), 0);
}

#[test]
fn a_list_of_one_is_a_list_and_kinds_may_meet_in_one() {
    let gate = Gate::open();
    gate.expect(
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
    gate.expect(
        "/v1/take",
        all,
        200,
        r#"{"allowed":true,"remaining":1,"reset_after_ms":null,"charges":[{"limit":"messages","remaining":1,"reset_after_ms":null},{"limit":"daily","remaining":2,"reset_after_ms":3600000},{"limit":"inline","remaining":4,"reset_after_ms":1001}]}"#,
    );
}

#[test]
fn settlements_take_lists_too() {
    let gate = Gate::open();
    assert_eq!(gate.post("/v1/take", &both(10, 15)).status, 200);
    let settle = r#"{"charges":[
        {"key":"alice","delta":-4,"limit":"client"},
        {"key":"acme","delta":5,"limit":"organization"}
    ]}"#;
    gate.expect(
        "/v1/settle",
        settle,
        200,
        r#"{"remaining":0,"reset_after_ms":6000,"saturated":false,"dropped":false,"charges":[{"limit":"client","remaining":4,"reset_after_ms":6000},{"limit":"organization","remaining":0,"reset_after_ms":2000}]}"#,
    );
}

/// Concurrent requests never get more than the bucket holds.
#[test]
fn lists_stay_whole_under_concurrency() {
    let gate = Gate::open();
    let (alice, others) = (both(1, 1), both(0, 0));
    let allowed = std::thread::scope(|scope| {
        let rush = || (0..10).filter(|_| gate.post("/v1/take", &alice).status == 200).count();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(rush)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    assert_eq!(allowed, 10);
    let reply = gate.post("/v1/peek", &others);
    assert_eq!(reply.member("charges")[0]["remaining"], 0);
    assert_eq!(reply.member("charges")[1]["remaining"], 5);
}
