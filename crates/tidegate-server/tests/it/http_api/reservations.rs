//! Reservations, receipts and cancellation.

use crate::TestServer;

fn reserve(cost: u64, max_wait: u64) -> String {
    format!(r#"{{"key":"alice","limit":"client","cost":{cost},"max_wait_ms":{max_wait}}}"#)
}

fn settle(delta: i64, receipt: &str) -> String {
    format!(r#"{{"key":"alice","limit":"client","delta":{delta},"receipt":"{receipt}"}}"#)
}

#[test]
fn a_reservation_returns_the_wait() {
    let server = TestServer::open();
    let response = server.post("/v1/reserve", &reserve(10, 0));
    assert_eq!((response.status, response.member("wait_ms")), (200, 0.into()));
    let start = r#"{"allowed":true,"remaining":0,"reset_after_ms":10000,"wait_ms":0,"receipt":""#;
    assert!(response.body.starts_with(start), "{}", response.body);
    let response = server.post("/v1/reserve", &reserve(4, 3_999));
    assert_eq!((response.status, response.header("retry-after")), (429, Some("4")));
    assert_eq!(
        response.body,
        r#"{"allowed":false,"by":"client","remaining":0,"retry_after_ms":4000}"#
    );
    let response = server.post("/v1/reserve", &reserve(4, 4_000));
    assert_eq!((response.status, response.member("wait_ms")), (200, 4_000.into()));
    let response = server.post("/v1/reserve?deny_status=200", &reserve(1, 0));
    assert_eq!((response.status, response.member("allowed")), (200, false.into()));
}

#[test]
fn a_cancelled_reservation_refunds_what_later_ones_do_not_depend_on() {
    let server = TestServer::open();
    assert_eq!(server.post("/v1/reserve", &reserve(10, 0)).status, 200);
    let first = server.post("/v1/reserve", &reserve(4, 60_000)).text("receipt");
    let second = server.post("/v1/reserve", &reserve(1, 60_000));
    assert_eq!(second.member("wait_ms"), 5_000);
    let response = server.post("/v1/settle", &settle(-4, &first));
    assert_eq!((response.status, response.member("dropped")), (200, false.into()));
    let response = server.post("/v1/reserve", &reserve(1, 60_000));
    assert_eq!(response.member("wait_ms"), 3_000);
    let last = response.text("receipt");
    assert_eq!(server.post("/v1/settle", &settle(-1, &last)).member("dropped"), false);
    assert_eq!(server.post("/v1/reserve", &reserve(1, 60_000)).member("wait_ms"), 3_000);
}

#[test]
fn a_refund_that_later_reservations_depend_on_is_dropped() {
    let server = TestServer::open();
    assert_eq!(server.post("/v1/reserve", &reserve(10, 0)).status, 200);
    let first = server.post("/v1/reserve", &reserve(2, 60_000)).text("receipt");
    assert_eq!(server.post("/v1/reserve", &reserve(5, 60_000)).status, 200);
    let response = server.post("/v1/settle", &settle(-2, &first));
    assert_eq!((response.status, response.member("dropped")), (200, true.into()));
}

#[test]
fn take_returns_a_receipt_on_request() {
    let server = TestServer::open();
    let plain = server.post("/v1/take", r#"{"key":"alice","limit":"client","receipt":false}"#);
    assert_eq!(plain.member("receipt"), serde_json::Value::Null);
    let response =
        server.post("/v1/take", r#"{"key":"alice","limit":"client","cost":5,"receipt":true}"#);
    let start = r#"{"allowed":true,"remaining":4,"reset_after_ms":6000,"receipt":""#;
    assert!(response.body.starts_with(start), "{}", response.body);
    server.expect(
        "/v1/settle",
        &settle(-3, &response.text("receipt")),
        200,
        r#"{"remaining":7,"reset_after_ms":3000,"saturated":false,"dropped":false}"#,
    );
}

#[test]
fn foreign_and_invalid_receipts_are_refused() {
    let server = TestServer::open();
    let receipt = server.post("/v1/reserve", &reserve(5, 0)).text("receipt");
    let other_key = settle(-5, &receipt).replace("alice", "bob");
    let response = server.post("/v1/settle", &other_key);
    assert_eq!(response.status, 400);
    let rule = "is for other limits or keys than the ones named";
    assert!(response.body.contains(&format!(r#"{{"field":"receipt","rule":"{rule}"}}"#)));
    let other_store = TestServer::open().post("/v1/reserve", &reserve(5, 0)).text("receipt");
    let response = server.post("/v1/settle", &settle(-5, &other_store));
    assert_eq!(response.status, 400);
    assert!(response.body.contains("issued by another store"), "{}", response.body);
    for invalid in ["", "AQ", "!!", "AAAA", "Ag", &receipt[1..], &format!("{receipt}=")] {
        let response = server.post("/v1/settle", &settle(-5, invalid));
        assert_eq!(
            (response.status, response.member("errors")[0]["field"].clone()),
            (400, "receipt".into())
        );
    }
    let state = r#"{"key":"alice","limit":"client","cost":0}"#;
    assert_eq!(server.post("/v1/peek", state).member("remaining"), 5);
}

#[test]
fn a_list_can_be_reserved_and_cancelled() {
    let server = TestServer::open();
    let list = |amount: &str| {
        format!(
            r#"{{"charges":[{{"key":"alice",{amount},"limit":"client"}},{{"key":"acme",{amount},"limit":"organization"}}]"#
        )
    };
    let full = server.post("/v1/take", &format!("{}}}", list(r#""cost":10"#)));
    assert_eq!(full.status, 200);
    let reserve = format!(r#"{},"max_wait_ms":5000}}"#, list(r#""cost":3"#));
    let response = server.post("/v1/reserve", &reserve);
    assert_eq!((response.status, response.member("wait_ms")), (200, 3_000.into()));
    let cancel = format!(r#"{},"receipt":"{}"}}"#, list(r#""delta":-3"#), response.text("receipt"));
    let response = server.post("/v1/settle", &cancel);
    assert_eq!((response.status, response.member("dropped")), (200, false.into()));
    assert_eq!(server.post("/v1/reserve", &reserve).member("wait_ms"), 3_000);
}
