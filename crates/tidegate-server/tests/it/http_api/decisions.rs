//! Take, peek, settle, hold and reset on single keys.

use crate::TestServer;

#[test]
fn take_responds_as_documented_in_the_readme() {
    let server = TestServer::open();
    let request = r#"{"key":"alice","cost":1,"limit":"client"}"#;
    let response = server.post("/v1/take", request);
    assert_eq!(response.status, 200);
    assert_eq!(response.body, r#"{"allowed":true,"remaining":9,"reset_after_ms":1000}"#);
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(response.header("retry-after"), None);
    for _ in 0..9 {
        assert_eq!(server.post("/v1/take", request).status, 200);
    }
    let response = server.post("/v1/take", request);
    assert_eq!(response.status, 429);
    assert_eq!(
        response.body,
        r#"{"allowed":false,"by":"client","remaining":0,"retry_after_ms":1000}"#
    );
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(response.header("retry-after"), Some("1"));
    server.advance(1_000);
    server.expect(
        "/v1/take",
        request,
        200,
        r#"{"allowed":true,"remaining":0,"reset_after_ms":10000}"#,
    );
}

/// A denial gives the retry time in whole seconds and in milliseconds.
#[test]
fn a_denial_has_both_retry_headers() {
    let server = TestServer::open();
    let request = r#"{"key":"alice","cost":10,"limit":"client"}"#;
    assert_eq!(server.post("/v1/take", request).header("retry-after-ms"), None);
    for (passed, seconds, millis) in [(8_500, "2", "1500"), (1_499, "1", "1")] {
        server.advance(passed);
        let response = server.post("/v1/take", request);
        assert_eq!(response.status, 429);
        let fields = (response.header("retry-after"), response.header("retry-after-ms"));
        assert_eq!(fields, (Some(seconds), Some(millis)));
    }
    let response = server.post("/v1/take?deny_status=200", request);
    assert_eq!(
        (response.status, response.header("retry-after-ms")),
        (200, None),
        "no 429, no headers"
    );
}

#[test]
fn waits_are_rounded_up_in_both_units() {
    let server = TestServer::open();
    let request = r#"{"key":"alice","cost":10,"limit":"client"}"#;
    assert_eq!(server.post("/v1/take", request).status, 200);
    server.clock.advance(std::time::Duration::from_nanos(8_500_000_001));
    let response = server.post("/v1/take", request);
    assert_eq!(response.header("retry-after"), Some("2"));
    assert_eq!(
        response.body,
        r#"{"allowed":false,"by":"client","remaining":8,"retry_after_ms":1500}"#
    );
    server.advance(1_499);
    let response = server.post("/v1/take", request);
    assert_eq!((response.header("retry-after"), response.text("by")), (Some("1"), "client".into()));
    assert_eq!(response.member("retry_after_ms"), 1);
}

#[test]
fn the_default_cost_is_one_and_zero_reports_the_state() {
    let server = TestServer::open();
    let state = r#"{"key":"alice","limit":"client","cost":0}"#;
    server.expect("/v1/take", state, 200, r#"{"allowed":true,"remaining":10,"reset_after_ms":0}"#);
    let take = r#"{"key":"alice","limit":"client"}"#;
    server.expect("/v1/take", take, 200, r#"{"allowed":true,"remaining":9,"reset_after_ms":1000}"#);
    let three = r#"{"key":"alice","limit":"client","cost":3.0}"#;
    server.expect(
        "/v1/take",
        three,
        200,
        r#"{"allowed":true,"remaining":6,"reset_after_ms":4000}"#,
    );
    server.expect(
        "/v1/take",
        state,
        200,
        r#"{"allowed":true,"remaining":6,"reset_after_ms":4000}"#,
    );
}

#[test]
fn a_cost_above_the_capacity_can_never_fit() {
    let server = TestServer::open();
    let response = server.post("/v1/take", r#"{"key":"alice","cost":11,"limit":"client"}"#);
    assert_eq!(response.status, 429);
    assert_eq!(
        response.body,
        r#"{"allowed":false,"by":"client","remaining":10,"retry_after_ms":null}"#
    );
    assert_eq!(response.header("retry-after"), None);
    let most = format!(r#"{{"key":"alice","cost":{},"limit":"client"}}"#, u64::MAX);
    assert_eq!(server.post("/v1/take", &most).status, 429);
}

#[test]
fn peek_spends_nothing() {
    let server = TestServer::open();
    let request = r#"{"key":"alice","cost":10,"limit":"client"}"#;
    for _ in 0..3 {
        assert_eq!(server.post("/v1/peek", request).status, 200);
    }
    assert_eq!(server.post("/v1/take", request).status, 200);
    let response = server.post("/v1/peek", request);
    assert_eq!((response.status, response.header("retry-after")), (429, Some("10")));
}

#[test]
fn inline_policies_are_identified_by_value_and_separate_from_named_limits() {
    let server = TestServer::open();
    let inline = r#"{"key":"alice","cost":10,"policy":{"capacity":10,"tokens_per_second":1}}"#;
    assert_eq!(server.post("/v1/take", inline).status, 200);
    let same = r#"{"key":"alice","policy":{"rate":"60/min","capacity":10.0}}"#;
    server.expect(
        "/v1/take",
        same,
        429,
        r#"{"allowed":false,"by":"inline","remaining":0,"retry_after_ms":1000}"#,
    );
    let other = r#"{"key":"alice","policy":{"rate":"60/min","capacity":11}}"#;
    assert_eq!(server.post("/v1/take", other).status, 200);
    let named = r#"{"key":"alice","limit":"client","cost":10}"#;
    assert_eq!(server.post("/v1/take", named).status, 200);
}

#[test]
fn a_group_is_part_of_the_key() {
    let server = TestServer::open();
    let take =
        |key: &str| server.post("/v1/take", &format!(r#"{{{key},"cost":10,"limit":"client"}}"#));
    assert_eq!(take(r#""key":"alice""#).status, 200);
    assert_eq!(take(r#""key":"alice","group":"acme""#).status, 200);
    assert_eq!(take(r#""key":"alice","group":"acme""#).status, 429);
    assert_eq!(take(r#""key":"alice","group":"other""#).status, 200);
}

#[test]
fn denials_can_have_status_200() {
    let server = TestServer::open();
    let request = r#"{"key":"alice","cost":11,"limit":"client"}"#;
    let denied = r#"{"allowed":false,"by":"client","remaining":10,"retry_after_ms":null}"#;
    server.expect("/v1/take?deny_status=200", request, 200, denied);
    server.expect("/v1/peek?deny_status=200", request, 200, denied);
    server.expect("/v1/take?deny_status=429", request, 429, denied);
    let response = server.post("/v1/take?deny_status=503", request);
    assert_eq!(response.status, 400);
    assert!(response.body.contains(r#"{"field":"?deny_status","rule":"must be 200 or 429"}"#));
    let response = server.post("/v1/take?deny_stats=200", request);
    assert!(response.body.contains("did you mean `deny_status`?"), "{}", response.body);
}

/// Setting: limits.*.quota, limits.*.every
#[test]
fn calendar_quotas_end_at_midnight() {
    let server = TestServer::open();
    let request = r#"{"key":"alice","cost":2,"limit":"daily"}"#;
    server.expect(
        "/v1/take",
        request,
        200,
        r#"{"allowed":true,"remaining":1,"reset_after_ms":3600000}"#,
    );
    let response = server.post("/v1/take", request);
    assert_eq!(response.header("retry-after"), Some("3600"));
    assert_eq!(
        response.body,
        r#"{"allowed":false,"by":"daily","remaining":1,"retry_after_ms":3600000}"#
    );
    server.advance(3_600_000);
    server.expect(
        "/v1/take",
        request,
        200,
        r#"{"allowed":true,"remaining":1,"reset_after_ms":86400000}"#,
    );
}

/// Regression: equal quotas in two calendars shared one bucket, and switching between them reset
/// it.
#[test]
fn inline_calendars_have_separate_buckets() {
    let server = TestServer::open();
    let take = |every: &str, zone: &str| {
        let policy = format!(r#"{{"quota":2,"every":"{every}","zone":"{zone}"}}"#);
        server.post("/v1/take", &format!(r#"{{"key":"alice","cost":2,"policy":{policy}}}"#)).status
    };
    for (every, zone) in [("day", "UTC"), ("month", "UTC"), ("day", "Asia/Tokyo")] {
        assert_eq!(take(every, zone), 200);
    }
    for (every, zone) in [("day", "UTC"), ("month", "UTC"), ("day", "Asia/Tokyo")] {
        assert_eq!(take(every, zone), 429);
    }
}

/// Regression: each spelling of a time zone had its own quota.
#[test]
fn spellings_of_a_time_zone_share_one_quota() {
    let server = TestServer::open();
    let take = |zone: &str| {
        let policy = format!(r#"{{"quota":5,"every":"day"{zone}}}"#);
        let response = server.post("/v1/take", &format!(r#"{{"key":"alice","policy":{policy}}}"#));
        response.member("remaining")
    };
    let zones = ["", r#","zone":"UTC""#, r#","zone":"utc""#, r#","zone":"Etc/UTC""#];
    for (zone, remaining) in zones.into_iter().zip([4, 3, 2, 1]) {
        assert_eq!(take(zone), remaining, "{zone}");
    }
    assert_eq!(take(r#","zone":"Asia/Tokyo""#), 4);
    assert_eq!(take(r#","zone":"asia/tokyo""#), 3);
}

/// Setting: limits.*.allowance
#[test]
fn an_allowance_is_restored_only_by_reset() {
    let server = TestServer::open();
    let request = r#"{"key":"alice","cost":2,"limit":"messages"}"#;
    server.expect(
        "/v1/take",
        request,
        200,
        r#"{"allowed":true,"remaining":0,"reset_after_ms":null}"#,
    );
    let denied = r#"{"allowed":false,"by":"messages","remaining":0,"retry_after_ms":null}"#;
    server.expect("/v1/take", request, 429, denied);
    let key = r#"{"key":"alice","limit":"messages"}"#;
    server.expect("/v1/reset", key, 200, r#"{"reset":true}"#);
    server.expect("/v1/reset", key, 200, r#"{"reset":false}"#);
    assert_eq!(server.post("/v1/take", request).status, 200);
}

#[test]
fn settle_refunds_and_can_create_debt() {
    let server = TestServer::open();
    let settle = |delta: i64| format!(r#"{{"key":"alice","limit":"client","delta":{delta}}}"#);
    assert_eq!(server.post("/v1/take", r#"{"key":"alice","limit":"client","cost":4}"#).status, 200);
    server.expect(
        "/v1/settle",
        &settle(-3),
        200,
        r#"{"remaining":9,"reset_after_ms":1000,"saturated":false,"dropped":false}"#,
    );
    server.expect(
        "/v1/settle",
        &settle(15),
        200,
        r#"{"remaining":0,"reset_after_ms":16000,"saturated":false,"dropped":false}"#,
    );
    let take = r#"{"key":"alice","limit":"client"}"#;
    let denied = r#"{"allowed":false,"by":"client","remaining":0,"retry_after_ms":7000}"#;
    server.expect("/v1/take", take, 429, denied);
    server.expect(
        "/v1/settle",
        &settle(i64::MAX),
        200,
        r#"{"remaining":0,"reset_after_ms":20000,"saturated":true,"dropped":false}"#,
    );
    server.expect(
        "/v1/settle",
        &settle(i64::MIN),
        200,
        r#"{"remaining":10,"reset_after_ms":0,"saturated":false,"dropped":false}"#,
    );
}

#[test]
fn a_held_key_denies_and_reopens_empty() {
    let server = TestServer::open();
    let hold = |millis: u64| format!(r#"{{"key":"alice","limit":"client","for_ms":{millis}}}"#);
    let take = r#"{"key":"alice","limit":"client"}"#;
    server.expect("/v1/hold", &hold(5_000), 200, r#"{"held_ms":5000}"#);
    server.expect("/v1/hold", &hold(1_000), 200, r#"{"held_ms":5000}"#);
    let response = server.post("/v1/take", take);
    assert_eq!((response.status, response.member("remaining")), (429, 0.into()));
    assert_eq!(response.member("retry_after_ms"), 6_000);
    server.advance(6_000);
    server.expect(
        "/v1/take",
        take,
        200,
        r#"{"allowed":true,"remaining":0,"reset_after_ms":10000}"#,
    );
    server.expect("/v1/hold", &hold(5_000), 200, r#"{"held_ms":5000}"#);
    server.expect("/v1/reset", take, 200, r#"{"reset":true}"#);
    assert_eq!(server.post("/v1/take", take).member("remaining"), 9);
}
