//! `/v1/admit` with `hold`: what is pending counts itself, without anybody telling a number.

use serde_json::json;
use tidegate_testkit::launch::wait_until;

use super::Stage;

#[test]
fn an_admitted_request_is_pending_until_its_permit_is_released() {
    let stage = Stage::open();
    let held = json!({"organization": "acme", "client": "alice", "hold": true});
    let (first, second) = (stage.post("/v1/admit", &held), stage.post("/v1/admit", &held));
    assert_eq!((first.0, second.0, stage.pending()), (200, 200, 2), "{first:?}");
    assert_eq!(first.1["expires_in_ms"], 60_000);
    let (status, answer) = stage.post("/v1/admit", &held);
    assert_eq!((status, &answer["level"]), (429, &json!("backpressure")), "{answer}");
    assert_eq!(stage.pending(), 2, "whoever is rejected is not held");
    for changed in [true, false] {
        let (status, answer) = stage.post("/v1/release", &json!({"id": first.1["id"]}));
        assert_eq!((status, &answer["changed"]), (200, &json!(changed)), "{answer}");
        assert_eq!(stage.pending(), 1);
    }
    let plain = json!({"organization": "acme", "client": "alice"});
    let (status, answer) = stage.post("/v1/admit", &plain);
    assert_eq!((status, &answer["id"], stage.pending()), (200, &json!(null), 1), "{answer}");
    let settle = json!({"id": second.1["id"], "cost": 1});
    assert_eq!(stage.post("/v1/settle", &settle).0, 400, "there is nothing to settle");
}

#[test]
fn what_is_pending_runs_out_unless_it_is_renewed() {
    let stage = Stage::open();
    let hold =
        |ttl: u64| stage.post("/v1/admit", &json!({"client": "a", "hold": true, "ttl_ms": ttl}));
    let (lasting, brief) = (hold(60_000), hold(60_000));
    assert_eq!(stage.pending(), 2);
    let renewed = stage.post("/v1/renew", &json!({"id": brief.1["id"], "ttl_ms": 200}));
    assert_eq!((renewed.0, &renewed.1["expires_in_ms"]), (200, &json!(200)));
    wait_until("the renewed one to run out", || (stage.pending() == 1).then_some(()));
    let (status, answer) = stage.post("/v1/renew", &json!({"id": brief.1["id"]}));
    assert_eq!((status, &answer["state"]), (409, &json!("expired")));
    assert_eq!(stage.post("/v1/renew", &json!({"id": lasting.1["id"]})).0, 200);
    assert_eq!(stage.pending(), 1);
}
