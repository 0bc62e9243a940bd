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

/// R206: a mistake of the caller is 400, not 500.
#[test]
fn windows_of_a_quota_are_checked_like_the_rest_of_the_body() {
    let mut shard = shard();
    let take = |windows: &str| format!(r#"{{"policy":{{"quota":5}},"key":"q"{windows}}}"#);
    let now = START_MS / 1_000;
    for (windows, reason) in [
        (r#","windows":[4,3,2,1]"#.to_owned(), "the bounds of windows must increase"),
        (r#","windows":[1,2,3]"#.to_owned(), "windows must have four items"),
        (r#","windows":[1,2,3,4]"#.to_owned(), "windows of charge 0"),
        (String::new(), "charge 0"),
    ] {
        let response = post(&mut shard, "/take", &take(&windows), 0);
        assert_eq!(response.status, 400, "{windows}: {}", response.body);
        assert!(response.body.contains(reason), "{windows}: {}", response.body);
    }
    let windows = format!(r#","windows":[{},{},{},{}]"#, now - 90, now - 30, now + 30, now + 90);
    let body = ok(&mut shard, "/take", &take(&windows), 0);
    assert!(body.starts_with(r#"{"allowed":true,"remaining":4"#), "{body}");
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
    let one = |more: &str| {
        format!(r#"{{"policy":{{"capacity":10,"rate":"1/s"}},"key":"b","group":"g"{more}}}"#)
    };
    ok(&mut shard, "/settle", &one(r#","delta":-3"#), 0);
    assert_eq!(shard.storage().writes, writes, "a refund of a full bucket");
    ok(&mut shard, "/hold", &one(r#","for_ms":30000"#), 0);
    let writes = shard.storage().writes;
    for shorter in [20_000, 30_000] {
        ok(&mut shard, "/hold", &one(&format!(r#","for_ms":{shorter}"#)), 0);
    }
    assert_eq!(shard.storage().writes, writes, "a hold that ends no later");
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
    coordinated_with(path, body, shards.len(), |_, shard, body| {
        post(&mut shards[shard], "/operations", body, 0)
    })
}

/// Runs a request through the coordinator. `reply` gets the number of the round, the shard and the
/// body.
fn coordinated_with(
    path: &str,
    body: &str,
    shards: usize,
    mut reply: impl FnMut(usize, usize, &str) -> Response,
) -> (u64, String) {
    let mut replies: Vec<Vec<serde_json::Value>> = Vec::new();
    for _ in 0..32 {
        let progress = serde_json::json!({
            "shards": shards, "path": path, "body": body, "replies": replies,
        });
        let next: serde_json::Value =
            serde_json::from_str(&api::coordinate(progress.to_string().as_bytes())).unwrap();
        let Some(calls) = next["calls"].as_array() else {
            return (next["status"].as_u64().unwrap(), next["body"].as_str().unwrap().to_owned());
        };
        let round = calls.iter().map(|call| {
            let shard = usize::try_from(call["shard"].as_u64().unwrap()).unwrap();
            let response = reply(replies.len(), shard, call["body"].as_str().unwrap());
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

const LIST: &str = r#"{"charges":[
    {"policy":{"allowance":10},"key":"user:1","cost":3},
    {"policy":{"allowance":5},"key":"user:2","cost":3}]}"#;

fn lost() -> Response {
    Response { status: 0, body: "connection lost".to_owned() }
}

/// Takes [`LIST`] from shards 75 and 94, and returns the response and what is left in shard 75.
fn take_with(mut reply: impl FnMut(usize, usize, &str) -> Option<Response>) -> (u64, String, u64) {
    let mut shards: Vec<_> = (0..128).map(|_| shard()).collect();
    let (status, body) = coordinated_with("/take", LIST, 128, |round, number, body| {
        reply(round, number, body)
            .unwrap_or_else(|| post(&mut shards[number], "/operations", body, 0))
    });
    let peek = r#"{"policy":{"allowance":10},"key":"user:1","cost":0}"#;
    let peeked = ok(&mut shards[75], "/peek", peek, 0);
    let peeked: serde_json::Value = serde_json::from_str(&peeked).unwrap();
    (status, body, peeked["remaining"].as_u64().unwrap())
}

/// A shard that does not respond is an outage, as it is for an operation on that shard alone.
#[test]
fn a_shard_that_fails_gives_back_what_the_others_were_charged() {
    // Round 0 peeks, round 1 charges shard 75, round 2 shard 94, round 3 gives back.
    for (failing, left) in [(0, 10), (1, 10), (2, 10)] {
        let (status, body, remaining) = take_with(|round, shard, _| {
            let is_lost = round == failing && (shard == 94 || failing == 1);
            is_lost.then(lost)
        });
        assert_eq!((status, remaining), (503, left), "round {failing}: {body}");
        assert!(body.contains("no response: connection lost"), "{body}");
    }
    let (status, body, _) = take_with(|_, shard, _| {
        (shard == 94).then(|| Response { status: 500, body: "Error: it failed".to_owned() })
    });
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("shard 94: status 500: Error: it failed"), "{body}");
}

/// Another caller empties shard 94 after it was peeked, and the refund in shard 75 gets lost: the
/// caller must not read that nothing was spent.
#[test]
fn lost_refund_is_an_error_and_not_a_denial() {
    let denied = |round: usize, shard: usize, body: &str| {
        let other = r#"{"policy":{"allowance":5},"key":"user:2","cost":5}"#;
        (shard == 94 && round == 2).then(|| {
            let mut empty = self::shard();
            ok(&mut empty, "/take", other, 0);
            post(&mut empty, "/operations", body, 0)
        })
    };
    let (status, body, remaining) = take_with(denied);
    assert_eq!((status, remaining), (200, 10), "{body}");
    assert!(body.contains(r#""allowed":false"#), "{body}");
    let (status, body, remaining) = take_with(|round, shard, body| {
        if shard == 75 && body.contains("settle") {
            Some(lost())
        } else {
            denied(round, shard, body)
        }
    });
    assert_eq!((status, remaining), (503, 7), "{body}");
    assert!(body.contains("shard 75: no response"), "{body}");
}

/// Another caller reserves in shard 94 after it was peeked, so the parts do not start together, and
/// shard 75 refuses to take its part back.
#[test]
fn refused_refund_of_a_reservation_is_an_error_and_is_not_tried_again() {
    let policy = r#""policy":{"capacity":5,"rate":"1/s"}"#;
    let list = format!(
        r#"{{"max_wait_ms":60000,"charges":[
        {{{policy},"key":"user:1","cost":3}},{{{policy},"key":"user:2","cost":3}}]}}"#
    );
    let mut shards: Vec<_> = (0..128).map(|_| shard()).collect();
    let mut rounds = 0;
    let (status, body) = coordinated_with("/reserve", &list, 128, |round, number, body| {
        rounds = round + 1;
        if (round, number) == (2, 94) {
            ok(&mut shards[94], "/take", &format!(r#"{{{policy},"key":"user:2","cost":4}}"#), 0);
        }
        if (round, number) == (3, 75) {
            let reply = r#"{"format":1,"now_ns":1,"replies":[{"error":{"rejected":"refused"}}]}"#;
            return Response { status: 200, body: reply.to_owned() };
        }
        post(&mut shards[number], "/operations", body, 0)
    });
    assert_eq!((status, rounds), (500, 4), "{body}");
    assert!(body.contains("shard 75: refused"), "{body}");
    let peek = format!(r#"{{{policy},"key":"user:1"}}"#);
    let body = ok(&mut shards[75], "/peek", &peek, 0);
    assert!(body.contains(r#""remaining":1"#), "the part was charged: {body}");
}

/// A list has the history of a limit once, and every shard gets it once per call.
#[test]
fn histories_reach_all_shards_of_a_list() {
    let past: Vec<String> = (1..=200)
        .map(|capacity| format!(r#"["reset",{{"capacity":{capacity},"rate":"1/s"}}]"#))
        .collect();
    let limit = |past: &str| {
        format!(
            r#"{{"name":"a","policy":{{"capacity":9,"rate":"1/s"}},"generation":200,"change":"keep_tokens"{past}}}"#
        )
    };
    let with_past = limit(&format!(r#","past":[{}]"#, past.join(",")));
    let keys = (0..16).map(|number| format!("user:{number}"));
    let charges: Vec<_> = keys
        .map(|key| {
            let limit = if key == "user:0" { with_past.clone() } else { limit("") };
            format!(r#"{{"on":{{"limit":{limit},"key":"{key}"}},"cost":1}}"#)
        })
        .collect();
    let batch = format!(
        r#"{{"format":1,"node":1,"operations":[{{"take":{{"charges":[{}]}}}}]}}"#,
        charges.join(",")
    );
    let mut shards: Vec<_> = (0..128).map(|_| shard()).collect();
    // All shards know the limit from this client, with a bucket that a reset fills again.
    for number in [0, 1, 15] {
        let old = format!(
            r#"{{"format":1,"node":1,"operations":[{{"take":{{"charges":[{{"on":{{"limit":{{"name":"a","policy":{{"capacity":1,"rate":"1/s"}}}},"key":"user:{number}"}},"cost":1}}]}}}}]}}"#
        );
        coordinated(&mut shards, "/operations", &old);
    }
    let (status, body) = coordinated_with("/operations", &batch, 128, |_, number, body| {
        assert!(body.matches("\"past\"").count() <= 1, "{number}: {body}");
        post(&mut shards[number], "/operations", body, 0)
    });
    assert_eq!(status, 200);
    let replies: serde_json::Value = serde_json::from_str(&body).unwrap();
    let outcomes = replies["replies"][0]["allowed"]["outcomes"].as_array().unwrap();
    let remaining: Vec<_> = outcomes.iter().map(|one| one["remaining"].as_u64().unwrap()).collect();
    assert_eq!(remaining, [8; 16], "all were reset in between: {body}");
}

/// Each shard sees few charges, but the list is too long.
#[test]
fn list_across_shards_has_the_bounds_of_a_list() {
    let charge = |number: usize| {
        format!(
            r#"{{"on":{{"limit":{{"policy":{{"allowance":1}}}},"key":"user:{number}"}},"cost":1}}"#
        )
    };
    let mut shards: Vec<_> = (0..128).map(|_| shard()).collect();
    for (count, reply) in [(16, "allowed"), (17, "error")] {
        let charges: Vec<_> = (0..count).map(charge).collect();
        let body = format!(
            r#"{{"format":1,"operations":[{{"take":{{"charges":[{}]}}}}]}}"#,
            charges.join(",")
        );
        let (status, body) = coordinated(&mut shards, "/operations", &body);
        assert_eq!(status, 200);
        assert!(body.contains(&format!(r#""replies":[{{"{reply}""#)), "{count}: {body}");
    }
}

#[test]
fn coordinator_executes_one_operation() {
    let take =
        r#"{"take":{"charges":[{"on":{"limit":{"policy":{"allowance":1}},"key":"a"},"cost":1}]}}"#;
    let mut shards: Vec<_> = (0..128).map(|_| shard()).collect();
    for (operations, status) in [(String::new(), 200), (take.to_owned(), 200)] {
        let body = format!(r#"{{"format":1,"operations":[{operations}]}}"#);
        assert_eq!(coordinated(&mut shards, "/operations", &body).0, status);
    }
    let body = format!(r#"{{"format":1,"operations":[{take},{take}]}}"#);
    let (status, body) = coordinated(&mut shards, "/operations", &body);
    assert_eq!(status, 400);
    assert!(body.contains("send one request for each"), "{body}");
}

#[test]
fn unusable_name_of_a_limit_is_a_bad_request() {
    for name in ["L", "", "a b"] {
        let body = format!(r#"{{"limit":"{name}","policy":{{"allowance":1}},"key":"a"}}"#);
        let response = post(&mut shard(), "/take", &body, 0);
        assert_eq!(response.status, 400, "{}", response.body);
    }
}

/// `/consume` neither settles nor reserves, so its buckets have the bounds of the memory limiter of
/// the npm package.
#[test]
fn consume_has_neither_debt_nor_a_horizon() {
    let mut shard = shard();
    let long = r#"{"key":"a","cost":1,"capacity":2000000000,"tokensPerSecond":1}"#;
    assert_eq!(ok(&mut shard, "/consume", long, 0), r#"{"allowed":true,"remaining":1999999999}"#);
    let body = r#"{"key":"b","cost":10,"capacity":10,"tokensPerSecond":1}"#;
    ok(&mut shard, "/consume", body, 365 * 86_400_000);
    let body = body.replace(r#""cost":10"#, r#""cost":1"#);
    assert_eq!(
        ok(&mut shard, "/consume", &body, 0),
        r#"{"allowed":false,"remaining":0,"retryAfterMs":1000}"#
    );
}

/// More limits than a shard keeps in memory, two of them new and in one list.
#[test]
fn policy_histories_are_stored_however_many_limits_there_are() {
    let mut shard = shard();
    let take = |name: &str, rest: &str| {
        format!(r#"{{"on":{{"limit":{{"name":"{name}",{rest}}},"key":"k"}},"cost":1}}"#)
    };
    let first = r#""policy":{"capacity":10,"rate":"1/s"}"#;
    for number in 0..1_024 {
        let charge = take(&format!("limit-{number}"), first);
        let batch = format!(
            r#"{{"format":1,"node":1,"operations":[{{"take":{{"charges":[{charge}]}}}}]}}"#
        );
        ok(&mut shard, "/operations", &batch, 0);
    }
    let revised = r#""policy":{"capacity":5,"rate":"1/s"},"generation":1,"past":[["keep_tokens",{"capacity":10,"rate":"1/s"}]]"#;
    let charges = [take("new-a", revised), take("new-b", revised)].join(",");
    let batch =
        format!(r#"{{"format":1,"node":1,"operations":[{{"take":{{"charges":[{charges}]}}}}]}}"#);
    let body = ok(&mut shard, "/operations", &batch, 0);
    assert!(!body.contains("error"), "{body}");
    for name in ["new-a", "new-b"] {
        assert!(shard.storage().limits.contains_key(name), "{name}");
    }
}
