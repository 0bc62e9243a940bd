//! Snapshots: the state of the store survives a restart.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use tidegate::clock::ManualClock;
use tidegate::{MemoryStore, Policy};
use tidegate_core::Limit;
use tidegate_server::{Drained, Server, StartError};
use tidegate_testkit::launch::wait_until;

use crate::{TestServer, layers};

const LIMITS: &str = r#"
[limits.slow]
capacity = 5
rate = "1/h"
[limits.quick]
capacity = 1
rate = "2/s"
[limits.daily]
quota = 3
every = "day"
"#;

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("buckets");
    (folder, file)
}

fn configured(file: &Path, limits: &str) -> Result<Server, StartError> {
    Server::new(layers(&format!("[store]\nsnapshot = \"{}\"\n{limits}", file.display())))
}

/// Starts a server on the system clock.
fn start(file: &Path, limits: &str) -> TestServer {
    TestServer::serving(configured(file, limits).unwrap(), ManualClock::new())
}

fn stop(mut server: TestServer) {
    let running = server.running.take().unwrap();
    assert_eq!(server.runtime.block_on(running.shutdown()), Drained::Complete);
}

fn take(server: &TestServer, limit: &str, cost: u64) -> bool {
    let body = format!(r#"{{"key":"alice","limit":"{limit}","cost":{cost}}}"#);
    server.post("/v1/take", &body).member("allowed").as_bool().unwrap()
}

/// Returns the counts of saved and failed snapshots.
fn snapshot_counts(server: &TestServer) -> [Option<u64>; 2] {
    let text = server.admin_get("/metrics").body;
    ["saved", "failed"].map(|outcome| {
        let name = format!("tidegate_snapshots_total{{outcome=\"{outcome}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok())
    })
}

/// Setting: store.snapshot
#[test]
fn charges_survive_a_restart_and_refill_in_time() {
    let (_folder, file) = folder();
    let server = start(&file, LIMITS);
    assert!(take(&server, "slow", 4));
    assert!(take(&server, "daily", 1));
    assert!(take(&server, "quick", 1));
    stop(server);

    let server = start(&file, LIMITS);
    assert!(!take(&server, "slow", 2));
    assert!(take(&server, "slow", 1));
    // It has refilled by now, or will soon.
    wait_until("the quick limit to refill", || take(&server, "quick", 1).then_some(()));
    stop(server);

    // Tokens are kept under another policy.
    let server = start(&file, "[limits.slow]\ncapacity = 50\nrate = \"1/h\"\n");
    assert!(!take(&server, "slow", 1));
    stop(server);
}

#[test]
fn the_store_is_saved_at_start() {
    let (folder, file) = folder();
    let server = start(&file, LIMITS);
    wait_until("the first snapshot", || file.exists().then_some(()));
    wait_until("its count", || (snapshot_counts(&server) == [Some(1), Some(0)]).then_some(()));
    stop(server);
    let server = start(&folder.path().join("missing").join("buckets"), LIMITS);
    wait_until("the failure", || (snapshot_counts(&server) == [Some(0), Some(1)]).then_some(()));
    // The server works anyway.
    assert!(take(&server, "slow", 5));
    stop(server);
}

#[tokio::test(start_paused = true)]
async fn the_store_is_saved_every_minute() {
    let (_folder, file) = folder();
    let running = configured(&file, LIMITS).unwrap().open().await.unwrap();
    // Virtual time does not advance while a file is written.
    tokio::time::sleep(Duration::from_secs(1)).await;
    std::fs::remove_file(&file).unwrap();
    tokio::time::sleep(Duration::from_secs(58)).await;
    assert!(!file.exists());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(file.exists());
    std::fs::remove_file(&file).unwrap();
    let _ = running.shutdown().await;
    assert!(file.exists());
}

#[test]
fn a_damaged_snapshot_is_renamed_and_the_store_starts_empty() {
    let (folder, file) = folder();
    let server = start(&file, LIMITS);
    assert!(take(&server, "slow", 5));
    stop(server);
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, &bytes).unwrap();

    let server = start(&file, LIMITS);
    assert!(take(&server, "slow", 5));
    assert_eq!(std::fs::read(folder.path().join("buckets.damaged")).unwrap(), bytes);
    stop(server);
    let server = start(&file, LIMITS);
    assert!(!take(&server, "slow", 1));
    stop(server);
}

#[test]
fn a_directory_is_not_renamed() {
    let (folder, _) = folder();
    let error = configured(folder.path(), LIMITS).unwrap_err().to_string();
    assert!(error.starts_with("store.snapshot: "), "{error}");
    assert!(error.ends_with(": the snapshot path is not a regular file"), "{error}");
    assert!(folder.path().is_dir());
}

/// A wrong path must not move a foreign file, and an older version must not discard what a newer
/// one has written.
#[test]
fn a_foreign_or_newer_file_prevents_the_start_and_is_kept() {
    for (text, why) in [
        ("[limits.client]\ncapacity = 1\n", "the file is not a Tidegate snapshot"),
        ("TIDESNAP\u{7}\0\0\0", "snapshot format 7 is not supported; this version reads format 1"),
    ] {
        let (folder, file) = folder();
        std::fs::write(&file, text).unwrap();
        let error = configured(&file, LIMITS).unwrap_err().to_string();
        assert_eq!(error, format!("store.snapshot: {}: {why}", file.display()));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

#[test]
fn a_second_damaged_snapshot_does_not_replace_the_first() {
    let (folder, file) = folder();
    let damaged = ["", "TIDESNAP", "TIDESNAP\u{1}\0\0\0 and nothing else"];
    for text in damaged {
        std::fs::write(&file, text).unwrap();
        drop(configured(&file, LIMITS).unwrap());
    }
    let kept = |name| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(["buckets.damaged", "buckets.damaged.1", "buckets.damaged.2"].map(kept), damaged);
}

#[test]
fn a_snapshot_that_does_not_fit_is_copied_first() {
    let (folder, file) = folder();
    let policy = Policy::per(1, Duration::from_secs(3_600)).capacity(5).build().unwrap();
    let limit = Limit::named("slow", policy).unwrap();
    let store = MemoryStore::builder().max_memory(64 << 20).build().unwrap();
    for number in 0..100_000 {
        assert!(store.take_one(&limit, number.to_string().as_str().into(), 5).is_allowed());
    }
    store.save(&file, std::slice::from_ref(&limit)).unwrap();
    let original = std::fs::read(&file).unwrap();
    let text = format!("[store]\nmax_memory = \"1MiB\"\nsnapshot = \"{}\"\n", file.display());
    let server = Server::new(layers(&format!("{text}{LIMITS}"))).unwrap();
    stop(TestServer::serving(server, ManualClock::new()));
    assert!(std::fs::read(folder.path().join("buckets.too-large")).unwrap() == original);
    assert!(std::fs::metadata(&file).unwrap().len() < original.len() as u64);
}

/// Limits changed at run time are saved with their last policy.
#[test]
fn a_limit_changed_at_run_time_returns_to_its_configured_policy() {
    let (_folder, file) = folder();
    let server = start(&file, LIMITS);
    assert!(take(&server, "slow", 5));
    let response = server.patch(&serde_json::json!({"limits": {"slow": {"capacity": 9}}}));
    assert_eq!(response.status, 200, "{}", response.body);
    assert!(!take(&server, "slow", 1));
    stop(server);
    // The change was not stored, so the policy of the file applies again; the bucket is still
    // empty.
    let server = start(&file, LIMITS);
    assert!(!take(&server, "slow", 1));
    stop(server);
}
