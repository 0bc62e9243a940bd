//! Waiting for permits: order, maximum wait, and disconnects.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;

use serde_json::json;
use tidegate_testkit::launch::wait_until;

use super::Fixture;

/// Setting: limits.*.concurrency
#[test]
fn slot_goes_to_waiters_in_order_of_arrival() {
    let fixture = Fixture::open();
    let held = fixture.acquire(&json!({"limit": "gpu", "key": "box"}));
    let (sender, order) = mpsc::channel();
    thread::scope(|scope| {
        for waiter in 1..=4 {
            let (caller, sender) = (&fixture.caller, sender.clone());
            scope.spawn(move || {
                let body = json!({"limit": "gpu", "key": "box", "max_wait_ms": 60_000});
                let (status, answer) = caller.acquire(&body);
                sender.send((waiter, status, answer["waited_ms"].as_u64())).unwrap();
                caller.post("/v1/release", &json!({"id": answer["id"]}));
            });
            fixture.wait_for_waiters(waiter);
        }
        let other = fixture.post("/v1/acquire", &json!({"limit": "gpu", "key": "other"}));
        assert_eq!(other.0, 200, "another key is another slot");
        assert_eq!(fixture.metric("tidegate_permits"), 2);
        fixture.post("/v1/release", &json!({"id": held}));
    });
    drop(sender);
    let order: Vec<_> = order.iter().collect();
    assert!(order.iter().all(|(_, status, waited)| *status == 200 && waited.unwrap() > 0));
    assert_eq!(order.iter().map(|(waiter, ..)| *waiter).collect::<Vec<_>>(), [1, 2, 3, 4]);
    fixture.wait_for_waiters(0);
}

