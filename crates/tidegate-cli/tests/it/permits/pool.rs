//! Pools of workers in Python, whose semaphore is `/v1/acquire`.

use std::path::Path;

use serde_json::{Value, json};
use tidegate_testkit::launch::{Flavor, Python, RedisServer};

use super::Stage;

const SLOTS: u64 = 3;

const POOL: &str = "[limits.pool]\nconcurrency = 3\nlease = \"2s\"\n";

/// Runs the pool to its end: nobody fails, never more than there are slots, and as many again once
/// the permit of the worker that was killed has run out.
fn check_pool(urls: &str, workers: u64, rounds: u64) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/permits/pool.py");
    let (workers_text, rounds_text) = (workers.to_string(), rounds.to_string());
    let ran = Python::installed().run(script, &[urls, &workers_text, &rounds_text], &[]);
    let told: Value = serde_json::from_str(ran.line()).unwrap();
    assert_eq!(
        (&told["failed"], &told["rounds"]),
        (&json!([]), &json!(workers * rounds)),
        "{told}"
    );
    assert_eq!((&told["most"], &told["most_after"]), (&json!(SLOTS), &json!(SLOTS)), "{told}");
}

#[test]
fn a_python_pool_keeps_to_its_slots_and_survives_a_killed_worker() {
    let stage = Stage::with(POOL, &[]);
    check_pool(&stage.serving.url, 8, 60);
    assert_eq!(stage.metric("tidegate_permits"), 0);
    assert_eq!(stage.metric(r#"tidegate_permits_ended_total{outcome="released"}"#), 480);
    assert_eq!(stage.metric(r#"tidegate_permits_ended_total{outcome="expired"}"#), 1);
}

/// Setting: limits.*.lease
#[test]
fn two_programs_on_one_redis_are_one_semaphore() {
    let server = RedisServer::start(Flavor::Redis);
    let url = server.url();
    let [one, other] = [(); 2].map(|()| Stage::with(POOL, &["--store", &url]));
    check_pool(&format!("{},{}", one.serving.url, other.serving.url), 8, 40);
    // What is released is free at once, for both.
    let all = json!({"limit": "pool", "key": "workers", "cost": SLOTS, "max_wait_ms": 0});
    for stage in [&one, &other, &one] {
        let id = stage.acquire(&all);
        assert_eq!(stage.post("/v1/acquire", &all).0, 429);
        assert_eq!(stage.post("/v1/release", &json!({"id": id})).0, 200);
    }
    // A program that is killed frees its slots too, when their lease in the store runs out.
    one.acquire(&all);
    assert_eq!(one.serving.stop("KILL").code, None);
    let later = json!({"limit": "pool", "key": "workers", "cost": SLOTS, "max_wait_ms": 30_000});
    let (status, answer) = other.post("/v1/acquire", &later);
    assert_eq!(status, 200, "{answer}");
}
