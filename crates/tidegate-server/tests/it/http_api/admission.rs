//! Admission over HTTP, and the number of pending requests.

use tidegate_testkit::launch::wait_until;

use crate::Gate;

const ALICE: &str = r#"{"organization":"acme","client":"alice"}"#;

#[test]
fn callers_are_admitted_until_their_tier_is_used_up() {
    let gate = Gate::open();
    gate.expect(
        "/v1/admit",
        ALICE,
        200,
        r#"{"allowed":true,"remaining":9,"charges":[{"limit":"client","remaining":9,"reset_after_ms":1000},{"limit":"organization","remaining":14,"reset_after_ms":100}]}"#,
    );
    let nine_more = r#"{"organization":"acme","client":"alice","cost":9}"#;
    assert_eq!(gate.post("/v1/admit", nine_more).status, 200);
    let reply = gate.post("/v1/admit", ALICE);
    assert_eq!(reply.status, 429);
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!(
        reply.body,
        r#"{"allowed":false,"level":"client","reason":"tokens_exhausted","retry_after_ms":1000,"id":"alice","charges":[{"limit":"client","remaining":0,"reset_after_ms":10000},{"limit":"organization","remaining":5,"reset_after_ms":1000}]}"#
    );
    let bob = r#"{"organization":"acme","client":"bob","cost":6}"#;
    let reply = gate.post("/v1/admit?deny_status=200", bob);
    assert_eq!(reply.status, 200);
    assert_eq!((reply.text("level"), reply.text("id")), ("organization".into(), "acme".into()));
    assert_eq!(reply.member("retry_after_ms"), 100);
    let peek = r#"{"limit":"client","key":"bob","group":"acme","cost":0}"#;
    assert_eq!(gate.post("/v1/peek", peek).member("remaining"), 10, "nothing was spent");
    let other = r#"{"organization":"other","client":"alice"}"#;
    assert_eq!(gate.post("/v1/admit", other).status, 200);
}

#[test]
fn a_rejection_has_the_wait_in_two_fields() {
    let gate = Gate::open();
    let most = r#"{"organization":"acme","client":"alice","cost":10}"#;
    assert_eq!(gate.post("/v1/admit", most).status, 200);
    gate.advance(300);
    let reply = gate.post("/v1/admit", ALICE);
    assert_eq!(reply.status, 429);
    let fields = (reply.header("retry-after"), reply.header("retry-after-ms"));
    assert_eq!(fields, (Some("1"), Some("700")));
}

#[test]
fn operators_reset_the_bucket_of_a_client_by_the_verbs_for_limits() {
    let gate = Gate::open();
    let all = r#"{"organization":"acme","client":"alice","cost":10}"#;
    assert_eq!(gate.post("/v1/admit", all).status, 200);
    assert_eq!(gate.post("/v1/admit", ALICE).status, 429);
    let bucket = r#"{"limit":"client","key":"alice","group":"acme"}"#;
    gate.expect("/v1/reset", bucket, 200, r#"{"reset":true}"#);
    assert_eq!(gate.post("/v1/admit", ALICE).status, 200);
}

/// Setting: admission.backpressure_threshold
#[test]
fn while_too_much_is_pending_nobody_gets_in() {
    let gate = Gate::configured("[admission]\nbackpressure_threshold = 50\n");
    let set = |value: &str| gate.put("/v1/pending", value);
    let reply = set(r#"{"value":60,"ttl_ms":60000}"#);
    assert_eq!((reply.status, reply.body.as_str()), (200, r#"{"pending":60}"#));
    let reply = gate.post("/v1/admit", ALICE);
    assert_eq!(reply.status, 429);
    assert_eq!(
        reply.body,
        r#"{"allowed":false,"level":"backpressure","reason":"queue_depth","retry_after_ms":100,"id":null,"charges":[]}"#
    );
    assert_eq!(set(r#"{"value":50}"#).status, 200);
    assert_eq!(gate.post("/v1/admit", ALICE).status, 200, "the threshold itself gets in");
    assert_eq!(set(r#"{"value":51,"ttl_ms":1}"#).status, 200);
    let admits = || (gate.post("/v1/admit", "{}").status == 200).then_some(());
    wait_until("a number whose time is over to keep nobody out", admits);
    let reply = gate.get("/v1/pending");
    assert_eq!((reply.status, reply.body.as_str()), (200, r#"{"pending":0}"#));
}

#[test]
fn shadow_mode_and_the_allow_list_let_in_whom_they_should() {
    let text = "[admission]\nmode = \"shadow\"\nallow_organizations = [\"probes\"]\n\
                [limits.client]\ncapacity = 1\nrate = \"1/s\"\n";
    let gate = Gate::configured(text);
    assert_eq!(gate.post("/v1/admit", ALICE).status, 200);
    gate.expect(
        "/v1/admit",
        ALICE,
        200,
        r#"{"allowed":true,"would_reject":{"level":"client","reason":"tokens_exhausted","retry_after_ms":1000},"charges":[]}"#,
    );
    let probe = r#"{"organization":"probes","client":"x","cost":1000}"#;
    gate.expect("/v1/admit", probe, 200, r#"{"allowed":true,"charges":[]}"#);
}

/// Without jitter the wait is always exactly the same.
///
/// Setting: admission.jitter_percent
#[test]
fn jitter_lengthens_the_hints_by_up_to_its_percentage() {
    let text = "[admission]\njitter_percent = 50\n[limits.client]\ncapacity = 1\nrate = \"1/h\"\n";
    let gate = Gate::configured(text);
    assert_eq!(gate.post("/v1/admit", ALICE).status, 200);
    let wait = |_| gate.post("/v1/admit", ALICE).member("retry_after_ms").as_u64().unwrap();
    let waits: Vec<u64> = (0..20).map(wait).collect();
    const HOUR: u64 = 3_600_000;
    assert!(waits.iter().all(|wait| (HOUR..=HOUR * 3 / 2).contains(wait)), "{waits:?}");
    assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
}

#[test]
fn switched_off_everybody_gets_in() {
    let gate = Gate::configured("[admission]\nenabled = false\n");
    assert_eq!(gate.put("/v1/pending", r#"{"value":1000}"#).status, 200);
    for _ in 0..200 {
        gate.expect("/v1/admit", ALICE, 200, r#"{"allowed":true,"charges":[]}"#);
    }
}

#[test]
fn what_is_wrong_is_told_and_nothing_is_spent() {
    let gate = Gate::open();
    let wrong = r#"{"organisation":"acme","client":"","cost":-1}"#;
    let reply = gate.post("/v1/admit", wrong);
    assert_eq!(reply.status, 400);
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    for told in ["did you mean `organization`?", "client", "cost"] {
        assert!(reply.body.contains(told), "{told} in {}", reply.body);
    }
    for (body, field) in [
        (r#"{"value":-1}"#, "value"),
        (r#"{"value":4294967296}"#, "value"),
        (r#"{"ttl_ms":1}"#, "value"),
        (r#"{"value":1,"ttl_ms":"soon"}"#, "ttl_ms"),
        (r#"{"value":1,"ttl_ms":3600001}"#, "ttl_ms"),
    ] {
        let reply = gate.put("/v1/pending", body);
        assert_eq!(reply.status, 400, "{body}");
        assert!(reply.body.contains(field), "{body}: {}", reply.body);
    }
    assert_eq!(gate.post("/v1/pending", r#"{"value":1}"#).status, 405);
}