#[test]
fn too_long_wait_is_rejected_and_spends_nothing() {
    let fixture = Fixture::open();
    let charges =
        json!([{"limit": "tokens", "key": "acme", "cost": 3}, {"limit": "gpu", "key": "box"}]);
    let held = fixture.acquire(&json!({"charges": charges}));
    assert_eq!(fixture.tokens(), 7);
    for max_wait in [0, 30] {
        let body = json!({"charges": charges, "max_wait_ms": max_wait});
        let (status, answer) = fixture.post("/v1/acquire", &body);
        assert_eq!(status, 429, "{answer}");
        assert_eq!((&answer["allowed"], &answer["by"]), (&json!(false), &json!("gpu")));
        assert_eq!(
            (&answer["by_index"], &answer["charges"][1]["remaining"]),
            (&json!(1), &json!(0))
        );
        assert_eq!(answer["retry_after_ms"], 1_000, "the release time of a slot is unknown");
        assert_eq!(fixture.post("/v1/acquire?deny_status=200", &body).0, 200);
        assert_eq!(fixture.tokens(), 7);
    }
    fixture.post("/v1/release", &json!({"id": held}));
    // The next token takes a day: rejected immediately, whatever the maximum wait.
    let body = json!({"limit": "tokens", "key": "acme", "cost": 8, "max_wait_ms": 3_600_000});
    let (status, answer) = fixture.post("/v1/acquire", &body);
    assert_eq!((status, &answer["by"]), (429, &json!("tokens")), "{answer}");
    assert!(answer["retry_after_ms"].as_u64().unwrap() > 3_600_000, "{answer}");
    let never = json!({"limit": "tokens", "key": "acme", "cost": 11});
    let (status, answer) = fixture.post("/v1/acquire", &never);
    assert_eq!((status, &answer["retry_after_ms"]), (429, &json!(null)), "{answer}");
    assert_eq!(fixture.tokens(), 7);
    assert!(
        fixture.metric(r#"tidegate_decisions_total{door="http",limit="gpu",outcome="denied"}"#)
            >= 4
    );
}

#[test]
fn semaphore_can_be_inline_in_the_request() {
    let fixture = Fixture::open();
    let body = json!({"key": "workers", "policy": {"concurrency": 2}, "max_wait_ms": 0});
    let [first, _second] = [fixture.acquire(&body), fixture.acquire(&body)];
    assert_eq!(fixture.post("/v1/acquire", &body).0, 429);
    let (status, answer) = thread::scope(|scope| {
        let caller = &fixture.caller;
        let waiting = scope
            .spawn(|| caller.acquire(&json!({"key": "workers", "policy": {"concurrency": 2}})));
        fixture.wait_for_waiters(1);
        fixture.post("/v1/release", &json!({"id": first}));
        waiting.join().unwrap()
    });
    assert_eq!(status, 200, "{answer}");
    assert!(answer["waited_ms"].as_u64().unwrap() < 20_000, "the release freed it, not the lease");
    let daily = json!({"key": "k", "policy": {"quota": 1, "every": "day"}, "max_wait_ms": 0});
    let statuses = [(); 2].map(|()| fixture.post("/v1/acquire", &daily).0);
    assert_eq!(statuses, [200, 429]);
}

/// Alice has exhausted her own limit, which must not make Bob wait.
#[test]
fn waiter_blocked_by_its_own_limit_does_not_block_others() {
    let fixture = Fixture::open();
    let list = |user: &str, max_wait: u64| {
        json!({
            "charges": [{"limit": "gpu", "key": "pool"}, {"policy": {"capacity": 1, "rate": "1/s"}, "key": user}],
            "max_wait_ms": max_wait,
        })
    };
    let first = fixture.acquire(&list("alice", 0));
    fixture.post("/v1/release", &json!({"id": first}));
    thread::scope(|scope| {
        let caller = &fixture.caller;
        let alice = scope.spawn(|| caller.acquire(&list("alice", 10_000)));
        fixture.wait_for_waiters(1);
        let bob = fixture.acquire(&list("bob", 0));
        fixture.post("/v1/release", &json!({"id": bob}));
        assert_eq!(alice.join().unwrap().0, 200);
    });
}

/// R367: enlarging a semaphore admits its waiters immediately.
#[test]
fn added_slot_goes_to_a_waiter() {
    let fixture = Fixture::open();
    fixture.acquire(&json!({"limit": "gpu", "key": "box"}));
    let body = json!({"limit": "gpu", "key": "box", "max_wait_ms": 20_000});
    thread::scope(|scope| {
        let caller = &fixture.caller;
        let waiting = scope.spawn(|| caller.acquire(&body));
        fixture.wait_for_waiters(1);
        let (status, body) = fixture.serving.patch(&json!({"limits": {"gpu": {"concurrency": 2}}}));
        assert_eq!(status, 200, "{body}");
        let (status, answer) = waiting.join().unwrap();
        assert_eq!(status, 200, "{answer}");
        assert!(answer["waited_ms"].as_u64().unwrap() < 15_000, "{answer}");
    });
}

#[test]
fn settled_tokens_go_to_a_waiter() {
    let fixture = Fixture::open();
    let policy = json!({"capacity": 4, "rate": "1/15s"});
    let body =
        |cost: u64| json!({"policy": policy, "key": "k", "cost": cost, "max_wait_ms": 60_000});
    fixture.acquire(&body(4));
    let (status, answer) = thread::scope(|scope| {
        let caller = &fixture.caller;
        let waiting = scope.spawn(|| caller.acquire(&body(2)));
        fixture.wait_for_waiters(1);
        let back = json!({"policy": policy, "key": "k", "delta": -4});
        assert_eq!(fixture.post("/v1/settle", &back).0, 200);
        waiting.join().unwrap()
    });
    assert_eq!(status, 200, "{answer}");
    assert!(answer["waited_ms"].as_u64().unwrap() < 25_000, "{answer}");
}

#[test]
fn disconnected_waiter_leaves_the_queue_and_spends_nothing() {
    let fixture = Fixture::open();
    let held = fixture.acquire(&json!({"limit": "gpu", "key": "box"}));
    let body = r#"{"charges":[{"limit":"gpu","key":"box"},{"limit":"tokens","key":"acme"}],"max_wait_ms":60000}"#;
    let address = fixture.serving.url.trim_start_matches("http://");
    let mut waiter = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(
        waiter,
        "POST /v1/acquire HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    fixture.wait_for_waiters(1);
    drop(waiter);
    fixture.wait_for_waiters(0);
    fixture.post("/v1/release", &json!({"id": held}));
    fixture.acquire(&json!({"limit": "gpu", "key": "box", "max_wait_ms": 0}));
    assert_eq!((fixture.tokens(), fixture.metric("tidegate_permits")), (10, 1));
}

#[test]
fn waiter_is_notified_when_the_server_stops() {
    let fixture = Fixture::open();
    fixture.acquire(&json!({"limit": "gpu", "key": "box"}));
    let (status, answer) = thread::scope(|scope| {
        let caller = &fixture.caller;
        let body = json!({"limit": "gpu", "key": "box", "max_wait_ms": 600_000});
        let waiting = scope.spawn(move || caller.acquire(&body));
        fixture.wait_for_waiters(1);
        fixture.serving.signal("TERM");
        waiting.join().unwrap()
    });
    assert_eq!(
        (status, &answer["detail"]),
        (503, &json!("the server is shutting down and rejects requests that would wait"))
    );
    let ended = fixture.serving.stop("TERM");
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn invalid_request_is_rejected_and_spends_nothing() {
    let fixture = Fixture::open();
    for (path, body, field) in [
        ("/v1/acquire", json!({"limit": "gpu"}), "key"),
        ("/v1/acquire", json!({"limit": "gpu", "key": "k", "max_wait_ms": -1}), "max_wait_ms"),
        ("/v1/acquire", json!({"limit": "gpu", "key": "k", "ttl_ms": 0}), "ttl_ms"),
        ("/v1/acquire", json!({"limit": "gpu", "key": "k", "ttl_ms": 86_400_001}), "ttl_ms"),
        ("/v1/acquire", json!({"limit": "gpu", "key": "k", "priority": "urgent"}), "priority"),
        ("/v1/acquire", json!({"key": "k", "policy": {"concurrency": 0}}), "policy.concurrency"),
        ("/v1/release", json!({}), "id"),
        ("/v1/release", json!({"id": "nonsense"}), "id"),
        ("/v1/renew", json!({"id": "p9_AAAAAAAAAAAAAAAAAAAAAA"}), "id"),
        ("/v1/settle", json!({"id": "p1_AAAAAAAAAAAAAAAAAAAAAA"}), "cost"),
        ("/v1/admit", json!({"ttl_ms": 5}), "ttl_ms"),
    ] {
        let (status, answer) = fixture.post(path, &body);
        assert_eq!(
            (status, &answer["errors"][0]["field"]),
            (400, &json!(field)),
            "{body} {answer}"
        );
    }
    let batch = json!({"operations": [{"op": "acquire", "limit": "gpu", "key": "box"}]});
    let (_, answer) = fixture.post("/v1/batch", &batch);
    let rule = answer["answers"][0]["errors"][0]["rule"].as_str().unwrap();
    assert!(rule.starts_with("cannot be acquire, because a batch never waits"), "{rule}");
    assert_eq!(
        (fixture.metric("tidegate_permits"), fixture.metric("tidegate_permit_waiters")),
        (0, 0)
    );
    wait_until("the slot to be free", || {
        let body = json!({"limit": "gpu", "key": "box", "max_wait_ms": 0});
        (fixture.post("/v1/acquire", &body).0 == 200).then_some(())
    });
}
