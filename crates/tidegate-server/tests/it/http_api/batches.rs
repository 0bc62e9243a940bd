//! Batches: many operations in one request, each answered as if sent alone.

use serde_json::{Value, json};

use crate::TestServer;

/// Posts a batch and returns the answers.
#[track_caller]
fn post_batch(server: &TestServer, operations: &Value) -> Vec<Value> {
    post_batch_to(server, "/v1/batch", operations)
}

#[track_caller]
fn post_batch_to(server: &TestServer, path: &str, operations: &Value) -> Vec<Value> {
    let response = server.post(path, &json!({ "operations": operations }).to_string());
    assert_eq!(response.status, 200, "{}", response.body);
    assert_eq!(response.header("content-type"), Some("application/json"));
    response.member("answers").as_array().unwrap().clone()
}

fn statuses(answers: &[Value]) -> Vec<u64> {
    answers.iter().map(|answer| answer["status"].as_u64().unwrap()).collect()
}

fn take(limit: &str, cost: u64) -> Value {
    json!({"op": "take", "key": "alice", "limit": limit, "cost": cost})
}

#[test]
fn operations_are_decided_in_order_and_answered_like_single_requests() {
    let server = TestServer::open();
    server.expect(
        "/v1/batch",
        r#"{"operations":[
            {"op":"take","key":"alice","limit":"client","cost":8},
            {"op":"take","key":"alice","limit":"client","cost":8},
            {"op":"peek","key":"alice","limit":"client","cost":2},
            {"op":"settle","key":"alice","limit":"client","delta":-3},
            {"op":"take","key":"alice","limit":"client","cost":5},
            {"op":"hold","key":"bob","limit":"client","for_ms":5000},
            {"op":"take","key":"bob","limit":"client"},
            {"op":"reset","key":"bob","limit":"client"},
            {"op":"take","charges":[
                {"key":"bob","limit":"client"},{"key":"acme","cost":5,"limit":"organization"}
            ]}
        ]}"#,
        200,
        concat!(
            r#"{"answers":["#,
            r#"{"status":200,"allowed":true,"remaining":2,"reset_after_ms":8000},"#,
            r#"{"status":429,"allowed":false,"by":"client","remaining":2,"retry_after_ms":6000},"#,
            r#"{"status":200,"allowed":true,"remaining":0,"reset_after_ms":10000},"#,
            r#"{"status":200,"remaining":5,"reset_after_ms":5000,"saturated":false,"dropped":false},"#,
            r#"{"status":200,"allowed":true,"remaining":0,"reset_after_ms":10000},"#,
            r#"{"status":200,"held_ms":5000},"#,
            r#"{"status":429,"allowed":false,"by":"client","remaining":0,"retry_after_ms":6000},"#,
            r#"{"status":200,"reset":true},"#,
            r#"{"status":200,"allowed":true,"remaining":9,"reset_after_ms":1000,"charges":["#,
            r#"{"limit":"client","remaining":9,"reset_after_ms":1000},"#,
            r#"{"limit":"organization","remaining":10,"reset_after_ms":500}]}"#,
            r#"]}"#
        ),
    );
}

/// The answers of a batch equal the responses to single requests, except for the added status.
#[test]
fn answers_have_the_format_of_single_responses() {
    let (together, alone) = (TestServer::open(), TestServer::open());
    let operations = json!([
        take("client", 4),
        take("client", 7),
        take("messages", 2),
        take("daily", 4),
        {"op": "take", "key": "bob", "policy": {"capacity": 2, "rate": "1/s"}},
        {"op": "reserve", "key": "job", "policy": {"capacity": 1, "rate": "1/s"}, "max_wait_ms": 1.5},
        {"op": "hold", "key": "alice", "limit": "clint", "for_ms": 7},
        {"op": "settle", "key": "alice", "limit": "client", "delta": 2},
        {"op": "reset", "key": "nobody", "limit": "client"},
    ]);
    let answers = post_batch(&together, &operations);
    for (operation, answer) in operations.as_array().unwrap().iter().zip(answers) {
        let (mut body, mut expected) = (operation.clone(), answer.clone());
        let op = body.as_object_mut().unwrap().remove("op").unwrap();
        let response = alone.post(&format!("/v1/{}", op.as_str().unwrap()), &body.to_string());
        assert_eq!(answer["status"], response.status, "{operation}");
        let single: Value = serde_json::from_str(&response.body).unwrap();
        if single.get("status").is_none() {
            expected.as_object_mut().unwrap().remove("status");
        }
        assert_eq!(single, expected, "{operation}");
    }
}

