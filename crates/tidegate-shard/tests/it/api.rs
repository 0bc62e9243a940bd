//! The HTTP API: paths, bodies and statuses, on one shard and through the coordinator.

use tidegate_core::{Now, Time, WallTime};
use tidegate_shard::api::{self, Response};
use tidegate_shard::{Shard, Storage, Table};

use crate::fixture::Maps;

const START_MS: u64 = 1_800_000_000_000;

fn at(millis: u64) -> Now {
    let ns = (START_MS + millis) * 1_000_000;
    Now { time: Time::from_nanos(ns), wall: WallTime::from_nanos(ns) }
}

fn shard() -> Shard<Maps> {
    Shard::new(Maps::default(), 7)
}

fn post(shard: &mut Shard<Maps>, path: &str, body: &str, millis: u64) -> Response {
    api::respond(shard, path, body.as_bytes(), at(millis))
}

fn ok(shard: &mut Shard<Maps>, path: &str, body: &str, millis: u64) -> String {
    let response = post(shard, path, body, millis);
    assert_eq!(response.status, 200, "{}", response.body);
    response.body
}

/// The value of a text field.
fn text(body: &str, field: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(body).unwrap();
    value[field].as_str().unwrap().to_owned()
}

#[test]
fn consume_answers_as_its_clients_expect() {
    let mut shard = shard();
    let body =
        |cost| format!(r#"{{"key":"user:1","cost":{cost},"capacity":10,"tokensPerSecond":1}}"#);
    assert_eq!(ok(&mut shard, "/consume", &body(1), 0), r#"{"allowed":true,"remaining":9}"#);
    assert_eq!(ok(&mut shard, "/consume", &body(9), 0), r#"{"allowed":true,"remaining":0}"#);
    assert_eq!(
        ok(&mut shard, "/consume", &body(1), 250),
        r#"{"allowed":false,"remaining":0,"retryAfterMs":750}"#
    );
    assert_eq!(
        ok(&mut shard, "/consume", &body(11), 250),
        r#"{"allowed":false,"remaining":0,"retryAfterMs":null}"#
    );
}

#[test]
fn fractional_rates_are_exact() {
    let mut shard = shard();
    let body = r#"{"key":"a","cost":1,"capacity":1,"tokensPerSecond":0.1}"#;
    assert_eq!(ok(&mut shard, "/consume", body, 0), r#"{"allowed":true,"remaining":0}"#);
    assert_eq!(
        ok(&mut shard, "/consume", body, 9_999),
        r#"{"allowed":false,"remaining":0,"retryAfterMs":1}"#
    );
    assert_eq!(ok(&mut shard, "/consume", body, 10_000), r#"{"allowed":true,"remaining":0}"#);
}

#[test]
fn bad_requests_say_what_is_wrong_and_store_nothing() {
    let mut shard = shard();
    for (body, reason) in [
        ("", "invalid JSON: EOF while parsing a value at line 1 column 0"),
        ("[]", "must be an object"),
        (r#"{"key":"a","cost":1,"capacity":10}"#, "tokensPerSecond is required"),
        (
            r#"{"key":"a","cost":0,"capacity":10,"tokensPerSecond":1}"#,
            "Rate limit cost must be a positive integer",
        ),
        (
            r#"{"key":"a","cost":0.5,"capacity":10,"tokensPerSecond":1}"#,
            "Rate limit cost must be a positive integer",
        ),
        (
            r#"{"key":"a","cost":-1,"capacity":10,"tokensPerSecond":1}"#,
            "Rate limit cost must be a positive integer",
        ),
        (
            r#"{"key":"a","cost":1,"capacity":0,"tokensPerSecond":1}"#,
            "Rate limit capacity must be >= 1",
        ),
        (
            r#"{"key":"a","cost":1,"capacity":2.5,"tokensPerSecond":1}"#,
            "Rate limit capacity must be a whole number; to limit in fractions, count smaller \
             units: a capacity of 5, 2 per second and a cost of 2 are 2.5, 1 per second and a cost \
             of 1",
        ),
        (r#"{"key":"a","cost":1,"capacity":1,"tokensPerSecond":0}"#, "tokensPerSecond must be > 0"),
        (r#"{"key":7,"cost":1,"capacity":1,"tokensPerSecond":1}"#, "key must be a text"),
        (
            r#"{"key":"","cost":1,"capacity":1,"tokensPerSecond":1}"#,
            "the key of charge 0 must not be empty",
        ),
        (
            r#"{"key":"a","cost":1,"capacity":1,"tokensPerSecond":1,"ttl":1}"#,
            "ttl is not a known field",
        ),
    ] {
        let response = post(&mut shard, "/consume", body, 0);
        let expected = format!("Error: {reason}");
        assert_eq!((response.status, response.body), (400, expected), "{body}");
    }
    let long =
        format!(r#"{{"key":"{}","cost":1,"capacity":1,"tokensPerSecond":1}}"#, "k".repeat(1_025));
    assert_eq!(post(&mut shard, "/consume", &long, 0).status, 400);
    for path in ["/", "", "/consume/", "/v1/take", "/taken", "/operation"] {
        let response = post(&mut shard, path, "{}", 0);
        assert_eq!((response.status, &*response.body), (404, "Not found"), "{path}");
    }
    assert_eq!(shard.storage().writes, 0);
}

#[test]
fn verbs_answer_in_milliseconds() {
    let mut shard = shard();
    let policy = r#""policy":{"capacity":10,"rate":"1/s"}"#;
    let one = |more: &str| format!(r#"{{{policy},"key":"a"{more}}}"#);
    let taken = ok(&mut shard, "/take", &one(r#","cost":4"#), 0);
    assert!(
        taken.starts_with(r#"{"allowed":true,"remaining":6,"reset_after_ms":4000,"receipt":""#)
    );
    assert_eq!(
        ok(&mut shard, "/peek", &one(r#","cost":7"#), 0),
        r#"{"allowed":false,"by":"inline","remaining":6,"retry_after_ms":1000}"#
    );
    let receipt = text(&taken, "receipt");
    assert_eq!(
        ok(&mut shard, "/settle", &one(&format!(r#","delta":-1,"receipt":"{receipt}""#)), 0),
        r#"{"remaining":7,"reset_after_ms":3000,"saturated":false,"dropped":false,"applied":[-1]}"#
    );
    let reserved = ok(&mut shard, "/reserve", &one(r#","cost":9,"max_wait_ms":5000"#), 0);
    assert!(reserved.contains(r#""wait_ms":2000"#), "{reserved}");
    assert_eq!(ok(&mut shard, "/hold", &one(r#","for_ms":30000"#), 0), r#"{"held_ms":30000}"#);
    assert_eq!(ok(&mut shard, "/reset", &one(""), 0), r#"{"reset":true}"#);
    assert_eq!(ok(&mut shard, "/reset", &one(""), 0), r#"{"reset":false}"#);
    let slots = r#"{"policy":{"concurrency":1,"lease_ms":5000},"key":"a""#;
    let taken = ok(&mut shard, "/take", &format!("{slots}}}"), 0);
    let with_receipt = format!(r#"{slots},"receipt":"{}"}}"#, text(&taken, "receipt"));
    assert_eq!(ok(&mut shard, "/renew", &with_receipt, 1_000), r#"{"slots":1}"#);
    assert_eq!(ok(&mut shard, "/release", &with_receipt, 1_000), r#"{"slots":1}"#);
    assert_eq!(ok(&mut shard, "/release", &with_receipt, 1_000), r#"{"slots":0}"#);
}

#[test]
fn lists_are_all_or_nothing_and_name_the_binding_limit() {
    let mut shard = shard();
    let list = r#"{"charges":[
        {"limit":"client","policy":{"capacity":10,"rate":"1/s"},"key":"a","cost":3},
        {"limit":"organization","policy":{"capacity":5,"rate":"1/s"},"key":"acme","cost":3}]}"#;
    let first = ok(&mut shard, "/take", list, 0);
    assert!(first.contains(r#""remaining":2"#), "{first}");
    assert_eq!(
        ok(&mut shard, "/take", list, 0),
        concat!(
            r#"{"allowed":false,"by":"organization","by_index":1,"remaining":2,"#,
            r#""retry_after_ms":1000,"charges":["#,
            r#"{"limit":"client","remaining":7,"reset_after_ms":3000},"#,
            r#"{"limit":"organization","remaining":2,"reset_after_ms":3000}]}"#
        )
    );
}

#[test]
fn fields_of_other_verbs_are_refused() {
    let mut shard = shard();
    let policy = r#""policy":{"capacity":10,"rate":"1/s"},"key":"a""#;
    for (path, more, reason) in [
        ("/take", r#","delta":1"#, "delta is not a field of take"),
        ("/settle", r#","cost":1"#, "cost is not a field of settle"),
        ("/settle", "", "delta is required"),
        ("/reserve", "", "max_wait_ms is required"),
        ("/hold", "", "for_ms is required"),
        ("/release", "", "receipt is required"),
        ("/release", r#","receipt":"zz""#, "the receipt is malformed"),
        (
            "/take",
            r#","charges":[]"#,
            "charges takes the place of limit, policy, key, cost and delta",
        ),
    ] {
        let response = post(&mut shard, path, &format!("{{{policy}{more}}}"), 0);
        assert_eq!((response.status, response.body), (400, format!("Error: {reason}")), "{path}");
    }
    let empty = post(&mut shard, "/take", r#"{"charges":[]}"#, 0);
    assert_eq!(empty.body, "Error: a decision needs at least one charge");
}

#[test]
fn only_changes_are_written() {
    let mut shard = shard();
    let body = |cost| format!(r#"{{"key":"a","cost":{cost},"capacity":10,"tokensPerSecond":1}}"#);
    ok(&mut shard, "/consume", &body(10), 0);
    let writes = shard.storage().writes;
    ok(&mut shard, "/consume", &body(1), 0);
    ok(&mut shard, "/consume", &body(11), 0);
    let peek = r#"{"policy":{"capacity":10,"tokens_per_second":1},"key":"a"}"#;
    ok(&mut shard, "/peek", peek, 0);
    assert_eq!(shard.storage().writes, writes, "denials and peeks write nothing");
    let (_, full_at) = shard.storage().buckets.values().next().unwrap();
    assert_eq!(*full_at, Some(START_MS + 10_000), "may be forgotten when it is full");
}

#[test]
fn other_formats_are_refused() {
    let mut shard = shard();
    for (body, reason) in [
        (
            r#"{"format":2,"operations":[]}"#,
            "the batch has format 2, but this version reads format 1",
        ),
        (r#"{"operations":[]}"#, "the batch has no format number"),
        (r#"{"format":1,"operations":[{"take":{}}]}"#, "operations[0]: charges is required"),
        (r#"{"format":1,"operations":[{"tkae":{}}]}"#, "operations[0]: tkae is not known"),
    ] {
        let response = post(&mut shard, "/operations", body, 0);
        assert_eq!((response.status, response.body), (400, format!("Error: {reason}")), "{body}");
    }
    let body = r#"{"key":"a","cost":1,"capacity":10,"tokensPerSecond":1}"#;
    ok(&mut shard, "/consume", body, 0);
    let name = shard.storage().buckets.keys().next().unwrap().clone();
    shard.storage().write(Table::Buckets, &name, &[2; 30], None);
    let response = post(&mut shard, "/consume", body, 0);
    assert_eq!(response.status, 500);
    assert!(response.body.contains("has format 2, but this version reads format 1"));
}

/// Runs a request through the coordinator on several shards.
fn coordinated(shards: &mut [Shard<Maps>], path: &str, body: &str) -> (u64, String) {
    let mut replies: Vec<Vec<serde_json::Value>> = Vec::new();
    for _ in 0..32 {
        let progress = serde_json::json!({
            "shards": shards.len(), "path": path, "body": body, "replies": replies,
        });
        let next: serde_json::Value =
            serde_json::from_str(&api::coordinate(progress.to_string().as_bytes())).unwrap();
        let Some(calls) = next["calls"].as_array() else {
            return (next["status"].as_u64().unwrap(), next["body"].as_str().unwrap().to_owned());
        };
        let round = calls.iter().map(|call| {
            let shard = usize::try_from(call["shard"].as_u64().unwrap()).unwrap();
            let body = call["body"].as_str().unwrap();
            let response = post(&mut shards[shard], "/operations", body, 0);
            serde_json::json!({ "status": response.status, "body": response.body })
        });
        let round = round.collect();
        replies.push(round);
    }
    panic!("the coordinator does not end");
}

#[test]
fn lists_across_shards_are_coordinated() {
    let mut shards: Vec<_> = (0..128).map(|_| shard()).collect();
    let list = r#"{"charges":[
        {"policy":{"capacity":10,"rate":"1/s"},"key":"user:1","cost":3},
        {"policy":{"capacity":5,"rate":"1/s"},"key":"user:2","cost":3}]}"#;
    let (status, body) = coordinated(&mut shards, "/take", list);
    assert_eq!(status, 200);
    assert!(body.contains(r#""allowed":true,"remaining":2"#), "{body}");
    assert_eq!(shards[75].storage().buckets.len(), 1, "user:1");
    assert_eq!(shards[94].storage().buckets.len(), 1, "user:2");
    let (_, body) = coordinated(&mut shards, "/take", list);
    assert!(
        body.starts_with(r#"{"allowed":false,"by":"inline","by_index":1,"remaining":2"#),
        "{body}"
    );
    let (_, body) = coordinated(&mut shards, "/peek", list);
    assert!(body.contains(r#""remaining":7"#), "nothing was spent by the denial: {body}");
    let (status, body) = coordinated(&mut shards, "/take", "{}");
    assert_eq!((status, &*body), (400, "Error: policy is required"));
    let (status, _) = coordinated(&mut shards, "/nothing", "{}");
    assert_eq!(status, 404);
}

#[test]
fn a_shard_that_fails_gives_back_what_the_others_were_charged() {
    let list = r#"{"charges":[
        {"policy":{"capacity":10,"rate":"1/s"},"key":"user:1","cost":3},
        {"policy":{"capacity":5,"rate":"1/s"},"key":"user:2","cost":3}]}"#;
    let mut first = shard();
    let mut replies: Vec<serde_json::Value> = Vec::new();
    let mut refunded = false;
    // Two peeks, then the charge of shard 75, then that of shard 94, which never answers.
    for round in 0..4 {
        let progress = serde_json::json!({
            "shards": 128, "path": "/take", "body": list, "replies": replies,
        });
        let next: serde_json::Value =
            serde_json::from_str(&api::coordinate(progress.to_string().as_bytes())).unwrap();
        let calls = next["calls"].as_array().unwrap();
        let mut other = shard();
        let answers: Vec<_> = calls
            .iter()
            .map(|call| {
                let body = call["body"].as_str().unwrap();
                if call["shard"] == 94 && round > 0 {
                    return serde_json::json!({ "status": 0, "body": "connection lost" });
                }
                let one = if call["shard"] == 75 { &mut first } else { &mut other };
                refunded |= body.contains("settle");
                let response = post(one, "/operations", body, 0);
                serde_json::json!({ "status": response.status, "body": response.body })
            })
            .collect();
        replies.push(serde_json::Value::Array(answers));
    }
    let progress = serde_json::json!({
        "shards": 128, "path": "/take", "body": list, "replies": replies,
    });
    let next: serde_json::Value =
        serde_json::from_str(&api::coordinate(progress.to_string().as_bytes())).unwrap();
    assert_eq!(next["status"], 500);
    assert!(next["body"].as_str().unwrap().contains("shard 94: no response: connection lost"));
    assert!(refunded);
    let peek = r#"{"policy":{"capacity":10,"rate":"1/s"},"key":"user:1","cost":0}"#;
    assert!(ok(&mut first, "/peek", peek, 0).contains(r#""remaining":10"#));
}
