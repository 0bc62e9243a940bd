//! Effects of settings: each test fails if its setting is ignored. Other settings are covered by
//! the tests of their features.

mod providers;
mod yaml;

use std::fs;

use serde_json::{Value, json};

use crate::program::{Serving, serve, tidegate};

fn parsed(body: &str) -> Value {
    serde_json::from_str(body).unwrap()
}

/// Setting: state_dir
#[test]
fn changes_are_kept_in_the_state_directory() {
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("tidegate.toml"), "state_dir = \"kept\"\n").unwrap();
    let mut args = vec!["serve"];
    args.extend(["--http", "--admin", "--grpc"].iter().flat_map(|door| [door, "127.0.0.1:0"]));
    let serving = Serving::start(&mut tidegate(here.path(), &args));
    let (status, body) = serving.patch(&json!({"limits": {"client": {"capacity": 5}}}));
    assert_eq!(status, 200, "{body}");
    assert!(here.path().join("kept/tidegate.db").exists());
}

/// Every key is in debt, so none can be evicted. With shared buckets, or the default memory, all
/// keys are admitted.
///
/// Setting: store.max_memory, store.overflow
#[test]
fn full_store_denies_new_keys_if_configured() {
    const KEYS: usize = 256;
    const BATCHES: usize = 200;
    let here = tempfile::tempdir().unwrap();
    let text = "[store]\nmax_memory = \"1MiB\"\noverflow = \"deny\"\n\
                [limits.api]\ncapacity = 100000\nrate = \"10/h\"\n";
    fs::write(here.path().join("tidegate.toml"), text).unwrap();
    let serving = Serving::start(&mut serve(here.path(), &[]));
    let all_admitted = |batch: usize| {
        let take = |key| json!({"op": "take", "limit": "api", "key": format!("{batch}-{key}")});
        let operations: Vec<_> = (0..KEYS).map(take).collect();
        let body = json!({"operations": operations}).to_string();
        let (status, body) = serving.post("/v1/batch", &body);
        assert_eq!(status, 200, "{body}");
        let answers = parsed(&body)["answers"].take();
        answers.as_array().unwrap().iter().all(|answer| answer["allowed"] == true)
    };
    assert!(all_admitted(0), "the store has room at first");
    assert!(!(1..BATCHES).all(all_admitted), "51,200 keys in a mebibyte");
}

/// Nothing listens on port 1.
///
/// Setting: store.on_failure, store.expected_nodes, limits.*.on_failure
#[test]
fn unreachable_store_applies_failure_rule_and_local_share() {
    let here = tempfile::tempdir().unwrap();
    let text = "[store]\nurl = \"redis://127.0.0.1:1\"\non_failure = \"closed\"\n\
                expected_nodes = 4\n[limits.api]\ncapacity = 8\nrate = \"1/day\"\n\
                [limits.own]\ncapacity = 8\nrate = \"1/day\"\non_failure = \"local\"\n";
    fs::write(here.path().join("tidegate.toml"), text).unwrap();
    let serving = Serving::start(&mut serve(here.path(), &[]));
    let take = |limit: &str| {
        let (status, body) =
            serving.post("/v1/take", &json!({"key": "alice", "limit": limit}).to_string());
        let body = parsed(&body);
        (status, body["degraded"].clone(), body["remaining"].clone())
    };
    assert_eq!(take("api"), (429, json!("closed"), json!(0)));
    assert_eq!(take("own"), (200, json!("local"), json!(1)), "a quarter of eight, minus one");
}