#[test]
fn an_invalid_operation_gets_its_own_error_and_spends_nothing() {
    let server = TestServer::open();
    let answers = post_batch(
        &server,
        &json!([
            take("client", 1),
            {"op": "take", "key": "alice", "limit": "client", "cost": -1, "receipt": 7},
            "take",
            {"key": "alice", "limit": "client"},
            {"op": "tak", "key": "alice", "limit": "client"},
            {"op": "acquire", "key": "alice", "limit": "client"},
            {"op": "peek", "key": "alice", "limit": "client", "ops": 1},
            {"op": "settle", "key": "alice", "limit": "client", "delta": 1, "receipt": "AAAA"},
            {"op": "take", "charges": [take("client", 1)]},
            take("client", 1),
        ]),
    );
    assert_eq!(statuses(&answers), [200, 400, 400, 400, 400, 400, 400, 400, 400, 200]);
    let wrong = |index: usize| {
        assert_eq!(answers[index]["type"], "urn:tidegate:problem:invalid-request");
        let errors = answers[index]["errors"].as_array().unwrap().iter();
        let single = errors.map(|error| format!("{}: {}", error["field"], error["rule"]));
        single.collect::<Vec<_>>().join("; ").replace('"', "")
    };
    let verbs = "op: must be one of take, peek, reserve, settle, hold, reset";
    assert_eq!(wrong(1), "receipt: must be true or false; cost: must be a whole number >= 0");
    assert_eq!(wrong(2), ": must be a table of keys and values");
    assert_eq!((wrong(3), wrong(4)), ("op: is required".into(), verbs.into()));
    assert!(
        wrong(5).starts_with("op: cannot be acquire, because a batch never waits"),
        "{}",
        wrong(5)
    );
    assert_eq!(wrong(6), "ops: is not a known key; did you mean `op`?");
    assert!(wrong(7).starts_with("receipt: "), "{}", wrong(7));
    assert!(wrong(8).starts_with("charges[0].op: is not a known key"), "{}", wrong(8));
    assert_eq!(answers[9]["remaining"], 8, "the two valid operations were charged");
}

#[test]
fn an_invalid_batch_is_a_problem_and_spends_nothing() {
    let server = TestServer::open();
    let many = vec![take("client", 0); 257];
    for (body, field) in [
        (json!({}), "operations"),
        (json!({"operations": []}), "operations"),
        (json!({"operations": take("client", 1)}), "operations"),
        (json!({"operations": [take("client", 1)], "limit": "client"}), "limit"),
        (json!({"operations": many}), "operations"),
        (json!([take("client", 1)]), ""),
    ] {
        let response = server.post("/v1/batch", &body.to_string());
        assert_eq!(
            (response.status, response.member("errors")[0]["field"].clone()),
            (400, field.into())
        );
        assert_eq!(response.header("content-type"), Some("application/problem+json"));
    }
    let response = server.post("/v1/batch", "{\"operations\":[");
    assert_eq!(response.member("type"), "urn:tidegate:problem:malformed-body");
    let large = json!({"operations": [take("client", 1)], "padding": "x".repeat(65_536)});
    assert_eq!(server.post("/v1/batch", &large.to_string()).status, 413);
    assert_eq!(server.get("/v1/batch").status, 405);
    assert_eq!(post_batch(&server, &json!([take("client", 0)]))[0]["remaining"], 10);
}

#[test]
fn a_full_batch_is_answered_and_denials_can_have_status_200() {
    let server = TestServer::open();
    let answers = post_batch(&server, &json!(vec![take("organization", 1); 256]));
    let allowed = answers.iter().filter(|answer| answer["allowed"] == true).count();
    assert_eq!((answers.len(), allowed), (256, 15));
    assert_eq!(answers[255]["retry_after_ms"], 100);
    let answers =
        post_batch_to(&server, "/v1/batch?deny_status=200", &json!([take("organization", 1)]));
    assert_eq!((statuses(&answers), &answers[0]["allowed"]), (vec![200], &false.into()));
}

