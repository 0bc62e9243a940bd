//! Invalid requests: reported completely, as problem documents, without charge.

use crate::TestServer;
use crate::wire::Response;

/// Returns the fields and rules of a problem.
fn violations(response: &Response) -> Vec<String> {
    assert_eq!(response.header("content-type"), Some("application/problem+json"));
    let errors = response.member("errors");
    let errors = errors.as_array().unwrap_or_else(|| panic!("{response:?}"));
    let format_error = |error: &serde_json::Value| {
        format!("{}: {}", error["field"].as_str().unwrap(), error["rule"].as_str().unwrap())
    };
    errors.iter().map(format_error).collect()
}

fn wrong(server: &TestServer, path: &str, body: &str) -> Vec<String> {
    let response = server.post(path, body);
    assert_eq!(response.status, 400, "{path} {body}");
    violations(&response)
}

#[test]
fn a_problem_document_has_a_fixed_form() {
    let server = TestServer::open();
    let response = server.post("/v1/take", r#"{"key":"alice","limit":"client","cost":-1}"#);
    assert_eq!(response.status, 400);
    assert_eq!(
        response.body,
        r#"{"type":"urn:tidegate:problem:invalid-request","title":"Invalid request","status":400,"detail":"cost must be a whole number >= 0","errors":[{"field":"cost","rule":"must be a whole number >= 0"}]}"#
    );
}

#[test]
fn all_invalid_fields_are_reported_at_once_and_nothing_is_spent() {
    let server = TestServer::open();
    let body = r#"{"charges":[
        {"key":"alice","limit":"client","cost":10},
        {"key":"","limit":"clint","cost":1.5},
        {"kye":"alice","policy":{"capacity":0,"tokens_per_second":0}},
        {"key":"alice","group":7},
        {"key":"alice","limit":"client","policy":{"rate":"1/s"}},
        "alice"
    ],"receipt":"yes","cost":3}"#;
    assert_eq!(
        wrong(&server, "/v1/take", body),
        [
            "receipt: must be true or false",
            "cost: must be in the items of `charges` if there is such a list",
            "charges[1].key: must not be empty",
            "charges[1].cost: must be a whole number >= 0",
            "charges[1].limit: \"clint\" is not a configured limit; known limits are client, \
             daily, messages, organization",
            "charges[2].kye: is not a known key; did you mean `key`?",
            "charges[2].key: is required",
            "charges[2].policy.capacity: Rate limit capacity must be >= 1",
            "charges[2].policy.tokens_per_second: tokens per second must be > 0",
            "charges[3].group: must be a string",
            "charges[3].limit: is required: name a configured limit, or give a `policy` instead",
            "charges[4].limit: cannot be combined with `policy`: name a configured limit or give a \
             policy, not both",
            "charges[5]: must be a table of keys and values",
        ]
    );
    let state = r#"{"key":"alice","limit":"client","cost":0}"#;
    assert_eq!(server.post("/v1/peek", state).member("remaining"), 10);
}

