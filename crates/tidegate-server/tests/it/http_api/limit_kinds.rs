//! Every kind of limit in the configuration file.

use crate::TestServer;

const LIMITS: &str = r#"
[limits.rate]
capacity = 5
rate = "2/min"
[limits.seconds]
capacity = 5
tokens_per_second = 0.5
[limits.debt]
capacity = 5
rate = "1/s"
max_debt = 2
[limits.tokyo]
quota = 3
every = "day"
zone = "Asia/Tokyo"
[limits.yearly]
quota = 3
every = "year"
[limits.strict]
strict = "3/min"
burst = 2
"#;

/// Takes one token and returns when the bucket is full again.
fn reset_after_ms(server: &TestServer, limit: &str) -> u64 {
    let response = server.post("/v1/take", &format!(r#"{{"key":"alice","limit":"{limit}"}}"#));
    assert_eq!(response.status, 200, "{limit}: {}", response.body);
    response.member("reset_after_ms").as_u64().unwrap()
}

/// Setting: limits.*.rate, limits.*.tokens_per_second
#[test]
fn a_bucket_refills_at_its_rate() {
    let server = TestServer::configured(LIMITS);
    assert_eq!(reset_after_ms(&server, "rate"), 30_000);
    assert_eq!(reset_after_ms(&server, "seconds"), 2_000);
}

/// Without the setting the maximum debt is the capacity.
///
/// Setting: limits.*.max_debt
#[test]
fn debt_is_limited_to_max_debt() {
    let server = TestServer::configured(LIMITS);
    let all = r#"{"key":"alice","limit":"debt","cost":5}"#;
    assert_eq!(server.post("/v1/take", all).status, 200);
    server.expect(
        "/v1/settle",
        r#"{"key":"alice","limit":"debt","delta":100}"#,
        200,
        r#"{"remaining":0,"reset_after_ms":7000,"saturated":true,"dropped":false}"#,
    );
}

/// It is 23:00 in London on 3 October 2024, and 8:00 of the next day in Tokyo.
///
/// Setting: limits.*.every, limits.*.zone
#[test]
fn quota_windows_end_in_their_time_zone() {
    const HOUR: u64 = 3_600_000;
    let server = TestServer::configured(LIMITS);
    assert_eq!(reset_after_ms(&server, "tokyo"), 16 * HOUR);
    assert_eq!(reset_after_ms(&server, "yearly"), 89 * 24 * HOUR + HOUR);
}

/// Setting: limits.*.strict, limits.*.burst
#[test]
fn a_strict_limit_holds_in_every_window() {
    let server = TestServer::configured(LIMITS);
    let take = |cost: u64| {
        let body = format!(r#"{{"key":"alice","limit":"strict","cost":{cost}}}"#);
        server.post("/v1/take", &body).status == 200
    };
    assert!(!take(3), "more than may be spent at once");
    assert!(take(2), "as much as may be spent at once");
    // Two tokens at second 0, then one whenever available.
    let mut spent = vec![0, 0];
    for second in 1..=300 {
        server.advance(1_000);
        spent.extend(take(1).then_some(second));
    }
    for window in spent.windows(4) {
        assert!(window[3] - window[0] >= 60, "four tokens within a minute: {spent:?}");
    }
    assert!(spent.len() > 3, "{spent:?}");
}
