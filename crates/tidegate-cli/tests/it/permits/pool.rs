//! Python worker pools that use `/v1/acquire` as a semaphore.

use std::path::Path;

use serde_json::{Value, json};
use tidegate_testkit::launch::{Flavor, Python, RedisServer};

use super::Fixture;

const SLOTS: u64 = 3;

const POOL: &str = "[limits.pool]\nconcurrency = 3\nlease = \"2s\"\n";

/// Runs the pool until it ends. Checks that no worker fails, that slots are never exceeded, and
/// that all are available again after the permit of the killed worker expires.
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
fn python_pool_respects_slots_and_survives_a_killed_worker() {
    let fixture = Fixture::with(POOL, &[]);
    check_pool(&fixture.serving.url, 8, 60);
    assert_eq!(fixture.metric("tidegate_permits"), 0);
    assert_eq!(fixture.metric(r#"tidegate_permits_ended_total{outcome="released"}"#), 480);
    assert_eq!(fixture.metric(r#"tidegate_permits_ended_total{outcome="expired"}"#), 1);
}

/// Setting: limits.*.lease
#[test]
fn two_servers_on_one_redis_share_a_semaphore() {
    let server = RedisServer::start(Flavor::Redis);
    let url = server.url();
    let [one, other] = [(); 2].map(|()| Fixture::with(POOL, &["--store", &url]));
    check_pool(&format!("{},{}", one.serving.url, other.serving.url), 8, 40);
    // A released slot is available immediately to both servers.
    let all = json!({"limit": "pool", "key": "workers", "cost": SLOTS, "max_wait_ms": 0});
    for fixture in [&one, &other, &one] {
        let id = fixture.acquire(&all);
        assert_eq!(fixture.post("/v1/acquire", &all).0, 429);
        assert_eq!(fixture.post("/v1/release", &json!({"id": id})).0, 200);
    }
    // Slots of a killed server are freed when their lease in the store expires.
    one.acquire(&all);
    assert_eq!(one.serving.stop("KILL").code, None);
    let later = json!({"limit": "pool", "key": "workers", "cost": SLOTS, "max_wait_ms": 30_000});
    let (status, answer) = other.post("/v1/acquire", &later);
    assert_eq!(status, 200, "{answer}");
}
