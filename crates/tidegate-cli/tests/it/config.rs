//! `config`: where settings come from, and how those of the database are changed.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::program::{Ended, Serving, end, run, serve, tidegate};

const KEY: &str = "limits.client.rate";
const VARIABLE: &str = "TIDEGATE_LIMITS_CLIENT_RATE";

/// `config` with its files below the directory.
fn config(directory: &Path, args: &[&str]) -> Ended {
    run(directory, &[&["config", "--state-dir", "state"], args].concat())
}

/// What `config show` prints of a key with this environment.
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

/// R355 and R364: the order is always the same one.
#[test]
fn every_level_wins_in_turn() {
    let here = tempfile::tempdir().unwrap();
    let here = here.path();
    let is = |environment: &[(&str, &str)], line: &str| {
        assert_eq!(shown(here, KEY, environment).stdout, format!("{KEY}  {line}\n"));
    };
    is(&[], r#""50/s"  default"#);
    fs::write(here.join("tidegate.toml"), "[limits.client]\nrate = \"40/s\"\n").unwrap();
    // A file that has limits has all of them: those of the defaults are there to try.
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

/// What has a flag never comes from the database, so the flag is over the environment.
#[test]
fn a_flag_wins_over_all_others() {
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
fn whoever_is_hidden_by_the_database_is_told_at_start() {
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

/// A server that runs takes over what is set beside it.
#[test]
fn a_change_reaches_a_server_that_runs_and_is_remembered() {
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
fn what_says_where_and_who_never_comes_from_the_database() {
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
fn the_schema_is_the_one_that_is_published() {
    let here = tempfile::tempdir().unwrap();
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tidegate-config/tidegate.schema.json");
    let committed = fs::read_to_string(path).unwrap();
    succeeds(&run(here.path(), &["config", "schema"]), &committed);
}

#[test]
fn settings_as_json_are_for_programs() {
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

/// A limit of two keys is none while it has one.
#[test]
fn keys_that_need_each_other_are_set_in_one_change() {
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
fn a_part_is_shown_by_its_section_and_not_by_its_letters() {
    let here = tempfile::tempdir().unwrap();
    let keys = |part: &str| shown(here.path(), part, &[]).stdout;
    assert!(keys("limits.client").contains(KEY));
    assert_eq!(keys("limits.clie").trim(), "");
}
