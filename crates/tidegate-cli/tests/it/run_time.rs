//! Changes at run time: warnings, audit lines, and persistence.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::program::{Ended, Serving, run, serve};

const KEY: &str = "providers.openai.max_concurrent_requests";

/// Returns a change of the concurrency.
fn concurrency(limit: u32) -> Value {
    json!({"providers": {"openai": {"max_concurrent_requests": limit}}})
}

/// Makes a change, which must be accepted, and returns the result.
#[track_caller]
fn changed(serving: &Serving, change: &Value) -> Value {
    let (status, body) = serving.patch(change);
    assert_eq!(status, 200, "{body}");
    let mut answer: Value = serde_json::from_str(&body).unwrap();
    answer["change"].take()
}

fn cap_warning(asked: u32) -> String {
    format!("openai: concurrency limit ({asked}) exceeds maximum (32). Capping at 32.")
}

/// Returns the audit lines that contain this text.
fn audit<'e>(ended: &'e Ended, text: &str) -> Vec<&'e str> {
    let lines = ended.stderr.lines();
    lines.filter(|line| line.contains("tidegate::audit: ") && line.contains(text)).collect()
}

/// R360 and G13: both values are capped at 32, but the changes differ.
#[test]
fn each_capped_change_has_a_warning_and_an_audit_line() {
    let here = tempfile::tempdir().unwrap();
    let serving = Serving::start(&mut serve(here.path(), &[]));
    let before = serving.setting(KEY).0;
    for (asked, old) in [(64, before.clone()), (77, json!(32))] {
        let expected = json!({
            "changes": [{"key": KEY, "old": old, "new": 32, "asked": asked, "source": "database"}],
            "warnings": [cap_warning(asked)],
            "kept": "database",
        });
        assert_eq!(changed(&serving, &concurrency(asked)), expected);
        assert_eq!(serving.setting(KEY), (32.into(), "database".to_owned()));
    }
    // Repeating a change has no effect and causes no warning.
    let again = changed(&serving, &concurrency(77));
    assert_eq!((&again["changes"], &again["warnings"]), (&json!([]), &json!([])));
    // Another change does not repeat the warnings.
    changed(&serving, &json!({"limits": {"client": {"capacity": 7}}}));
    let ended = serving.stop("TERM");
    let lines = audit(&ended, KEY);
    let [first, second] = lines[..] else { panic!("{ended:?}") };
    let revision = |number: u32| format!("door=\"admin\" who=\"127.0.0.1\" revision={number} ");
    let values = format!("old=\"{before}\" new=\"32\" asked=\"64\" source=\"database\"");
    assert!(first.contains(&revision(1)) && first.contains(&values), "{first}");
    let values = "old=\"32\" new=\"32\" asked=\"77\" source=\"database\"";
    assert!(second.contains(&revision(2)) && second.contains(values), "{second}");
    for asked in [64, 77] {
        assert_eq!(ended.stderr.matches(&cap_warning(asked)).count(), 1, "{ended:?}");
    }
}

/// G13: both changes are audited, even if they happen between two polls.
#[test]
fn each_external_change_has_an_audit_line() {
    let here = tempfile::tempdir().unwrap();
    let mut serving = Serving::start(&mut serve(here.path(), &[]));
    for asked in [64, 77] {
        let args = ["config", "--state-dir", "state", "set", KEY, &asked.to_string()];
        let set = run(here.path(), &args);
        assert_eq!(set.code, Some(0), "{set:?}");
        assert_eq!(set.stderr, format!("{}\n", cap_warning(asked)));
    }
    serving.wait_for(&cap_warning(77));
    let ended = serving.stop("TERM");
    let lines = audit(&ended, KEY);
    let [first, second] = lines[..] else { panic!("{ended:?}") };
    for (line, revision, asked) in [(first, 1, 64), (second, 2, 77)] {
        let author = format!("door=\"database\" who=\"-\" revision={revision} ");
        assert!(line.contains(&author), "{line}");
        assert!(line.contains(&format!("asked=\"{asked}\" ")), "{line}");
        assert!(line.contains("via=\"cli\""), "{line}");
    }
}

/// R360: a warning about the file is logged once, when the file causes it.
#[test]
fn reloaded_file_causes_each_warning_once() {
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("tidegate.toml");
    let write = |capacity: u32, rest: &str| {
        let limit = format!("[limits.api]\ncapacity = {capacity}\nrate = \"1/s\"\n{rest}");
        fs::write(&file, limit).unwrap();
    };
    write(10, "");
    let mut serving = Serving::start(&mut serve(here.path(), &[]));
    let unused = "[modules.rate_limit]\nenabled = true\n";
    write(11, unused);
    serving.signal("HUP");
    let warning = "modules.rate_limit.enabled is used by the library only";
    serving.wait_for(warning);
    write(12, unused);
    serving.signal("HUP");
    serving.wait_for("key=\"limits.api.capacity\" old=\"11\" new=\"12\"");
    let ended = serving.stop("TERM");
    assert_eq!(ended.stderr.matches(warning).count(), 1, "{ended:?}");
    let line = audit(&ended, "key=\"modules.rate_limit.enabled\" old=\"false\" new=\"true\"");
    assert_eq!(line.len(), 1, "{ended:?}");
}

