//! The HTTP API of two servers on one store.

use tidegate::clock::ManualClock;
use tidegate_server::Server;
use tidegate_testkit::launch::{Flavor, RedisServer, wait_until};

use crate::{TestServer, layers};

const LIMITS: &str = r#"
[limits.client]
capacity = 10
rate = "1/day"
[limits.daily]
quota = 3
every = "day"
[limits.open]
capacity = 10
rate = "1/day"
on_failure = "open"
"#;

fn server(redis: &RedisServer) -> TestServer {
    let text = format!("[store]\nurl = {:?}\n{LIMITS}", redis.url());
    TestServer::serving(Server::new(layers(&text)).unwrap(), ManualClock::new())
}

/// Two servers share one budget, and each accepts the receipts of the other.
#[test]
fn two_servers_share_limits() {
    let redis = RedisServer::start(Flavor::Redis);
    let (one, other) = (server(&redis), server(&redis));
    let take = r#"{"limit":"client","key":"alice","cost":4,"receipt":true}"#;
    let first = one.post("/v1/take", take);
    assert_eq!((first.status, first.member("remaining")), (200, 6.into()), "{}", first.body);
    assert_eq!(other.post("/v1/take", take).member("remaining"), 2);
    assert_eq!(one.post("/v1/take", take).status, 429);
    let settle = format!(
        r#"{{"limit":"client","key":"alice","delta":-4,"receipt":{}}}"#,
        first.member("receipt")
    );
    assert_eq!(other.post("/v1/settle", &settle).member("remaining"), 6);
    for server in [&one, &other, &one] {
        assert_eq!(server.post("/v1/take", r#"{"limit":"daily","key":"alice"}"#).status, 200);
    }
    assert_eq!(other.post("/v1/take", r#"{"limit":"daily","key":"alice"}"#).status, 429);
    let list = r#"{"charges":[{"limit":"client","key":"alice"},{"limit":"daily","key":"alice"}]}"#;
    assert_eq!(one.post("/v1/take", list).member("by"), "daily");
    assert_eq!(
        one.post("/v1/peek", r#"{"limit":"client","key":"alice","cost":0}"#).member("remaining"),
        6
    );
    assert_eq!(
        one.post("/v1/hold", r#"{"limit":"client","key":"alice","for_ms":60000}"#).status,
        200
    );
    assert_eq!(other.post("/v1/take", r#"{"limit":"client","key":"alice"}"#).status, 429);
    assert_eq!(
        other.post("/v1/reset", r#"{"limit":"client","key":"alice"}"#).member("reset"),
        true
    );
    assert_eq!(one.post("/v1/take", take).member("remaining"), 6);
}

/// A batch takes several calls to the store. Operations keep their order, and two servers share the
/// counts.
#[test]
fn batches_of_two_servers_share_limits() {
    let redis = RedisServer::start(Flavor::Redis);
    let gates = [server(&redis), server(&redis)];
    let take = |limit: &str| format!(r#"{{"op":"take","limit":"{limit}","key":"alice"}}"#);
    let mut operations = vec![take("daily"), take("client")];
    operations.resize(200, take("client"));
    operations.push(r#"{"op":"reset","limit":"client","key":"bob"}"#.to_owned());
    operations.push(take("daily"));
    let body = format!(r#"{{"operations":[{}]}}"#, operations.join(","));
    let mut allowed = Vec::new();
    for server in &gates {
        let response = server.post("/v1/batch", &body);
        assert_eq!(response.status, 200, "{}", response.body);
        let answers = response.member("answers");
        assert_eq!(answers[200]["reset"], false);
        let of = |answer: &serde_json::Value| answer["allowed"] == true;
        let answers = answers.as_array().unwrap();
        allowed.push((of(&answers[0]), answers[1..200].iter().filter(|a| of(a)).count()));
        // Order is kept: the first ten in the list get the ten tokens.
        assert!(answers[1..200].iter().skip(10).all(|answer| !of(answer)));
        allowed.push((of(&answers[201]), 0));
    }
    assert_eq!(allowed, [(true, 10), (true, 0), (true, 0), (false, 0)]);
}

/// When the store dies, each limit follows its failure rule and responses say so; afterwards limits
/// are shared again.
#[test]
fn the_server_survives_a_dead_store() {
    let redis = RedisServer::start(Flavor::Valkey);
    let (one, other) = (server(&redis), server(&redis));
    let take = |server: &TestServer, limit: &str| {
        server.post("/v1/take", &format!(r#"{{"limit":"{limit}","key":"alice"}}"#))
    };
    assert_eq!(take(&one, "client").member("remaining"), 9);
    // Each node knows of the other and enforces half of the limit.
    redis.kill();
    let degraded = wait_until("the rule to decide", || {
        let response = take(&one, "client");
        response.body.contains("degraded").then_some(response)
    });
    assert_eq!((degraded.status, degraded.member("degraded")), (200, "local".into()));
    assert_eq!(take(&one, "open").member("degraded"), "open");
    let closed = take(&one, "daily");
    assert_eq!((closed.status, closed.member("degraded")), (429, "closed".into()));
    redis.restart();
    wait_until("both to be back", || {
        let back = |server| !take(server, "daily").body.contains("degraded");
        (back(&one) && back(&other)).then_some(())
    });
    // The store has lost everything; from here on the two servers share counts again.
    for server in [&one, &other] {
        let reset = server.post("/v1/reset", r#"{"limit":"client","key":"bob"}"#);
        assert_eq!(reset.status, 200, "{}", reset.body);
    }
    let bob = r#"{"limit":"client","key":"bob","cost":5}"#;
    assert_eq!(one.post("/v1/take", bob).member("remaining"), 5);
    assert_eq!(other.post("/v1/take", bob).member("remaining"), 0);
}

/// Regression: three requests with a policy beyond the numeric range of the store counted as
/// failures. The store was taken to be down, and every limit with the failure rule `open` admitted
/// everything.
#[test]
fn invalid_policies_do_not_disable_limits() {
    let redis = RedisServer::start(Flavor::Redis);
    let server = server(&redis);
    let login = r#"{"limit":"open","key":"victim","cost":5}"#;
    assert_eq!(server.post("/v1/take", login).status, 200);
    let beyond = r#"{"policy":{"allowance":2251799813685249},"key":"mallory"}"#;
    for _ in 0..5 {
        let refused = server.post("/v1/take", beyond);
        assert_eq!((refused.status, refused.member("degraded")), (400, serde_json::Value::Null));
    }
    assert_eq!(server.post("/v1/take", login).status, 200);
    let denied = server.post("/v1/take", login);
    assert_eq!((denied.status, denied.member("degraded")), (429, serde_json::Value::Null));
    let running = server.running.as_ref().unwrap();
    assert_eq!(running.store_is_up(), Some(true));
    let stats = running.store_stats().unwrap();
    assert_eq!((stats.outages, stats.failed, stats.degraded()), (0, 0, 0));
}
