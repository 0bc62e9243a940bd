//! Admission, reconfigured while the server runs.

use serde_json::{Value, json};

use crate::Gate;

const ALICE: &str = r#"{"organization":"acme","client":"alice"}"#;
const LIMITS: &str = "[limits.client]\ncapacity = 1\nrate = \"1/day\"\n\
                      [limits.organization]\ncapacity = 100\nrate = \"1/day\"\n";

fn admission(gate: &Gate, change: &Value) {
    let reply = gate.patch(&json!({"admission": change}));
    assert_eq!(reply.status, 200, "{}", reply.body);
}

/// G13: shadowed, enforced, allow-listed and disabled, each from the next request on.
///
/// Setting: admission.enabled, admission.mode, admission.allow_organizations
#[test]
fn enforcement_is_switched_at_run_time() {
    let gate = Gate::configured(LIMITS);
    let admit = || gate.post("/v1/admit", ALICE).status;
    assert_eq!((admit(), admit()), (200, 429));
    admission(&gate, &json!({"mode": "shadow"}));
    assert_eq!(admit(), 200);
    admission(&gate, &json!({"mode": null}));
    assert_eq!(admit(), 429);
    admission(&gate, &json!({"allow_organizations": ["acme"]}));
    assert_eq!(admit(), 200);
    admission(&gate, &json!({"allow_organizations": []}));
    assert_eq!(admit(), 429);
    admission(&gate, &json!({"enabled": false}));
    assert_eq!(admit(), 200);
}

/// A tier has one bucket per client, shared by all verbs, before and after a change.
#[test]
fn a_tier_that_is_changed_is_the_same_bucket_for_every_verb() {
    let gate = Gate::configured(LIMITS);
    assert_eq!(gate.post("/v1/admit", ALICE).status, 200);
    assert_eq!(gate.patch(&json!({"limits": {"client": {"capacity": 5}}})).status, 200);
    let bucket = r#"{"limit":"client","key":"alice","group":"acme","cost":0}"#;
    assert_eq!(gate.post("/v1/peek", bucket).member("remaining"), 0, "nothing is granted at once");
    assert_eq!(gate.post("/v1/admit", ALICE).status, 429);
    let bob = r#"{"organization":"acme","client":"bob","cost":5}"#;
    assert_eq!(gate.post("/v1/admit", bob).status, 200);
    let bucket = r#"{"limit":"client","key":"bob","group":"acme","cost":0}"#;
    assert_eq!(gate.post("/v1/peek", bucket).member("remaining"), 0);
}

/// R430 and R436: the defaults, and the allowed ranges.
#[test]
fn defaults_are_shown_and_bounds_hold() {
    let gate = Gate::configured("");
    for (key, value) in [
        ("limits.client.capacity", json!(100)),
        ("limits.client.rate", json!("50/s")),
        ("limits.organization.capacity", json!(1_000)),
        ("limits.organization.rate", json!("500/s")),
        ("admission.backpressure_threshold", json!(100)),
    ] {
        assert_eq!(gate.setting(key), value, "{key}");
    }
    for change in [
        json!({"limits": {"client": {"capacity": 0}}}),
        json!({"limits": {"client": {"capacity": -1}}}),
        json!({"limits": {"organization": {"rate": "0/s"}}}),
        json!({"limits": {"organization": {"tokens_per_second": -5}}}),
        json!({"admission": {"backpressure_threshold": -1}}),
        json!({"limits": {"client": {"capacity": 1e30}}}),
    ] {
        assert_eq!(gate.patch(&change).status, 422, "{change}");
    }
}
