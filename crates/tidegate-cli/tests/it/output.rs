//! The forms of output that all commands share: JSON, colours, and completion scripts.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::program::{Ended, end, run, tidegate};

/// The page that lists the fields.
const PAGE: &str = include_str!("../../../../docs/command-line.md");

/// Checks that the page lists exactly the fields of a document.
#[track_caller]
pub(crate) fn is_listed(command: &str, document: &Value) {
    let row = PAGE.lines().find(|line| line.starts_with("| `") && line.contains(command));
    let row = row.unwrap_or_else(|| panic!("{command} is not listed"));
    let mut listed: Vec<_> = row.split('`').skip(1).step_by(2).collect();
    listed.retain(|name| !name.contains(' ') && !name.starts_with("--"));
    let mut found = fields(document);
    found.retain(|field| *field != "format");
    listed.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, listed, "{command}");
}

/// Runs a command and returns its JSON document.
fn document(here: &Path, args: &[&str]) -> Value {
    let ended = run(here, args);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{args:?}: {ended:?}");
    parsed(&ended)
}

fn parsed(ended: &Ended) -> Value {
    let document: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(document["format"], 1, "{document}");
    document
}

fn fields(document: &Value) -> Vec<&str> {
    document.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn every_result_is_available_as_json() {
    let here = tempfile::tempdir().unwrap();
    let here = here.path();
    let state = ["--state-dir", "state", "--json"];
    let with_state = |args: &[&str]| document(here, &[args, &state].concat());

    let version = document(here, &["version", "--json"]);
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    is_listed("tidegate version", &version);
    is_listed("tidegate demo", &document(here, &["demo", "--fast", "--json"]));
    let key = document(here, &["key", "--json"]);
    assert!(key["hash"].as_str().unwrap().starts_with("sha256:"), "{key}");
    is_listed("tidegate key", &key);
    let migrated = with_state(&["db", "migrate"]);
    assert_eq!((&migrated["from"], &migrated["backup"]), (&Value::Null, &Value::Null));
    let again = with_state(&["db", "migrate"]);
    is_listed("tidegate db migrate", &again);
    assert_eq!((&again["from"], &again["to"]), (&migrated["to"], &migrated["to"]), "{again}");

    let set = with_state(&["config", "set", "limits.client.rate", "20/s"]);
    assert_eq!(set, json!({"format": 1, "revision": 1}));
    let unset = with_state(&["config", "unset", "limits.client.rate"]);
    assert_eq!(unset, json!({"format": 1, "revision": 2}));
    let history = with_state(&["config", "history"]);
    is_listed("tidegate config set", &unset);
    is_listed("tidegate config history", &history);
    let changes = history["changes"].as_array().unwrap();
    assert_eq!(changes.len(), 2, "{history}");
    assert_eq!(fields(&changes[0]), ["at_ms", "door", "key", "new", "old", "revision"]);
    assert_eq!((&changes[1]["new"], &changes[1]["old"]), (&"20/s".into(), &Value::Null));
}

#[test]
fn check_reports_each_error_with_its_place() {
    let here = tempfile::tempdir().unwrap();
    let here = here.path();
    let text = "[limits.client]\ncapacity = 0\nrate = \"50/s\"\n[stor]\n";
    fs::write(here.join("bad.toml"), text).unwrap();
    let mut command = tidegate(here, &["check", "bad.toml", "--json"]);
    let ended = end(command.env("TIDEGATE_STORE_MAX_MEMORY", "much"));
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(2), ""), "{ended:?}");
    let report = parsed(&ended);
    assert_eq!((&report["valid"], report["errors"].as_array().unwrap().len()), (&false.into(), 3));
    let of = |key: &str| {
        let mut errors = report["errors"].as_array().unwrap().iter();
        errors.find(|error| error["key"] == key).unwrap_or_else(|| panic!("{key}: {report}"))
    };
    assert_eq!(
        of("limits.client.capacity"),
        &json!({
            "file": "bad.toml", "line": 2, "column": 12, "variable": null,
            "key": "limits.client.capacity",
            "text": "limits.client.capacity = 0: Rate limit capacity must be >= 1",
        })
    );
    assert_eq!((&of("stor")["line"], &of("stor")["column"]), (&4.into(), &2.into()));
    let memory = of("store.max_memory");
    assert_eq!(memory["variable"], "TIDEGATE_STORE_MAX_MEMORY", "{memory}");
    assert_eq!(memory["file"], Value::Null);

    let ended = run(here, &["check", "missing.toml", "--json"]);
    let report = parsed(&ended);
    assert_eq!((ended.code, &report["errors"][0]["file"]), (Some(2), &"missing.toml".into()));
}

