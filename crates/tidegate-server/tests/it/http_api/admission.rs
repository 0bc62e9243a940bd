//! Admission over HTTP, and the number of pending requests.

use tidegate_testkit::launch::wait_until;

use crate::TestServer;

const ALICE: &str = r#"{"organization":"acme","client":"alice"}"#;

#[test]
fn callers_are_admitted_until_a_tier_is_exhausted() {
    let server = TestServer::open();
    server.expect(
        "/v1/admit",
        ALICE,
        200,
        r#"{"allowed":true,"remaining":9,"charges":[{"limit":"client","remaining":9,"reset_after_ms":1000},{"limit":"organization","remaining":14,"reset_after_ms":100}]}"#,
    );
    let nine_more = r#"{"organization":"acme","client":"alice","cost":9}"#;
    assert_eq!(server.post("/v1/admit", nine_more).status, 200);
    let response = server.post("/v1/admit", ALICE);
    assert_eq!(response.status, 429);
    assert_eq!(response.header("retry-after"), Some("1"));
    assert_eq!(
        response.body,
        r#"{"allowed":false,"level":"client","reason":"tokens_exhausted","retry_after_ms":1000,"id":"alice","charges":[{"limit":"client","remaining":0,"reset_after_ms":10000},{"limit":"organization","remaining":5,"reset_after_ms":1000}]}"#
    );
    let bob = r#"{"organization":"acme","client":"bob","cost":6}"#;
    let response = server.post("/v1/admit?deny_status=200", bob);
    assert_eq!(response.status, 200);
    assert_eq!(
        (response.text("level"), response.text("id")),
        ("organization".into(), "acme".into())
    );
    assert_eq!(response.member("retry_after_ms"), 100);
    let peek = r#"{"limit":"client","key":"bob","group":"acme","cost":0}"#;
    assert_eq!(server.post("/v1/peek", peek).member("remaining"), 10, "nothing was spent");
    let other = r#"{"organization":"other","client":"alice"}"#;
    assert_eq!(server.post("/v1/admit", other).status, 200);
}

#[test]
fn a_rejection_has_both_retry_headers() {
    let server = TestServer::open();
    let most = r#"{"organization":"acme","client":"alice","cost":10}"#;
    assert_eq!(server.post("/v1/admit", most).status, 200);
    server.advance(300);
    let response = server.post("/v1/admit", ALICE);
    assert_eq!(response.status, 429);
    let fields = (response.header("retry-after"), response.header("retry-after-ms"));
    assert_eq!(fields, (Some("1"), Some("700")));
}

#[test]
fn reset_works_on_admission_buckets() {
    let server = TestServer::open();
    let all = r#"{"organization":"acme","client":"alice","cost":10}"#;
    assert_eq!(server.post("/v1/admit", all).status, 200);
    assert_eq!(server.post("/v1/admit", ALICE).status, 429);
    let bucket = r#"{"limit":"client","key":"alice","group":"acme"}"#;
    server.expect("/v1/reset", bucket, 200, r#"{"reset":true}"#);
    assert_eq!(server.post("/v1/admit", ALICE).status, 200);
}

/// Setting: admission.backpressure_threshold
#[test]
fn backpressure_rejects_everything() {
    let server = TestServer::configured("[admission]\nbackpressure_threshold = 50\n");
    let set = |value: &str| server.put("/v1/pending", value);
    let response = set(r#"{"value":60,"ttl_ms":60000}"#);
    assert_eq!((response.status, response.body.as_str()), (200, r#"{"pending":60}"#));
    let response = server.post("/v1/admit", ALICE);
    assert_eq!(response.status, 429);
    assert_eq!(
        response.body,
        r#"{"allowed":false,"level":"backpressure","reason":"queue_depth","retry_after_ms":100,"id":null,"charges":[]}"#
    );
    assert_eq!(set(r#"{"value":50}"#).status, 200);
    assert_eq!(server.post("/v1/admit", ALICE).status, 200, "the threshold itself is allowed");
    assert_eq!(set(r#"{"value":51,"ttl_ms":1}"#).status, 200);
    let admits = || (server.post("/v1/admit", "{}").status == 200).then_some(());
    wait_until("the reported number to expire", admits);
    let response = server.get("/v1/pending");
    assert_eq!((response.status, response.body.as_str()), (200, r#"{"pending":0}"#));
}

#[test]
fn shadow_mode_and_allow_list_admit_requests() {
    let text = "[admission]\nmode = \"shadow\"\nallow_organizations = [\"probes\"]\n\
                [limits.client]\ncapacity = 1\nrate = \"1/s\"\n";
    let server = TestServer::configured(text);
    assert_eq!(server.post("/v1/admit", ALICE).status, 200);
    server.expect(
        "/v1/admit",
        ALICE,
        200,
        r#"{"allowed":true,"would_reject":{"level":"client","reason":"tokens_exhausted","retry_after_ms":1000},"charges":[]}"#,
    );
    let probe = r#"{"organization":"probes","client":"x","cost":1000}"#;
    server.expect("/v1/admit", probe, 200, r#"{"allowed":true,"charges":[]}"#);
}

/// Without jitter the wait is always exactly the same.
///
/// Setting: admission.jitter_percent
#[test]
fn jitter_lengthens_the_hints_by_up_to_its_percentage() {
    let text = "[admission]\njitter_percent = 50\n[limits.client]\ncapacity = 1\nrate = \"1/h\"\n";
    let server = TestServer::configured(text);
    assert_eq!(server.post("/v1/admit", ALICE).status, 200);
    let wait = |_| server.post("/v1/admit", ALICE).member("retry_after_ms").as_u64().unwrap();
    let waits: Vec<u64> = (0..20).map(wait).collect();
    const HOUR: u64 = 3_600_000;
    assert!(waits.iter().all(|wait| (HOUR..=HOUR * 3 / 2).contains(wait)), "{waits:?}");
    assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
}

#[test]
fn disabled_admission_admits_everything() {
    let server = TestServer::configured("[admission]\nenabled = false\n");
    assert_eq!(server.put("/v1/pending", r#"{"value":1000}"#).status, 200);
    for _ in 0..200 {
        server.expect("/v1/admit", ALICE, 200, r#"{"allowed":true,"charges":[]}"#);
    }
}

#[test]
fn invalid_requests_are_reported_and_spend_nothing() {
    let server = TestServer::open();
    let wrong = r#"{"organisation":"acme","client":"","cost":-1}"#;
    let response = server.post("/v1/admit", wrong);
    assert_eq!(response.status, 400);
    assert_eq!(response.header("content-type"), Some("application/problem+json"));
    for expected in ["did you mean `organization`?", "client", "cost"] {
        assert!(response.body.contains(expected), "{expected} in {}", response.body);
    }
    for (body, field) in [
        (r#"{"value":-1}"#, "value"),
        (r#"{"value":4294967296}"#, "value"),
        (r#"{"ttl_ms":1}"#, "value"),
        (r#"{"value":1,"ttl_ms":"soon"}"#, "ttl_ms"),
        (r#"{"value":1,"ttl_ms":3600001}"#, "ttl_ms"),
    ] {
        let response = server.put("/v1/pending", body);
        assert_eq!(response.status, 400, "{body}");
        assert!(response.body.contains(field), "{body}: {}", response.body);
    }
    assert_eq!(server.post("/v1/pending", r#"{"value":1}"#).status, 405);
}
