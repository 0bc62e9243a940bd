//! Reloading the file: on SIGHUP, and when it changes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::json;

use crate::program::{Serving, serve};

const CAPACITY: &str = "limits.api.capacity";

fn write(path: &Path, capacity: u32) {
    fs::write(path, format!("[limits.api]\ncapacity = {capacity}\nrate = \"1/day\"\n")).unwrap();
}

/// Returns the remaining tokens of a key.
fn left(serving: &Serving, key: &str) -> String {
    let body = format!(r#"{{"key":"{key}","limit":"api","cost":0}}"#);
    let (status, body) = serving.post("/v1/peek", &body);
    assert_eq!(status, 200, "{body}");
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    body["remaining"].to_string()
}

/// R429: the new file applies to the next request.
///
/// Setting: limits.*.capacity
#[test]
fn sighup_reloads_the_file() {
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("tidegate.toml");
    write(&file, 10);
    let mut serving = Serving::start(&mut serve(here.path(), &[]));
    assert_eq!(left(&serving, "alice"), "10");
    write(&file, 4);
    serving.signal("HUP");
    serving.wait_for("door=\"signal\"");
    assert_eq!(left(&serving, "alice"), "4");
    assert_eq!(serving.setting(CAPACITY), (4.into(), "file".to_owned()));
    let ended = serving.stop("TERM");
    assert_eq!(ended.code, Some(0));
    let line = r#"who="-" revision=0 key="limits.api.capacity" old="10" new="4""#;
    assert!(ended.stderr.contains(line), "{ended:?}");
}

/// R429: an invalid file is ignored entirely, and all its errors are logged.
#[test]
fn invalid_file_keeps_the_old_configuration_and_logs_every_error() {
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("tidegate.toml");
    write(&file, 10);
    let mut serving = Serving::start(&mut serve(here.path(), &[]));
    let bad = "[limits.api]\ncapacity = 3\nrate = \"fast\"\n[limits.other]\ncapacity = 0\n\
               rate = \"1/s\"\n[stor]\n";
    fs::write(&file, bad).unwrap();
    serving.signal("HUP");
    serving.wait_for("change refused; keeping the current configuration");
    assert_eq!(left(&serving, "alice"), "10");
    assert_eq!(serving.setting(CAPACITY), (10.into(), "file".to_owned()));
    // A valid file is applied afterwards.
    write(&file, 6);
    serving.signal("HUP");
    serving.wait_for("key=\"limits.api.capacity\" old=\"10\" new=\"6\"");
    assert_eq!(left(&serving, "alice"), "6");
    let ended = serving.stop("TERM");
    for mistake in [
        "tidegate.toml:3:8: limits.api.rate = \"fast\": ",
        "tidegate.toml:5:12: limits.other.capacity = 0: Rate limit capacity must be >= 1",
        "tidegate.toml:7:2: stor: is not a known key; did you mean `store`?",
    ] {
        assert!(ended.stderr.contains(mistake), "{mistake} in {ended:?}");
    }
    assert!(ended.stderr.contains("ERROR"), "{ended:?}");
}

#[test]
fn missing_file_keeps_the_old_configuration() {
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("mine.toml");
    write(&file, 10);
    let mut serving = Serving::start(&mut serve(here.path(), &["--config", "mine.toml"]));
    fs::remove_file(&file).unwrap();
    serving.signal("HUP");
    serving.wait_for("change refused; keeping the current configuration");
    assert_eq!(left(&serving, "alice"), "10");
}

#[test]
fn changed_file_is_reloaded_without_a_signal() {
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("tidegate.toml");
    write(&file, 10);
    let serving = Serving::start(&mut serve(here.path(), &[]));
    write(&file, 2_000);
    serving.wait_until_it_has(CAPACITY, &json!(2_000));
    assert_eq!(left(&serving, "bob"), "2000");
    // Like editors do: write a new file, then rename it.
    let beside = here.path().join("tidegate.toml.new");
    write(&beside, 3);
    fs::rename(&beside, &file).unwrap();
    serving.wait_until_it_has(CAPACITY, &json!(3));
    let ended = serving.stop("TERM");
    assert!(ended.stderr.contains("door=\"file\" who=\"-\""), "{ended:?}");
}

/// Kubernetes mounts a configuration as a link into a linked directory, and only swaps the latter.
#[test]
fn swapped_symlink_is_noticed() {
    let here = tempfile::tempdir().unwrap();
    let here = here.path();
    for (version, capacity) in [("one", 10), ("two", 11)] {
        fs::create_dir(here.join(version)).unwrap();
        write(&here.join(version).join("tidegate.toml"), capacity);
    }
    symlink("one", here.join("data")).unwrap();
    symlink("data/tidegate.toml", here.join("tidegate.toml")).unwrap();
    let serving = Serving::start(&mut serve(here, &["--config", "tidegate.toml"]));
    assert_eq!(left(&serving, "alice"), "10");
    symlink("two", here.join("next")).unwrap();
    fs::rename(here.join("next"), here.join("data")).unwrap();
    serving.wait_until_it_has(CAPACITY, &json!(11));
    assert_eq!(left(&serving, "bob"), "11");
}
