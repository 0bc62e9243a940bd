//! `demo`: the numbers of a run in virtual time, and its end by a signal.

use std::io::{BufRead as _, BufReader};
use std::process::Command;

use serde_json::Value;

use crate::program::{Ended, run, tidegate};

/// Runs the demo in virtual time and returns its JSON.
fn measured(seed: &str) -> Value {
    let here = tempfile::tempdir().unwrap();
    let ended = run(here.path(), &["demo", "--fast", "--json", "--seed", seed]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stderr, "", "programs get nothing but the document");
    serde_json::from_str(&ended.stdout).unwrap()
}

fn number(run: &Value, field: &str) -> f64 {
    run[field].as_f64().unwrap_or_else(|| panic!("{field}: {run}"))
}

#[test]
fn agents_see_429s_directly_and_none_through_the_gateway() {
    for seed in ["1", "2", "3"] {
        let shown = measured(seed);
        assert_eq!((&shown["format"], &shown["virtual_time"]), (&1.into(), &true.into()));
        let (direct, gateway) = (&shown["direct"], &shown["gateway"]);
        let all = number(&shown, "calls");
        assert!(number(direct, "throttled_at_clients") > 100.0, "{shown}");
        assert!(number(direct, "calls_failed") > 10.0, "{shown}");
        assert_eq!(number(gateway, "throttled_at_clients"), 0.0, "{shown}");
        assert_eq!(number(gateway, "calls_failed"), 0.0, "{shown}");
        assert_eq!(number(gateway, "calls_answered"), all, "{shown}");
        assert_eq!(gateway["tasks_finished"], shown["tasks"], "{shown}");
        assert!(number(gateway, "quota_used") > 0.9, "{shown}");
        let ratio = number(gateway, "seconds") / number(gateway, "shortest_seconds");
        assert!((1.0..1.1).contains(&ratio), "{shown}");
        for run in [direct, gateway] {
            let ends = number(run, "calls_answered") + number(run, "calls_failed");
            assert_eq!(number(run, "calls_made"), ends, "{shown}");
            assert!(number(run, "seconds") >= number(run, "shortest_seconds"), "{shown}");
        }
    }
}

#[test]
fn one_seed_gives_the_same_numbers() {
    assert_eq!(measured("7"), measured("7"));
    assert_ne!(measured("7")["direct"], measured("8")["direct"]);
}

#[test]
fn standard_output_has_one_table() {
    let here = tempfile::tempdir().unwrap();
    let ended = run(here.path(), &["demo", "--fast"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert_eq!(lines.len(), 11, "{ended:?}");
    let seen = lines.iter().find(|line| line.starts_with("429s seen by clients")).unwrap();
    assert!(seen.ends_with(" 0"), "{seen}");
    assert!(ended.stderr.contains("40 agents"), "{ended:?}");
    assert_eq!(here.path().read_dir().unwrap().count(), 0, "no file is written");
}

/// In real time, with sockets.
#[test]
fn a_signal_ends_it_without_a_result() {
    let here = tempfile::tempdir().unwrap();
    for signal in ["INT", "TERM"] {
        let mut child = tidegate(here.path(), &["demo"]).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        // The introduction, then a line about the agents: they work.
        for _ in 0..2 {
            line.clear();
            stderr.read_line(&mut line).unwrap();
        }
        assert!(line.starts_with("direct: ") && line.contains("429s"), "{line}");
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
        let ended = child.wait_with_output().unwrap();
        let rest: String = stderr.lines().map(Result::unwrap).collect();
        let ended = Ended {
            code: ended.status.code(),
            stdout: String::from_utf8(ended.stdout).unwrap(),
            stderr: rest,
        };
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended:?}");
        assert!(
            ended.stderr.ends_with("interrupted before the end; there is no result"),
            "{ended:?}"
        );
    }
}
