//! Policies: a file and the JSON of a request follow the same rules.

use tidegate_config::{Path, PolicyConfig, Value, read_policy};

use crate::{config, error_lines};

/// Reads a policy from JSON and returns it, or its errors.
fn from_json(json: &str) -> Result<PolicyConfig, Vec<String>> {
    let value: Value<'_> = serde_json::from_str(json).unwrap();
    let (mut violations, root) = (Vec::new(), Path::Root);
    let config = read_policy(&value, Path::Key(&root, "policy"), &mut violations);
    match config {
        Some(config) if violations.is_empty() => Ok(config),
        _ => Err(violations.iter().map(ToString::to_string).collect()),
    }
}

fn json_fingerprint(json: &str) -> String {
    from_json(json).unwrap().policy.fingerprint()
}

fn toml_fingerprint(keys: &str) -> String {
    let config = config(&format!("[limits.x]\n{keys}\n")).unwrap();
    config.limits.by_name["x"].limit.policy().fingerprint()
}

#[test]
fn toml_and_json_give_the_same_policies() {
    for (toml, json, fingerprint) in [
        (
            "capacity = 10\ntokens_per_second = 1",
            r#"{"capacity":10,"tokens_per_second":1}"#,
            "bucket 10 1/1000000000ns 10 3600000000000",
        ),
        ("rate = \"7/min\"", r#"{"rate":"7/min"}"#, "bucket 1 7/60000000000ns 1 3600000000000"),
        (
            "rate = \"50/s\"\ncapacity = 1e3\nmax_debt = 5",
            r#"{"rate":"50/s","capacity":1000.0,"max_debt":5}"#,
            "bucket 1000 1/20000000ns 5 3600000000000",
        ),
        (
            "quota = 10_000\nevery = \"day\"",
            r#"{"quota":10000,"every":"day"}"#,
            "quota 10000 10000",
        ),
        ("allowance = 5", r#"{"allowance":5}"#, "allowance 5"),
        (
            "strict = \"60/min\"",
            r#"{"strict":"60/min"}"#,
            "bucket 1 59/60000000000ns 1 3600000000000",
        ),
        (
            "strict = \"60/min\"\nburst = 20",
            r#"{"strict":"60/min","burst":20}"#,
            "bucket 20 1/1500000000ns 20 3600000000000",
        ),
        ("concurrency = 4", r#"{"concurrency":4}"#, "concurrency 4 30000000000"),
        (
            "concurrency = 4\nlease = \"2m\"",
            r#"{"concurrency":4,"lease":"2m"}"#,
            "concurrency 4 120000000000",
        ),
    ] {
        assert_eq!(toml_fingerprint(toml), fingerprint, "{toml}");
        assert_eq!(json_fingerprint(json), fingerprint, "{json}");
    }
}

#[test]
fn number_means_its_shortest_decimal() {
    for (number, rate) in [
        ("0.1", "1/10000000000ns"),
        ("1.5", "3/2000000000ns"),
        ("1.999", "1999/1000000000000ns"),
        ("0.7", "7/10000000000ns"),
        ("50.5", "101/2000000000ns"),
        ("1e-3", "1/1000000000000ns"),
        ("6e8", "3/5ns"),
    ] {
        let expected = |text: String| text.split(' ').nth(2).map(ToOwned::to_owned);
        let toml = toml_fingerprint(&format!("tokens_per_second = {number}"));
        assert_eq!(expected(toml).as_deref(), Some(rate));
        let json = json_fingerprint(&format!("{{\"tokens_per_second\":{number}}}"));
        assert_eq!(expected(json).as_deref(), Some(rate));
    }
}

#[test]
fn calendar_name_identifies_period_and_zone() {
    let name = |json: &str| from_json(json).unwrap().calendar.unwrap().name().to_owned();
    assert_eq!(name(r#"{"quota":1,"every":"day"}"#), "day:UTC");
    assert_eq!(
        name(r#"{"quota":1,"every":"month","zone":"America/Los_Angeles"}"#),
        "month:America/Los_Angeles"
    );
    for (zone, spelled) in
        [("utc", "UTC"), ("Etc/UTC", "UTC"), ("Zulu", "UTC"), ("asia/tokyo", "Asia/Tokyo")]
    {
        let json = format!(r#"{{"quota":1,"every":"day","zone":"{zone}"}}"#);
        assert_eq!(name(&json), format!("day:{spelled}"));
    }
}

#[test]
fn zero_and_negative_values_are_rejected_with_the_specified_texts() {
    for capacity in ["0", "-1", "-5", "0.0", "-0.0", "-2.5", "0.5"] {
        let json = format!(r#"{{"capacity":{capacity},"tokens_per_second":1}}"#);
        let lines = from_json(&json).unwrap_err();
        assert!(lines[0].ends_with(": Rate limit capacity must be >= 1"), "{lines:?}");
    }
    for rate in ["0", "-1", "-0.5", "\"5\"", "null"] {
        let json = format!(r#"{{"capacity":1,"tokens_per_second":{rate}}}"#);
        let lines = from_json(&json).unwrap_err();
        assert!(lines[0].ends_with(": tokens per second must be > 0"), "{lines:?}");
    }
    for rate in ["nan", "inf", "-inf"] {
        let lines = error_lines(&format!("[limits.x]\ntokens_per_second = {rate}\n"));
        assert!(lines[0].ends_with(": tokens per second must be > 0"), "{lines:?}");
    }
    let both = from_json(r#"{"capacity":0,"tokens_per_second":0}"#).unwrap_err();
    assert_eq!(
        both,
        [
            "policy.capacity = 0: Rate limit capacity must be >= 1",
            "policy.tokens_per_second = 0: tokens per second must be > 0"
        ]
    );
}

#[test]
fn mixed_policy_kinds_are_rejected() {
    let kinds = "a policy has one kind: token bucket (rate or tokens_per_second, capacity, \
                 max_debt), calendar quota (quota, every, zone), allowance (allowance), strict \
                 window (strict, burst), concurrency limit (concurrency, lease)";
    assert_eq!(
        from_json(r#"{"capacity":5,"quota":10,"every":"day"}"#).unwrap_err(),
        [
            format!(
                "policy.quota = 10: belongs to a calendar quota, but `capacity` makes this a \
                 token bucket; {kinds}"
            ),
            format!(
                "policy.every = \"day\": belongs to a calendar quota, but `capacity` makes this a \
                 token bucket; {kinds}"
            ),
        ]
    );
    let empty = from_json("{}").unwrap_err();
    assert!(empty[0].starts_with("policy: has no key that defines a policy; a policy is one of"));
}

#[test]
fn invalid_policies_are_rejected() {
    for (json, expected) in [
        (
            r#"{"capacity":5}"#,
            "policy.rate: is required, such as \"50/s\" (or tokens_per_second = 50)",
        ),
        (
            r#"{"rate":"1/s","tokens_per_second":1}"#,
            "policy.tokens_per_second = 1: means the same as `rate`; set only one of them",
        ),
        (r#"{"rate":"1/s","rate":"2/s"}"#, "policy.rate = \"2/s\": is given twice"),
        (r#"{"zone":"UTC","every":"day"}"#, "policy.quota: is required"),
        (r#"{"quota":0,"every":"day"}"#, "policy.quota = 0: a calendar quota must be >= 1"),
        (r#"{"quota":-3,"every":"day"}"#, "policy.quota = -3: a calendar quota must be >= 1"),
        (
            r#"{"quota":5,"every":"fortnight"}"#,
            "policy.every = \"fortnight\": must be one of day, week, month, year",
        ),
        (r#"{"allowance":0}"#, "policy.allowance = 0: an allowance must be >= 1"),
        (r#"{"allowance":1.5}"#, "policy.allowance = 1.5: must be a whole number >= 0"),
        (r#"{"burst":5}"#, "policy.strict: is required"),
        (r#"{"concurrency":0}"#, "policy.concurrency = 0: a concurrency limit must be >= 1"),
        (r#"{"lease":"1s"}"#, "policy.concurrency: is required"),
        (r#"{"concurrency":2,"lease":"0s"}"#, "policy.lease = \"0s\": must be at least 1ms"),
        (
            r#"{"strict":"1.5/s"}"#,
            "policy.strict = \"1.5/s\": must be a whole number and a window, such as \"60/min\" \
             or \"5/10s\"",
        ),
        (
            r#"{"strict":"5/s","burst":6}"#,
            "policy.burst = 6: the burst of a strict window must be between 1 and its number of \
             tokens",
        ),
        (r#"{"rate":"1/s","max_debt":-1}"#, "policy.max_debt = -1: must be a whole number >= 0"),
        (
            r#"{"rate":"1/s","max_debt":1e30}"#,
            "policy.max_debt = 1000000000000000000000000000000: must be at most \
             18446744073709551615",
        ),
        (
            r#"{"rate":"1/day","capacity":99999999}"#,
            "policy.capacity = 99999999: the time to refill capacity and debt, plus the horizon, \
             must be at most 100 years",
        ),
        (
            r#"{"rate":"1/s","capacity":2.5}"#,
            "policy.capacity = 2.5: Rate limit capacity must be a whole number; to limit in \
             fractions, count smaller units: a capacity of 5, 2 per second and a cost of 2 are \
             2.5, 1 per second and a cost of 1",
        ),
        ("[]", "policy = [...]: must be a table of keys and values"),
    ] {
        assert_eq!(from_json(json).unwrap_err(), [expected], "{json}");
    }
}

#[test]
fn limit_can_have_its_own_failure_rule() {
    let config = config("[limits.money]\nallowance = 5\non_failure = \"closed\"\n").unwrap();
    let money = &config.limits.by_name["money"].limit;
    assert_eq!(money.failure_rule(), Some(tidegate::FailureRule::Closed));
    assert_eq!(
        error_lines("[limits.money]\nallowance = 5\non_failure = \"ajar\"\n"),
        ["tidegate.toml:3:14: limits.money.on_failure = \"ajar\": must be one of open, closed, \
          local"]
    );
}
