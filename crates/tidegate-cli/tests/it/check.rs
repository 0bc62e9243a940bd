//! `check`, `--help`, `--version`, and usage errors.

use std::fs;

use crate::program::{end, run, tidegate};

#[test]
fn valid_file_is_ok() {
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("good.toml"), "[limits.client]\nrate = \"50/s\"\n").unwrap();
    let ended = run(here.path(), &["check", "good.toml"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "ok\n"), "{ended:?}");
}

/// Setting: listen.resp
#[test]
fn unused_keys_cause_warnings_and_the_file_is_ok() {
    let here = tempfile::tempdir().unwrap();
    let text = "[listen]\nresp = \"127.0.0.1:7000\"\n[providers.openai]\nmodel = \"gpt-4o\"\n\
                api_key_env = \"OPENAI_API_KEY\"\n";
    fs::write(here.path().join("good.toml"), text).unwrap();
    let mut command = tidegate(here.path(), &["check", "good.toml"]);
    let ended = end(command.env("OPENAI_API_KEY", "sk-test"));
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "ok\n"), "{ended:?}");
    let expected = "good.toml:2:8: listen.resp is accepted but not used by this version: there is \
                    no RESP listener\n\
                    good.toml:4:9: providers.openai.model is used by the library only: callers name \
                    the model in each request\n";
    assert_eq!(ended.stderr, expected);
}

#[test]
fn all_errors_of_an_invalid_file_are_reported() {
    let here = tempfile::tempdir().unwrap();
    let text = "[limits.client]\ncapacity = 0\nrate = \"50/s\"\n[stor]\n";
    fs::write(here.path().join("bad.toml"), text).unwrap();
    let expected = "bad.toml:2:12: limits.client.capacity = 0: Rate limit capacity must be >= 1\n\
                    bad.toml:4:2: stor: is not a known key; did you mean `store`?\n\
                    configuration rejected: 2 errors\n";
    for args in [&["check", "bad.toml"][..], &["serve", "--config", "bad.toml"]] {
        let ended = run(here.path(), args);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
        assert_eq!(ended.stderr, expected);
    }
    let ended = run(here.path(), &["check", "missing.toml"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.starts_with("missing.toml: No such file"), "{ended:?}");
}

#[test]
fn usage_errors_exit_with_code_two() {
    let here = tempfile::tempdir().unwrap();
    for args in [&[][..], &["srve"], &["serve", "--port", "1"], &["check"]] {
        assert_eq!(run(here.path(), args).code, Some(2), "{args:?}");
    }
    let ended = run(here.path(), &["serve", "--http", "8080", "--store", "redis+cluster://h"]);
    assert_eq!(ended.code, Some(2));
    let lines: Vec<_> = ended.stderr.lines().collect();
    assert!(
        lines[0].starts_with("--http: listen.http = \"8080\": must be an address"),
        "{ended:?}"
    );
    assert!(lines[1].starts_with("--store: store.url: redis+cluster stores are not supported"));
}

#[test]
fn help_and_version_are_printed() {
    let here = tempfile::tempdir().unwrap();
    let ended = run(here.path(), &["--version"]);
    assert_eq!(ended.stdout, format!("tidegate {}\n", env!("CARGO_PKG_VERSION")));
    let ended = run(here.path(), &["--help"]);
    assert_eq!(ended.code, Some(0));
    assert!(ended.stdout.contains("tidegate serve --config tidegate.toml"), "{}", ended.stdout);
    let ended = run(here.path(), &["serve", "--help"]);
    assert!(ended.stdout.contains("--http <ADDR>") && ended.stdout.contains("curl"));
    assert!(!ended.stdout.contains("--resp"), "flags without effect are not listed");
}
