//! `config`: sources of settings, and changes in the database.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::program::{Ended, Serving, end, run, serve, tidegate};

const KEY: &str = "limits.client.rate";
const VARIABLE: &str = "TIDEGATE_LIMITS_CLIENT_RATE";

/// Runs `config` with its state in the directory.
fn config(directory: &Path, args: &[&str]) -> Ended {
    run(directory, &[&["config", "--state-dir", "state"], args].concat())
}

/// Runs `config show` for a key with this environment.
fn shown(directory: &Path, key: &str, environment: &[(&str, &str)]) -> Ended {
    let mut command = tidegate(directory, &["config", "show", key, "--state-dir", "state"]);
    let ended = end(command.envs(environment.iter().copied()));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended
}

#[track_caller]
fn succeeds(ended: &Ended, stdout: &str) {
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), stdout), "{ended:?}");
}

/// R355 and R364: the precedence is always the same.
#[test]
fn each_layer_overrides_those_below() {
    let here = tempfile::tempdir().unwrap();
    let here = here.path();
    let is = |environment: &[(&str, &str)], line: &str| {
        assert_eq!(shown(here, KEY, environment).stdout, format!("{KEY}  {line}\n"));
    };
    is(&[], r#""50/s"  default"#);
    fs::write(here.join("tidegate.toml"), "[limits.client]\nrate = \"40/s\"\n").unwrap();
    // Limits in a file replace all default limits.
    is(&[], r#""40/s"  file"#);
    let variable = [(VARIABLE, "30/s")];
    is(&variable, r#""30/s"  environment over file "40/s""#);
    succeeds(&config(here, &["set", KEY, "20/s"]), "revision 1\n");
    for development in ["true", "false"] {
        let environment = [(VARIABLE, "30/s"), ("DEVELOPMENT_MODE", development)];
        is(&environment, r#""20/s"  database over file "40/s", environment "30/s""#);
    }
    succeeds(&config(here, &["unset", KEY]), "revision 2\n");
    is(&variable, r#""30/s"  environment over file "40/s""#);
}

/// Settings with a flag cannot come from the database, so the flag directly overrides the
/// environment.
#[test]
fn flag_overrides_all_other_layers() {
    let here = tempfile::tempdir().unwrap();
    let here = here.path();
    fs::write(here.join("tidegate.toml"), "[database]\nurl = \"sqlite:file.db\"\n").unwrap();
    let args = ["config", "show", "database.url", "--state-dir", "state"];
    let flagged = [&args[..], &["--database", "none"]].concat();
    let variable = ("TIDEGATE_DATABASE_URL", "sqlite:variable.db");
    for (args, line) in [
        (
            &args[..],
            r#""sqlite:variable.db"  environment over default "sqlite:", file "sqlite:file.db""#,
        ),
        (
            &flagged,
            r#""none"  flag over default "sqlite:", file "sqlite:file.db", environment "sqlite:variable.db""#,
        ),
    ] {
        let ended = end(tidegate(here, args).env(variable.0, variable.1));
        succeeds(&ended, &format!("database.url  {line}\n"));
    }
}

#[test]
fn shadowed_settings_cause_warnings_at_start() {
    let here = tempfile::tempdir().unwrap();
    let here = here.path();
    fs::write(here.join("tidegate.toml"), "[limits.client]\nrate = \"40/s\"\n").unwrap();
    succeeds(&config(here, &["set", KEY, "20/s"]), "revision 1\n");
    let warnings = [
        r#"limits.client.rate: "40/s" of the file is shadowed by "20/s" of the database; to remove it, run `tidegate config unset limits.client.rate`"#,
        r#"limits.client.rate: "30/s" of the environment is shadowed by "20/s" of the database; to remove it, run `tidegate config unset limits.client.rate`"#,
    ];
    let told = shown(here, KEY, &[(VARIABLE, "30/s")]).stderr;
    assert_eq!(told.lines().collect::<Vec<_>>(), warnings);
    let serving = Serving::start(serve(here, &[]).env(VARIABLE, "30/s"));
    assert_eq!(serving.setting(KEY), ("20/s".into(), "database".to_owned()));
    let (_, summary) = serving.ask("/config");
    let summary: Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["limits"]["client"]["rate"], "20/s");
    let ended = serving.stop("TERM");
    for warning in warnings {
        assert!(ended.stderr.contains(warning), "{ended:?}");
    }
}

/// A running server applies changes made by the command line.
#[test]
fn change_reaches_a_running_server_and_persists() {
    let here = tempfile::tempdir().unwrap();
    let here = here.path();
    let serving = Serving::start(&mut serve(here, &[]));
    succeeds(&config(here, &["set", "limits.client.capacity", "7"]), "revision 1\n");
    serving.wait_until_it_has("limits.client.capacity", &7.into());
    let (status, body) = serving.post("/v1/peek", r#"{"key":"a","limit":"client","cost":0}"#);
    assert_eq!((status, body.contains(r#""remaining":7"#)), (200, true), "{body}");
    let (status, body) =
        serving.patch(&serde_json::json!({"providers": {"openai": {"max_retries": 3}}}));
    assert_eq!(status, 200, "{body}");
    let history = "2  admin  127.0.0.1  providers.openai.max_retries  - -> 3\n\
                   1  cli  -  limits.client.capacity  - -> 7\n";
    succeeds(&config(here, &["history"]), history);
    let latest = config(here, &["history", "--limit", "1"]);
    assert_eq!(latest.stdout.lines().count(), 1, "{latest:?}");
    let (_, told) = serving.ask("/admin/history");
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["changes"][1]["door"], "cli");
    let ended = serving.stop("TERM");
    assert!(
        ended.stderr.contains(r#"door="database" who="-" revision=1 key="limits.client.capacity""#),
        "{ended:?}"
    );
    let serving = Serving::start(&mut serve(here, &[]));
    assert_eq!(serving.setting("providers.openai.max_retries"), (3.into(), "database".to_owned()));
}

#[test]
fn addresses_and_access_cannot_be_set_in_the_database() {
    let here = tempfile::tempdir().unwrap();
    for (key, value) in [
        ("listen.http", "0.0.0.0:80"),
        ("store.url", "memory:"),
        ("store.max_memory", "8MiB"),
        ("database.url", "none"),
        ("state_dir", "elsewhere"),
        ("admin.write_tokens", "sha256:00"),
        ("admin.allow_unauthenticated", "true"),
        ("providers.openai.base_url", "http://127.0.0.1:1"),
        ("providers.openai.api_key_env", "HOME"),
    ] {
        let ended = config(here.path(), &["set", key, value]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{key}: {ended:?}");
        let reason = format!("{key}: cannot be set in the database: ");
        assert!(ended.stderr.contains(&reason), "{reason} in {}", ended.stderr);
    }
    let ended = config(here.path(), &["set", "limits.client.rat", "1/s"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("did you mean `rate`?"), "{ended:?}");
    let ended = config(here.path(), &["set", "limits.client.capacity", "0"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let ended = config(here.path(), &["--database", "none", "set", KEY, "1/s"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(!here.path().join("state").exists(), "nothing was written");
}

#[test]
fn printed_schema_matches_the_committed_file() {
    let here = tempfile::tempdir().unwrap();
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tidegate-config/tidegate.schema.json");
    let committed = fs::read_to_string(path).unwrap();
    succeeds(&run(here.path(), &["config", "schema"]), &committed);
}

#[test]
fn settings_can_be_shown_as_json() {
    let here = tempfile::tempdir().unwrap();
    let ended = config(here.path(), &["show", KEY, "--json"]);
    let shown: Value = serde_json::from_str(&ended.stdout).unwrap();
    let expected = serde_json::json!([{"key": KEY, "value": "50/s", "source": "default"}]);
    assert_eq!(shown, expected);
    fs::write(here.path().join("tidegate.toml"), "[limits.client]\nrate = \"40/s\"\n").unwrap();
    let ended = config(here.path(), &["show", KEY, "--json"]);
    let shown: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(shown[0]["value"], "40/s");
    assert_eq!(shown[0]["place"], "tidegate.toml:2:8");
}

/// A limit that needs two keys is invalid with one.
#[test]
fn dependent_keys_are_set_in_one_change() {
    let here = tempfile::tempdir().unwrap();
    let here = here.path();
    let team = ["limits.team.capacity", "20", "limits.team.rate", "10/s"];
    let alone = config(here, &["set", team[0], team[1]]);
    assert_eq!(alone.code, Some(2), "{alone:?}");
    let odd = config(here, &["set", team[0], team[1], team[2]]);
    assert_eq!(
        (odd.code, odd.stderr.contains("\"limits.team.rate\" has no value")),
        (Some(2), true)
    );
    assert!(!here.join("state/tidegate.db").exists(), "nothing was written");
    succeeds(&config(here, &[&["set"], &team[..]].concat()), "revision 1\n");
    let shown = shown(here, "limits.team", &[]).stdout;
    assert_eq!(shown.lines().filter(|line| line.contains("database")).count(), 2, "{shown}");
}

#[test]
fn section_filter_matches_whole_names() {
    let here = tempfile::tempdir().unwrap();
    let keys = |part: &str| shown(here.path(), part, &[]).stdout;
    assert!(keys("limits.client").contains(KEY));
    assert_eq!(keys("limits.clie").trim(), "");
}