#[test]
fn check_reports_warnings_and_providers() {
    let here = tempfile::tempdir().unwrap();
    let here = here.path();
    let text = "[listen]\nresp = \"127.0.0.1:7000\"\n";
    fs::write(here.join("good.toml"), text).unwrap();
    let report = document(here, &["check", "good.toml", "--json"]);
    assert_eq!((&report["valid"], &report["errors"]), (&true.into(), &json!([])), "{report}");
    assert!(report["warnings"][0].as_str().unwrap().starts_with("good.toml:2:8: "), "{report}");
    assert_eq!(fields(&report), ["errors", "format", "valid", "warnings"]);

    // A port that nothing listens on.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = format!("[providers.openai]\nbase_url = \"http://{closed}\"\n");
    fs::write(here.join("good.toml"), text).unwrap();
    let ended = run(here, &["check", "good.toml", "--json", "--strict"]);
    assert_eq!((ended.code, ended.stderr.contains("cannot be reached")), (Some(1), false));
    let report = parsed(&ended);
    let provider = &report["providers"][0];
    assert_eq!((&provider["provider"], &provider["reached"]), (&"openai".into(), &false.into()));
    is_listed("tidegate check", &report);
    assert!(provider["error"].is_string() && report["valid"] == true, "{report}");
}

#[test]
fn escape_codes_are_for_terminals() {
    let here = tempfile::tempdir().unwrap();
    let here = here.path();
    let codes = |args: &[&str], environment: &[(&str, &str)]| {
        let ended = end(tidegate(here, args).envs(environment.iter().copied()));
        ended.stdout.contains('\u{1b}') || ended.stderr.contains('\u{1b}')
    };
    let force = ("CLICOLOR_FORCE", "1");
    let commands: [&[&str]; 5] =
        [&["--help"], &["serve", "--help"], &["srve"], &["demo", "--fast"], &["config", "show"]];
    for args in commands {
        assert!(!codes(args, &[]), "{args:?}");
    }
    for args in [&["--help"][..], &["srve"]] {
        assert!(codes(args, &[force]), "{args:?}");
        assert!(!codes(args, &[force, ("NO_COLOR", "1")]), "{args:?}");
    }
    // A log line: the address is not of this machine.
    let serve: [&str; 5] = ["serve", "--database", "none", "--http", "192.0.2.1:1"];
    let log = [("TIDEGATE_LIMITS_CLIENT_CAPACITY", "1"), ("TIDEGATE_LISTEN_RESP", "127.0.0.1:1")];
    assert!(!codes(&serve, &log));
    assert!(codes(&serve, &[&log[..], &[force]].concat()));
}

#[test]
fn completion_scripts_are_for_each_shell() {
    let here = tempfile::tempdir().unwrap();
    for (shell, part) in [
        ("bash", "complete -F _tidegate"),
        ("zsh", "#compdef tidegate"),
        ("fish", "complete -c tidegate"),
        ("powershell", "Register-ArgumentCompleter"),
        ("elvish", "edit:completion:arg-completer[tidegate]"),
    ] {
        let ended = run(here.path(), &["completions", shell]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{shell}: {ended:?}");
        assert!(ended.stdout.contains(part), "{shell}");
        assert!(ended.stdout.contains("demo") && ended.stdout.contains("strict"), "{shell}");
    }
    assert_eq!(run(here.path(), &["completions", "tcsh"]).code, Some(2));
}

/// bash reads the script, knows the command, and completes a subcommand and a flag.
#[test]
fn bash_completes_with_the_script() {
    let here = tempfile::tempdir().unwrap();
    let script = run(here.path(), &["completions", "bash"]).stdout;
    fs::write(here.path().join("tidegate.bash"), script).unwrap();
    let bash = |args: &[&str]| {
        let mut command = Command::new("bash");
        command.current_dir(here.path()).args(args).stdin(Stdio::null());
        end(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    };
    let read = bash(&["-n", "tidegate.bash"]);
    assert_eq!((read.code, read.stderr.as_str()), (Some(0), ""), "{read:?}");
    let complete = |words: &str| {
        let script = format!(
            "source ./tidegate.bash; complete -p tidegate; COMP_WORDS=({words}); \
             COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _tidegate tidegate \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; \
             echo \"${{COMPREPLY[@]}}\""
        );
        let ended = bash(&["--norc", "-c", &script]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
        ended.stdout
    };
    let commands = complete("tidegate comp");
    assert!(commands.contains("-F _tidegate tidegate\n"), "{commands}");
    assert!(commands.ends_with("\ncompletions\n"), "{commands}");
    assert!(complete("tidegate demo --fa").ends_with("--fast\n"));
}
