//! Reservations, receipts and cancellation.

use crate::Gate;

fn reserve(cost: u64, max_wait: u64) -> String {
    format!(r#"{{"key":"alice","limit":"client","cost":{cost},"max_wait_ms":{max_wait}}}"#)
}

fn settle(delta: i64, receipt: &str) -> String {
    format!(r#"{{"key":"alice","limit":"client","delta":{delta},"receipt":"{receipt}"}}"#)
}

#[test]
fn a_reservation_says_how_long_to_wait() {
    let gate = Gate::open();
    let reply = gate.post("/v1/reserve", &reserve(10, 0));
    assert_eq!((reply.status, reply.member("wait_ms")), (200, 0.into()));
    let start = r#"{"allowed":true,"remaining":0,"reset_after_ms":10000,"wait_ms":0,"receipt":""#;
    assert!(reply.body.starts_with(start), "{}", reply.body);
    let reply = gate.post("/v1/reserve", &reserve(4, 3_999));
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("4")));
    assert_eq!(
        reply.body,
        r#"{"allowed":false,"by":"client","remaining":0,"retry_after_ms":4000}"#
    );
    let reply = gate.post("/v1/reserve", &reserve(4, 4_000));
    assert_eq!((reply.status, reply.member("wait_ms")), (200, 4_000.into()));
    let reply = gate.post("/v1/reserve?deny_status=200", &reserve(1, 0));
    assert_eq!((reply.status, reply.member("allowed")), (200, false.into()));
}

#[test]
fn a_cancelled_reservation_gives_back_what_nobody_built_on() {
    let gate = Gate::open();
    assert_eq!(gate.post("/v1/reserve", &reserve(10, 0)).status, 200);
    let first = gate.post("/v1/reserve", &reserve(4, 60_000)).text("receipt");
    let second = gate.post("/v1/reserve", &reserve(1, 60_000));
    assert_eq!(second.member("wait_ms"), 5_000);
    let reply = gate.post("/v1/settle", &settle(-4, &first));
    assert_eq!((reply.status, reply.member("dropped")), (200, false.into()));
    let reply = gate.post("/v1/reserve", &reserve(1, 60_000));
    assert_eq!(reply.member("wait_ms"), 3_000);
    let last = reply.text("receipt");
    assert_eq!(gate.post("/v1/settle", &settle(-1, &last)).member("dropped"), false);
    assert_eq!(gate.post("/v1/reserve", &reserve(1, 60_000)).member("wait_ms"), 3_000);
}

#[test]
fn a_refund_that_others_have_built_on_whole_is_dropped() {
    let gate = Gate::open();
    assert_eq!(gate.post("/v1/reserve", &reserve(10, 0)).status, 200);
    let first = gate.post("/v1/reserve", &reserve(2, 60_000)).text("receipt");
    assert_eq!(gate.post("/v1/reserve", &reserve(5, 60_000)).status, 200);
    let reply = gate.post("/v1/settle", &settle(-2, &first));
    assert_eq!((reply.status, reply.member("dropped")), (200, true.into()));
}

#[test]
fn a_take_gives_a_receipt_when_asked() {
    let gate = Gate::open();
    let plain = gate.post("/v1/take", r#"{"key":"alice","limit":"client","receipt":false}"#);
    assert_eq!(plain.member("receipt"), serde_json::Value::Null);
    let reply =
        gate.post("/v1/take", r#"{"key":"alice","limit":"client","cost":5,"receipt":true}"#);
    let start = r#"{"allowed":true,"remaining":4,"reset_after_ms":6000,"receipt":""#;
    assert!(reply.body.starts_with(start), "{}", reply.body);
    gate.expect(
        "/v1/settle",
        &settle(-3, &reply.text("receipt")),
        200,
        r#"{"remaining":7,"reset_after_ms":3000,"saturated":false,"dropped":false}"#,
    );
}

#[test]
fn receipts_of_others_and_made_up_ones_are_refused() {
    let gate = Gate::open();
    let receipt = gate.post("/v1/reserve", &reserve(5, 0)).text("receipt");
    let other_key = settle(-5, &receipt).replace("alice", "bob");
    let reply = gate.post("/v1/settle", &other_key);
    assert_eq!(reply.status, 400);
    let rule = "the receipt is for other limits or keys than the ones named";
    assert!(reply.body.contains(&format!(r#"{{"field":"receipt","rule":"{rule}"}}"#)));
    let other_store = Gate::open().post("/v1/reserve", &reserve(5, 0)).text("receipt");
    let reply = gate.post("/v1/settle", &settle(-5, &other_store));
    assert_eq!(reply.status, 400);
    assert!(reply.body.contains("issued by another store"), "{}", reply.body);
    for made_up in ["", "AQ", "!!", "AAAA", "Ag", &receipt[1..], &format!("{receipt}=")] {
        let reply = gate.post("/v1/settle", &settle(-5, made_up));
        assert_eq!(
            (reply.status, reply.member("errors")[0]["field"].clone()),
            (400, "receipt".into())
        );
    }
    let state = r#"{"key":"alice","limit":"client","cost":0}"#;
    assert_eq!(gate.post("/v1/peek", state).member("remaining"), 5);
}

#[test]
fn a_list_can_be_reserved_and_cancelled() {
    let gate = Gate::open();
    let list = |amount: &str| {
        format!(
            r#"{{"charges":[{{"key":"alice",{amount},"limit":"client"}},{{"key":"acme",{amount},"limit":"organization"}}]"#
        )
    };
    let full = gate.post("/v1/take", &format!("{}}}", list(r#""cost":10"#)));
    assert_eq!(full.status, 200);
    let reserve = format!(r#"{},"max_wait_ms":5000}}"#, list(r#""cost":3"#));
    let reply = gate.post("/v1/reserve", &reserve);
    assert_eq!((reply.status, reply.member("wait_ms")), (200, 3_000.into()));
    let cancel = format!(r#"{},"receipt":"{}"}}"#, list(r#""delta":-3"#), reply.text("receipt"));
    let reply = gate.post("/v1/settle", &cancel);
    assert_eq!((reply.status, reply.member("dropped")), (200, false.into()));
    assert_eq!(gate.post("/v1/reserve", &reserve).member("wait_ms"), 3_000);
}
