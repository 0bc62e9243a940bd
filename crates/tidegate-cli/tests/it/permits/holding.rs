//! `/v1/admit` with `hold`: pending requests are counted automatically.

use serde_json::json;
use tidegate_testkit::launch::wait_until;

use super::Fixture;

#[test]
fn admitted_request_is_pending_until_released() {
    let fixture = Fixture::open();
    let held = json!({"organization": "acme", "client": "alice", "hold": true});
    let (first, second) = (fixture.post("/v1/admit", &held), fixture.post("/v1/admit", &held));
    assert_eq!((first.0, second.0, fixture.pending()), (200, 200, 2), "{first:?}");
    assert_eq!(first.1["expires_in_ms"], 60_000);
    let (status, answer) = fixture.post("/v1/admit", &held);
    assert_eq!((status, &answer["level"]), (429, &json!("backpressure")), "{answer}");
    assert_eq!(fixture.pending(), 2, "a rejected request is not pending");
    for changed in [true, false] {
        let (status, answer) = fixture.post("/v1/release", &json!({"id": first.1["id"]}));
        assert_eq!((status, &answer["changed"]), (200, &json!(changed)), "{answer}");
        assert_eq!(fixture.pending(), 1);
    }
    let plain = json!({"organization": "acme", "client": "alice"});
    let (status, answer) = fixture.post("/v1/admit", &plain);
    assert_eq!((status, &answer["id"], fixture.pending()), (200, &json!(null), 1), "{answer}");
    let settle = json!({"id": second.1["id"], "cost": 1});
    assert_eq!(fixture.post("/v1/settle", &settle).0, 400, "there is nothing to settle");
}

#[test]
fn pending_request_expires_unless_renewed() {
    let fixture = Fixture::open();
    let hold =
        |ttl: u64| fixture.post("/v1/admit", &json!({"client": "a", "hold": true, "ttl_ms": ttl}));
    let (lasting, brief) = (hold(60_000), hold(60_000));
    assert_eq!(fixture.pending(), 2);
    let renewed = fixture.post("/v1/renew", &json!({"id": brief.1["id"], "ttl_ms": 200}));
    assert_eq!((renewed.0, &renewed.1["expires_in_ms"]), (200, &json!(200)));
    wait_until("the renewed one to run out", || (fixture.pending() == 1).then_some(()));
    let (status, answer) = fixture.post("/v1/renew", &json!({"id": brief.1["id"]}));
    assert_eq!((status, &answer["state"]), (409, &json!("expired")));
    assert_eq!(fixture.post("/v1/renew", &json!({"id": lasting.1["id"]})).0, 200);
    assert_eq!(fixture.pending(), 1);
}
