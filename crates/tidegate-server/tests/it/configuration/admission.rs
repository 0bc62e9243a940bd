//! Admission, reconfigured while the server runs.

use serde_json::{Value, json};

use crate::TestServer;

const ALICE: &str = r#"{"organization":"acme","client":"alice"}"#;
const LIMITS: &str = "[limits.client]\ncapacity = 1\nrate = \"1/day\"\n\
                      [limits.organization]\ncapacity = 100\nrate = \"1/day\"\n";

fn admission(server: &TestServer, change: &Value) {
    let response = server.patch(&json!({"admission": change}));
    assert_eq!(response.status, 200, "{}", response.body);
}

/// G13: shadowed, enforced, allow-listed and disabled, each from the next request on.
///
/// Setting: admission.enabled, admission.mode, admission.allow_organizations
#[test]
fn admission_can_be_reconfigured_at_run_time() {
    let server = TestServer::configured(LIMITS);
    let admit = || server.post("/v1/admit", ALICE).status;
    assert_eq!((admit(), admit()), (200, 429));
    admission(&server, &json!({"mode": "shadow"}));
    assert_eq!(admit(), 200);
    admission(&server, &json!({"mode": null}));
    assert_eq!(admit(), 429);
    admission(&server, &json!({"allow_organizations": ["acme"]}));
    assert_eq!(admit(), 200);
    admission(&server, &json!({"allow_organizations": []}));
    assert_eq!(admit(), 429);
    admission(&server, &json!({"enabled": false}));
    assert_eq!(admit(), 200);
}

/// A tier has one bucket per client, shared by all verbs, before and after a change.
#[test]
fn a_changed_tier_keeps_one_bucket_for_all_verbs() {
    let server = TestServer::configured(LIMITS);
    assert_eq!(server.post("/v1/admit", ALICE).status, 200);
    assert_eq!(server.patch(&json!({"limits": {"client": {"capacity": 5}}})).status, 200);
    let bucket = r#"{"limit":"client","key":"alice","group":"acme","cost":0}"#;
    assert_eq!(
        server.post("/v1/peek", bucket).member("remaining"),
        0,
        "a higher capacity grants nothing at once"
    );
    assert_eq!(server.post("/v1/admit", ALICE).status, 429);
    let bob = r#"{"organization":"acme","client":"bob","cost":5}"#;
    assert_eq!(server.post("/v1/admit", bob).status, 200);
    let bucket = r#"{"limit":"client","key":"bob","group":"acme","cost":0}"#;
    assert_eq!(server.post("/v1/peek", bucket).member("remaining"), 0);
}

/// R430 and R436: the defaults, and the allowed ranges.
#[test]
fn defaults_are_shown_and_ranges_are_enforced() {
    let server = TestServer::configured("");
    for (key, value) in [
        ("limits.client.capacity", json!(100)),
        ("limits.client.rate", json!("50/s")),
        ("limits.organization.capacity", json!(1_000)),
        ("limits.organization.rate", json!("500/s")),
        ("admission.backpressure_threshold", json!(100)),
    ] {
        assert_eq!(server.setting(key), value, "{key}");
    }
    for change in [
        json!({"limits": {"client": {"capacity": 0}}}),
        json!({"limits": {"client": {"capacity": -1}}}),
        json!({"limits": {"organization": {"rate": "0/s"}}}),
        json!({"limits": {"organization": {"tokens_per_second": -5}}}),
        json!({"admission": {"backpressure_threshold": -1}}),
        json!({"limits": {"client": {"capacity": 1e30}}}),
    ] {
        assert_eq!(server.patch(&change).status, 422, "{change}");
    }
}