#[test]
fn a_receipt_can_be_settled_in_a_later_batch() {
    let server = TestServer::open();
    let batch = json!([
        {"op": "take", "key": "alice", "limit": "client", "cost": 10, "receipt": true},
        {"op": "reserve", "key": "alice", "limit": "client", "cost": 5, "max_wait_ms": 60_000},
    ]);
    let answers = post_batch(&server, &batch);
    assert_eq!((&answers[0]["remaining"], &answers[1]["wait_ms"]), (&0.into(), &5_000.into()));
    let settle = |answer: &Value, delta: i64| {
        let receipt = &answer["receipt"];
        json!({"op": "settle", "key": "alice", "limit": "client", "delta": delta, "receipt": receipt})
    };
    let settled = post_batch(&server, &json!([settle(&answers[1], -5), settle(&answers[0], -4)]));
    assert_eq!((statuses(&settled), &settled[1]["remaining"]), (vec![200, 200], &4.into()));
}

/// A batch falls into one day, and the next day has a new quota.
#[test]
fn calendar_quotas_renew_between_batches() {
    let server = TestServer::open();
    let batch = json!(vec![take("daily", 1); 5]);
    assert_eq!(statuses(&post_batch(&server, &batch)), [200, 200, 200, 429, 429]);
    server.advance(3_599_000);
    assert_eq!(post_batch(&server, &batch)[0]["retry_after_ms"], 1_000);
    server.advance(1_000);
    assert_eq!(statuses(&post_batch(&server, &batch)), [200, 200, 200, 429, 429]);
}

#[test]
fn concurrent_batches_never_exceed_the_limit() {
    let server =
        TestServer::configured("[limits.stock]\nallowance = 500\n[limits.other]\nallowance = 77\n");
    let pair = [take("stock", 1), take("other", 1)];
    let batch = json!(pair.iter().cycle().take(64).collect::<Vec<_>>());
    let allowed = std::thread::scope(|scope| {
        let rush = || -> usize {
            let answers = (0..6).flat_map(|_| post_batch(&server, &batch));
            answers.filter(|answer| answer["allowed"] == true).count()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(rush)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    assert_eq!(allowed, 577);
}

/// Decisions of a batch are counted like single ones.
#[test]
fn decisions_of_a_batch_are_counted() {
    let server = TestServer::open();
    post_batch(
        &server,
        &json!([take("client", 6), take("client", 6), take("client", 4), take("daily", 9)]),
    );
    let metrics = server.admin_get("/metrics").body;
    for line in [
        r#"tidegate_decisions_total{door="http",limit="client",outcome="allowed"} 2"#,
        r#"tidegate_decisions_total{door="http",limit="client",outcome="denied"} 1"#,
        r#"tidegate_decisions_total{door="http",limit="daily",outcome="denied"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}

/// The longest possible responses: every number has 20 digits, or every charge is invalid.
#[test]
fn a_batch_with_a_too_long_response_is_refused_and_spends_nothing() {
    let server = TestServer::open();
    let one = json!({"key": "alice", "limit": "client"});
    for (operation, many) in [
        (json!({"op": "take", "charges": vec![json!({}); 16]}), 256),
        (json!({"op": "take", "charges": vec![&one; 16]}), 90),
        (json!({"op": "reserve", "charges": vec![&one; 16], "max_wait_ms": 0}), 60),
    ] {
        let body = json!({"operations": vec![&operation; many]}).to_string();
        let response = server.post("/v1/batch", &body);
        assert_eq!(response.status, 400, "{operation}");
        assert_eq!(response.member("errors")[0]["field"], "operations");
        assert!(
            response.body.len() < 1_024 && response.body.contains("131072"),
            "{}",
            response.body
        );
    }
    assert_eq!(post_batch(&server, &json!([take("client", 0)]))[0]["remaining"], 10);
    let answered =
        server.post("/v1/batch", &json!({"operations": vec![take("client", 0); 256]}).to_string());
    assert!(answered.status == 200 && answered.body.len() < 128 * 1_024);
}
