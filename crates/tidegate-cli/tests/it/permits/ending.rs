//! How permits end: release, expiry and settlement, each also repeated.

use serde_json::{Value, json};

use super::Fixture;

fn list() -> Value {
    json!([{"limit": "tokens", "key": "acme", "cost": 5}, {"limit": "gpu", "key": "box"}])
}

fn state(answer: &(u16, Value)) -> (u16, &str, bool) {
    let (status, body) = answer;
    (*status, body["state"].as_str().unwrap(), body["changed"].as_bool().unwrap())
}

#[test]
fn repeated_operations_change_nothing() {
    let fixture = Fixture::open();
    let id = fixture.acquire(&json!({"charges": list(), "ttl_ms": 60_000}));
    assert_eq!(fixture.tokens(), 5);
    let renewed = fixture.post("/v1/renew", &json!({"id": id, "ttl_ms": 90_000}));
    assert_eq!(state(&renewed), (200, "held", true));
    assert!(
        (80_000..=90_000).contains(&renewed.1["expires_in_ms"].as_u64().unwrap()),
        "{renewed:?}"
    );
    let settle = json!({"id": id, "charges": [{"delta": -3}, {"cost": 1}]});
    let settled = fixture.post("/v1/settle", &settle);
    assert_eq!(state(&settled), (200, "held", true), "{settled:?}");
    assert_eq!((&settled.1["charges"][0]["remaining"], fixture.tokens()), (&json!(8), 8));
    for again in [settle, json!({"id": id, "cost": 9})] {
        let settled = fixture.post("/v1/settle", &again);
        assert_eq!((state(&settled), fixture.tokens()), ((200, "held", false), 8));
    }
    let released = fixture.post("/v1/release", &json!({"id": id}));
    assert_eq!(state(&released), (200, "released", true));
    for (path, body, status) in [
        ("/v1/release", json!({"id": id}), 200),
        ("/v1/settle", json!({"id": id, "cost": 1}), 200),
        ("/v1/renew", json!({"id": id}), 409),
        ("/v1/renew?deny_status=200", json!({"id": id}), 200),
    ] {
        assert_eq!(state(&fixture.post(path, &body)), (status, "released", false), "{path}");
    }
    assert_eq!(fixture.tokens(), 8);
    let unknown = json!({"id": "p1_AAAAAAAAAAAAAAAAAAAAAA"});
    assert_eq!(state(&fixture.post("/v1/release", &unknown)), (200, "unknown", false));
    assert_eq!(state(&fixture.post("/v1/renew", &unknown)), (409, "unknown", false));
    assert_eq!(fixture.metric(r#"tidegate_permits_ended_total{outcome="released"}"#), 1);
}

#[test]
fn actual_costs_are_settled_on_release_or_by_limit() {
    let fixture = Fixture::open();
    let id = fixture.acquire(&json!({"charges": list()}));
    // The cost applies to the only charge that is not a slot.
    let released = fixture.post("/v1/release", &json!({"id": id, "cost": 2}));
    assert_eq!((state(&released), fixture.tokens()), ((200, "released", true), 8));
    let id = fixture.acquire(&json!({"charges": list()}));
    let body = json!({"id": id, "charges": [{"limit": "tokens", "key": "acme", "cost": 1}]});
    assert_eq!(state(&fixture.post("/v1/settle", &body)), (200, "held", true));
    assert_eq!(fixture.tokens(), 7);
    let wrong = json!({"id": id, "charges": [{"limit": "nothing", "cost": 1}]});
    assert_eq!(fixture.post("/v1/release", &wrong).0, 400);
    let wrong = json!({"id": id, "charges": [{"cost": 1}]});
    let (status, answer) = fixture.post("/v1/release", &wrong);
    let rule = "must have 2 entries, one for each charge of the permit";
    assert_eq!((status, &answer["errors"][0]["rule"]), (400, &json!(rule)));
    assert_eq!(state(&fixture.post("/v1/release", &json!({"id": id}))), (200, "released", true));
    // A take with a receipt can still be settled by it.
    let take = json!({"limit": "tokens", "key": "acme", "cost": 4, "receipt": true});
    let receipt = fixture.post("/v1/take", &take).1["receipt"].clone();
    let settle = json!({"limit": "tokens", "key": "acme", "delta": -4, "receipt": receipt});
    assert_eq!((fixture.post("/v1/settle", &settle).0, fixture.tokens()), (200, 7));
}

/// After a crash of the worker, its slot is freed, but its charges are kept because they may have
/// been used.
#[test]
fn expired_permit_frees_its_slot_but_keeps_its_charges() {
    let fixture = Fixture::open();
    let id = fixture.acquire(&json!({"charges": list(), "ttl_ms": 300}));
    let body = json!({"limit": "gpu", "key": "box", "max_wait_ms": 20_000});
    let (status, answer) = fixture.post("/v1/acquire", &body);
    assert_eq!(status, 200, "{answer}");
    assert!(answer["waited_ms"].as_u64().unwrap() < 15_000, "{answer}");
    assert_eq!(fixture.tokens(), 5);
    assert_eq!(state(&fixture.post("/v1/renew", &json!({"id": id}))), (409, "expired", false));
    for (path, body) in
        [("/v1/release", json!({"id": id})), ("/v1/settle", json!({"id": id, "cost": 0}))]
    {
        assert_eq!(state(&fixture.post(path, &body)), (200, "expired", false), "{path}");
    }
    assert_eq!(fixture.tokens(), 5);
    assert_eq!(fixture.metric(r#"tidegate_permits_ended_total{outcome="expired"}"#), 1);
    assert_eq!(fixture.metric("tidegate_permits"), 1);
}