/// Without a database, no setting has the source `database`.
#[test]
fn change_without_a_database_lasts_until_restart() {
    let here = tempfile::tempdir().unwrap();
    let start = || Serving::start(&mut serve(here.path(), &["--database", "none"]));
    const CAPACITY: &str = "limits.client.capacity";
    let serving = start();
    let change = changed(&serving, &json!({"limits": {"client": {"capacity": 7}}}));
    assert_eq!(change["kept"], "until_restart");
    let warnings = change["warnings"].to_string();
    assert!(warnings.contains("lost on restart, because there is no database"), "{warnings}");
    assert_eq!(serving.setting(CAPACITY), (7.into(), "runtime".to_owned()));
    let sources = serving.settings("").into_iter().map(|mut one| one["source"].take());
    assert!(sources.into_iter().all(|source| source != "database"));
    let ended = serving.stop("TERM");
    let line = audit(&ended, CAPACITY);
    assert!(line[0].contains("old=\"100\" new=\"7\" asked=\"7\" source=\"runtime\""), "{line:?}");
    assert!(ended.stderr.contains("lost on restart, because there is no database"));
    assert_eq!(start().setting(CAPACITY), (100.into(), "default".to_owned()));
}

/// G12 and G13: manual actions on a key are audited, without the key.
#[test]
fn operator_actions_on_keys_are_audited() {
    let here = tempfile::tempdir().unwrap();
    let (token, hash) = key(here.path());
    let text = format!("[admin]\nwrite_tokens = [\"{hash}\"]\n");
    fs::write(here.path().join("tidegate.toml"), text).unwrap();
    let mut serving = Serving::start(&mut serve(here.path(), &[]));
    serving.token = Some(token);
    let body = |rest: &str| format!(r#"{{"key":"alice","limit":"client"{rest}}}"#);
    for (verb, rest) in [("hold", r#","for_ms":1000"#), ("settle", r#","delta":-3"#), ("reset", "")]
    {
        assert_eq!(serving.post(&format!("/v1/{verb}"), &body(rest)).0, 200);
        assert_eq!(serving.post_admin(&format!("/admin/keys/{verb}"), &body(rest)).0, 200);
    }
    let operations = r#"{"operations":[{"op":"reset","key":"alice","limit":"client"}]}"#;
    assert_eq!(serving.post("/v1/batch", operations).0, 200);
    assert_eq!(serving.post_admin("/admin/keys/peek", &body("")).0, 200);
    // Takes and peeks are not audited; there would be too many.
    assert_eq!(serving.post("/v1/take", &body("")).0, 200);
    assert_eq!(serving.post("/v1/peek", &body("")).0, 200);
    serving.token = None;
    assert_eq!(serving.post_admin("/admin/keys/reset", &body("")).0, 401);
    let ended = serving.stop("TERM");
    let count = |event: &str, author: &str| {
        let lines =
            audit(&ended, &format!("{event} {author} limit=\"client\" key_hash=\"2bd806c9\""));
        lines.len()
    };
    let who = &hash["sha256:".len()..][..8];
    let (anybody, operator) =
        ("door=\"http\" who=\"127.0.0.1\"", format!("door=\"admin\" who=\"{who}\""));
    for (event, by_anybody, by_operator) in
        [("key held", 1, 1), ("key corrected", 1, 1), ("key reset", 2, 1), ("key peeked", 0, 1)]
    {
        let counted = (count(event, anybody), count(event, &operator));
        assert_eq!(counted, (by_anybody, by_operator), "{event}: {}", ended.stderr);
    }
    assert!(audit(&ended, "alice").is_empty(), "{ended:?}");
    assert_eq!(audit(&ended, "delta=-3").len(), 2, "{ended:?}");
}

/// Without tokens, the author of an audit line is the address of the peer.
#[test]
fn actions_without_a_token_are_audited_by_address() {
    let here = tempfile::tempdir().unwrap();
    let serving = Serving::start(&mut serve(here.path(), &[]));
    let body = |rest: &str| format!(r#"{{"key":"alice","limit":"client"{rest}}}"#);
    for (verb, rest) in [("hold", r#","for_ms":1000"#), ("settle", r#","delta":-3"#), ("reset", "")]
    {
        assert_eq!(serving.post_admin(&format!("/admin/keys/{verb}"), &body(rest)).0, 200);
    }
    let ended = serving.stop("TERM");
    for event in ["key held", "key corrected", "key reset"] {
        let lines = audit(&ended, &format!("{event} door=\"admin\" who=\"127.0.0.1\" limit="));
        assert_eq!(lines.len(), 1, "{event}: {}", ended.stderr);
    }
}

/// Unauthenticated actions cannot fill the disk with audit lines; suppressed lines are counted.
#[test]
fn flood_of_actions_has_bounded_audit_lines() {
    let here = tempfile::tempdir().unwrap();
    let serving = Serving::start(&mut serve(here.path(), &[]));
    let operation = r#"{"op":"reset","key":"alice","limit":"client"}"#;
    let batch = format!("{{\"operations\":[{}]}}", vec![operation; 256].join(","));
    for _ in 0..20 {
        assert_eq!(serving.post("/v1/batch", &batch).0, 200);
    }
    let ended = serving.stop("TERM");
    let written = audit(&ended, "key reset").len();
    assert!((256..2_000).contains(&written), "{written} lines");
    let count = |line: &&str| {
        let number = line.split("suppressed=").nth(1)?.split_whitespace().next()?;
        number.parse::<usize>().ok()
    };
    let lines = audit(&ended, "audit lines suppressed");
    let suppressed: usize = lines.iter().filter_map(count).sum();
    assert_eq!(written + suppressed, 20 * 256, "every action is a line or is counted");
}

/// Creates a token and returns it with its hash.
fn key(directory: &Path) -> (String, String) {
    let made = run(directory, &["key"]);
    let lines: Vec<_> = made.stdout.lines().map(ToOwned::to_owned).collect();
    let [token, hash] = <[String; 2]>::try_from(lines).unwrap();
    (token, hash)
}