#[test]
fn costs_are_whole_numbers() {
    let server = TestServer::open();
    for cost in ["-1", "1.5", "\"1\"", "null", "true", "[]", "{}", "-0.5", "1e-3"] {
        let body = format!(r#"{{"key":"alice","limit":"client","cost":{cost}}}"#);
        assert_eq!(
            wrong(&server, "/v1/take", &body),
            ["cost: must be a whole number >= 0"],
            "{cost}"
        );
    }
    for cost in ["18446744073709551616", "1e30", "1e308"] {
        let body = format!(r#"{{"key":"alice","limit":"client","cost":{cost}}}"#);
        assert_eq!(
            wrong(&server, "/v1/take", &body),
            ["cost: must be at most 18446744073709551615"],
            "{cost}"
        );
    }
    for cost in ["0", "-0", "0.0", "1", "1.0", "10e-1"] {
        let body = format!(r#"{{"key":"bob","limit":"client","cost":{cost}}}"#);
        assert_eq!(server.post("/v1/take", &body).status, 200, "{cost}");
    }
}

#[test]
fn each_verb_rejects_unknown_and_missing_fields() {
    let server = TestServer::open();
    let key = r#""key":"alice","limit":"client""#;
    for (path, rest, violation) in [
        (
            "/v1/take",
            r#","max_wait_ms":5"#,
            "max_wait_ms: is not a known key; known keys are key, cost, limit, policy, group, charges, receipt",
        ),
        (
            "/v1/peek",
            r#","receipt":true"#,
            "receipt: is not a known key; known keys are key, cost, limit, policy, group, charges",
        ),
        ("/v1/reserve", "", "max_wait_ms: is required"),
        (
            "/v1/reserve",
            r#","max_wait":5,"max_wait_ms":5"#,
            "max_wait: is not a known key; did you mean `max_wait_ms`?",
        ),
        ("/v1/reserve", r#","max_wait_ms":-1"#, "max_wait_ms: must be a whole number >= 0"),
        ("/v1/settle", "", "delta: is required"),
        (
            "/v1/settle",
            r#","delta":1.5"#,
            "delta: must be a 64-bit integer; negative values are refunds",
        ),
        (
            "/v1/settle",
            r#","delta":9223372036854775808"#,
            "delta: must be a 64-bit integer; negative values are refunds",
        ),
        ("/v1/hold", "", "for_ms: is required"),
        (
            "/v1/hold",
            r#","for_ms":3155760000001"#,
            "for_ms: must be at most 3155760000000 (100 years)",
        ),
        ("/v1/reset", r#","key":"bob""#, "key: is given twice"),
        ("/v1/reset", r#","group":"""#, "group: must not be empty"),
    ] {
        assert_eq!(wrong(&server, path, &format!("{{{key}{rest}}}")), [violation], "{path} {rest}");
    }
}

#[test]
fn a_list_has_between_one_and_sixteen_charges() {
    let server = TestServer::open();
    let charge = r#"{"key":"alice","limit":"client","cost":0}"#;
    let list = |count| format!(r#"{{"charges":[{}]}}"#, vec![charge; count].join(","));
    assert_eq!(
        wrong(&server, "/v1/take", &list(0)),
        ["charges: a decision needs at least one charge"]
    );
    assert_eq!(server.post("/v1/take", &list(16)).status, 200);
    assert_eq!(
        wrong(&server, "/v1/take", &list(17)),
        ["charges: a decision can have at most 16 charges, not 17"]
    );
    assert_eq!(wrong(&server, "/v1/take", r#"{"charges":{}}"#), ["charges: must be a list"]);
}

#[test]
fn unknown_limits_list_a_bounded_number_of_known_ones() {
    let many: String = (10..40).map(|n| format!("[limits.l{n}]\nallowance = 1\n")).collect();
    let server = TestServer::configured(&many);
    let violations = wrong(&server, "/v1/take", r#"{"key":"alice","limit":"nope"}"#);
    assert_eq!(
        violations,
        [
            "limit: \"nope\" is not a configured limit; known limits are l10, l11, l12, l13, l14, l15, \
             l16, l17, l18, l19"
        ]
    );
    let none = TestServer::configured("[limits]\n");
    assert_eq!(
        wrong(&none, "/v1/take", r#"{"key":"alice","limit":"nope"}"#),
        ["limit: \"nope\" is not a configured limit; no limits are configured; give a `policy`"]
    );
}

/// Thousands of unknown fields get a short response.
#[test]
fn errors_are_bounded() {
    let server = TestServer::open();
    let fields: Vec<_> = (0..4_000).map(|n| format!(r#""f{n}":0"#)).collect();
    let body = format!(r#"{{"key":"alice","limit":"client",{}}}"#, fields.join(","));
    assert_eq!(wrong(&server, "/v1/take", &body).len(), 20);
    let long = format!(r#"{{"key":"alice","limit":"{}"}}"#, "x".repeat(60_000));
    assert!(server.post("/v1/take", &long).body.len() < 1_000);
    let long = format!(r#"{{"key":"alice","{}":1,"limit":"client"}}"#, "x".repeat(60_000));
    assert!(server.post("/v1/take", &long).body.len() < 1_000);
}

#[test]
fn errors_do_not_repeat_keys() {
    let server = TestServer::open();
    let secret = "alice@example.org";
    for body in [
        format!(r#"{{"key":"{secret}","cost":-1,"limit":"client"}}"#),
        format!(r#"{{"key":"{}","limit":"client"}}"#, secret.repeat(100)),
        format!(r#"{{"key":["{secret}"],"group":{{"{secret}":1}},"limit":"client"}}"#),
        format!(r#"{{"key":"{secret}","limit":"client""#),
        format!(r#"{{"key":"{secret}" "limit":"client"}}"#),
    ] {
        let response = server.post("/v1/take", &body);
        assert_eq!(response.status, 400);
        assert!(!response.body.contains("alice"), "{}", response.body);
    }
}

#[test]
fn bodies_that_are_not_json_are_refused() {
    let server = TestServer::open();
    let deep = "[".repeat(10_000);
    for body in ["", "{", "[", "nul", "{\"key\":\"\\ud800\"}", "{}{}", "'a'", "{\"a\":01}", &deep] {
        let response = server.post("/v1/take", body);
        assert_eq!(response.status, 400, "{body}");
        assert_eq!(response.text("type"), "urn:tidegate:problem:malformed-body");
        assert!(response.text("detail").starts_with("the body is not JSON: "));
        assert_eq!(response.header("content-type"), Some("application/problem+json"));
    }
    for body in ["[]", "1", "\"x\"", "null", "true"] {
        let response = server.post("/v1/take", body);
        assert_eq!(violations(&response), [": must be a table of keys and values"], "{body}");
    }
}

/// Regression: a body with ten thousand errors, or a query with thousands, had a response of
/// megabytes.
#[test]
fn the_number_and_the_length_of_errors_are_bounded() {
    let server = TestServer::open();
    let unknown: String = (0..6_000).map(|key| format!("\"k{key}\":1,")).collect();
    let query = format!("/v1/take?{}", "a&".repeat(6_000));
    let long = "x".repeat(60_000);
    for (path, body) in [
        ("/v1/take", format!("{{{unknown}\"key\":1}}")),
        ("/v1/take", format!(r#"{{"{long}":1}}"#)),
        ("/v1/take", format!(r#"{{"key":"a","limit":"{long}"}}"#)),
        ("/v1/take", format!(r#"{{"key":"a","policy":{{{unknown}"rate":1}}}}"#)),
        ("/v1/admit", format!("{{{unknown}\"client\":1}}")),
        ("/v1/acquire", format!("{{{unknown}\"key\":1}}")),
        (&query, "{}".to_owned()),
    ] {
        let response = server.post(path, &body);
        assert_eq!(response.status, 400, "{}", response.body);
        assert!(response.body.len() < 16 * 1_024, "{path}: {} bytes", response.body.len());
    }
}
