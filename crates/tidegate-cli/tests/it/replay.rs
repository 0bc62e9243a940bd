//! `simulate` and `suggest` on generated logs of known answer.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

use crate::output::is_listed;
use crate::program::{Ended, end, program, run, tidegate};

/// The example of docs/simulate.md.
const GUIDE: &str = include_str!("../../../../docs/simulate.md");
/// One request of each of two clients per second for a minute, and 40 of a third in one second.
/// With a capacity of 10 and 1/s, 30 are denied.
const POLICY: &str = "client:capacity=10,rate=1/s";

/// Seconds after the start and the client of every request.
fn requests() -> Vec<(u64, &'static str)> {
    let steady = (0..60).flat_map(|second| [(second, "192.0.2.1"), (second, "192.0.2.2")]);
    let mut requests: Vec<_> = steady.chain((0..40).map(|_| (30, "2001:db8::3"))).collect();
    requests.sort_by_key(|&(second, _)| second);
    requests
}

fn combined() -> String {
    let mut log = String::new();
    for (second, client) in requests() {
        let time = format!("29/Feb/2024:23:59:{second:02} +0100");
        let line = "\"GET /search?q=a HTTP/1.1\" 200 512 \"-\" \"curl/8.5\"";
        writeln!(log, "{client} - - [{time}] {line}").unwrap();
    }
    log
}

fn json_lines() -> String {
    let line = |(second, client)| {
        format!(
            "{{\"@timestamp\":\"2024-02-29T22:59:{second:02}.000Z\",\"request\":{{\"client_ip\":\"{client}\"}}}}\n"
        )
    };
    requests().into_iter().map(line).collect()
}

fn csv() -> String {
    let line = |(second, client)| format!("{}000,{client}\n", 1_709_247_540 + second);
    requests().into_iter().map(line).collect()
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn simulated(directory: &Path, args: &[&str]) -> Value {
    let ended = run(directory, &[&["simulate", "--json"], args].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    serde_json::from_str(&ended.stdout).unwrap()
}

#[test]
fn every_format_gives_the_same_answer() {
    let here = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(here.path().join(name), bytes).unwrap();
    write("access.log", combined().as_bytes());
    write("calls.json", json_lines().as_bytes());
    write("calls.csv", csv().as_bytes());
    write("access.log.gz", &gzip(&combined()));
    for log in ["access.log", "calls.json", "calls.csv", "access.log.gz"] {
        let report = simulated(here.path(), &["--log", log, "--policy", POLICY]);
        assert_eq!(report["format"], 1);
        let (of_log, policy) = (&report["log"], &report["policies"][0]);
        assert_eq!((&of_log["requests"], &of_log["keys"]), (&160.into(), &3.into()), "{log}");
        assert_eq!(of_log["first"], "2024-02-29T22:59:00.000Z", "{log}");
        assert_eq!(of_log["span_ms"], 59_000, "{log}");
        assert_eq!((&policy["admitted"], &policy["denied"]), (&130.into(), &30.into()), "{log}");
        assert_eq!((&policy["denied_percent"], &policy["keys_denied"]), (&18.75.into(), &1.into()));
        assert_eq!(policy["retry"]["max_ms"], 1_000);
        let top = &policy["top_denied"][0];
        assert_eq!((&top["key"], &top["denied"]), (&"2001:db8::3".into(), &30.into()));
    }
}

#[test]
fn standard_input_and_several_logs_are_read_in_order() {
    let here = tempfile::tempdir().unwrap();
    let log = combined();
    let (old, new) = log.split_at(log.match_indices('\n').nth(70).unwrap().0 + 1);
    fs::write(here.path().join("old.gz"), gzip(old)).unwrap();
    let args = ["simulate", "--json", "--log", "old.gz", "--log", "-", "--policy", POLICY];
    let mut command = tidegate(here.path(), &args);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(new.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["log"]["out_of_order_lines"], 0);
    assert_eq!(report["policies"][0]["denied"], 30);
}

#[test]
fn callers_that_wait_are_not_denied() {
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("x.log"), combined()).unwrap();
    let args = ["--log", "x.log", "--policy", POLICY, "--wait", "20s"];
    let report = simulated(here.path(), &args);
    let policy = &report["policies"][0];
    assert_eq!((&policy["denied"], &policy["waits"]["count"]), (&10.into(), &20.into()));
    assert_eq!(policy["waits"]["max_ms"], 20_000);
}

#[test]
fn a_search_finds_the_smallest_capacity() {
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("x.log"), combined()).unwrap();
    let args = ["--log", "x.log", "--search", "--deny-below", "5%", "--html", "x.html"];
    let report = simulated(here.path(), &args);
    is_listed("tidegate simulate", &report);
    let search = &report["search"];
    assert_eq!((&search["deny_below"], &search["by"]), (&"5%".into(), &"requests".into()));
    // Less than 8 of 160 may be denied: at 70/min and above, 33 of the 40 have to fit at once.
    let frontier = search["frontier"].as_array().unwrap();
    let at = |rate: &str| frontier.iter().find(|it| it["rate"] == rate).unwrap();
    assert_eq!((&at("70/min")["capacity"], &at("70/min")["denied"]), (&33.into(), &7.into()));
    assert_eq!(at("70/min")["denies_nothing"], 40);
    let spendable = |it: &Value| it["spendable_in_a_minute"].as_u64().unwrap();
    let least = frontier.iter().map(spendable).min().unwrap();
    let best = usize::try_from(search["best"].as_u64().unwrap()).unwrap();
    assert_eq!(spendable(&frontier[best]), least);
    let html = fs::read_to_string(here.path().join("x.html")).unwrap();
    assert!(html.contains("Smallest capacity that denies less than 5%"), "{html}");
    // The pair that was found, replayed by itself, denies as many.
    let policy = format!("capacity={},rate={}", frontier[best]["capacity"], frontier[best]["rate"]);
    let policy = policy.replace('"', "");
    let replayed = simulated(here.path(), &["--log", "x.log", "--policy", &policy]);
    assert_eq!(replayed["policies"][0]["denied"], frontier[best]["denied"]);
}

#[test]
fn limits_of_a_configuration_are_replayed() {
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("x.log"), combined()).unwrap();
    let config = "[limits.client]\ncapacity = 10\nrate = \"1/s\"\n\
                  [limits.daily]\nquota = 5\nevery = \"day\"\n\
                  [limits.strict]\nstrict = \"10/min\"\n";
    fs::write(here.path().join("t.toml"), config).unwrap();
    let args = ["simulate", "--json", "--log", "x.log", "--config", "t.toml"];
    let ended = run(here.path(), &args);
    assert_eq!(ended.stderr, "limits.daily is not a token bucket; it is not replayed\n");
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let names: Vec<_> =
        report["policies"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["client", "strict"]);
    assert_eq!(report["policies"][0]["denied"], 30);
}

#[test]
fn invalid_lines_are_reported_and_too_many_are_an_error() {
    let here = tempfile::tempdir().unwrap();
    let log = format!("--- rotated ---\n{}\n1,2\n", combined());
    fs::write(here.path().join("x.log"), log).unwrap();
    let args = ["simulate", "--log", "x.log", "--policy", POLICY];
    let ended = run(here.path(), &args);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let why = "is not in the common or combined log format: no `[time] \"request\"`\n";
    assert_eq!(ended.stderr, format!("x.log:1: {why}x.log:163: {why}"));
    assert!(ended.stdout.contains("2 of 162 lines cannot be read\n"), "{ended:?}");

    let failed = |log: &str, args: &[&str]| {
        fs::write(here.path().join("bad.log"), log).unwrap();
        let ended = run(here.path(), &[&["simulate", "--log", "bad.log"], args].concat());
        assert_eq!(ended.stdout, "", "{ended:?}");
        (ended.code, ended.stderr)
    };
    let (code, text) = failed("a\nb\n", &["--policy", POLICY, "--format", "json"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("bad.log:1: is not a JSON object\n"), "{text}");
    assert!(text.contains("2 of 2 lines cannot be read, which is more than half"), "{text}");
    let (code, text) = failed("\n\n", &["--policy", POLICY]);
    assert_eq!((code, &*text), (Some(1), "the log has no lines; nothing can be replayed\n"));
    let (code, text) = failed("hello\n", &["--policy", POLICY]);
    assert!(code == Some(1) && text.contains("the format is not recognized"), "{text}");
    let (code, text) = failed(&combined(), &["--policy", POLICY, "--key", "ip"]);
    assert!(code == Some(2) && text.contains("use address, user, path or method"), "{text}");
    let (code, text) = failed(&combined(), &["--policy", "capacity=5"]);
    assert!(code == Some(2) && text.contains("there is no rate"), "{text}");
    let (code, text) = failed(&combined(), &[]);
    assert!(code == Some(2) && text.contains("--policy"), "{text}");
    let (code, text) = failed(&combined(), &["--policy", POLICY, "--wait", "2h"]);
    assert!(code == Some(2) && text.contains("at most 1h"), "{text}");
}

#[test]
fn reports_contain_no_markup_and_no_control_characters_of_a_log() {
    let here = tempfile::tempdir().unwrap();
    let line = |user: &str, path: &str| {
        format!("::1 - {user} [29/Feb/2024:23:59:00 +0000] \"GET {path} HTTP/1.1\" 200 1\n")
    };
    let evil = line("<script>alert(1)</script>", "/<img/src=x/onerror=alert(2)>\u{1b}[2J");
    fs::write(here.path().join("x.log"), evil.repeat(3)).unwrap();
    for key in ["user", "path"] {
        let args = ["simulate", "--log", "x.log", "--policy", "a:capacity=1,rate=1/s"];
        let ended = run(here.path(), &[&args[..], &["--key", key, "--html", "x.html"]].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(!ended.stdout.contains('\u{1b}'), "{ended:?}");
        let html = fs::read_to_string(here.path().join("x.html")).unwrap();
        assert!(html.contains("alert("), "{html}");
        assert!(!html.contains("<script") && !html.contains("<img"), "{html}");
        assert!(!html.contains('\u{1b}'), "{html}");
    }
}

#[test]
fn a_suggestion_is_a_valid_configuration() {
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("x.log"), combined()).unwrap();
    let ended = run(here.path(), &["suggest", "--log", "x.log"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    // Two clients make 60 requests in their minute, one 40 at once; 1/s and a burst of 40 at most.
    let limit = "[limits.client]\ncapacity = 60\nrate = \"90/min\"\n";
    assert!(ended.stdout.ends_with(limit), "{ended:?}");
    fs::write(here.path().join("t.toml"), &ended.stdout).unwrap();
    assert_eq!(run(here.path(), &["check", "t.toml"]).stdout, "ok\n");

    let ended = run(here.path(), &["suggest", "--json", "--log", "x.log"]);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((&report["format"], &report["recommended"]), (&1.into(), &"p99+50%".into()));
    is_listed("tidegate suggest", &report);
    assert_eq!(report["configuration"], limit);
    let choices = report["choices"].as_array().unwrap();
    let numbers = choices
        .iter()
        .map(|it| (it["name"].as_str().unwrap(), it["capacity"].as_u64(), it["denied"].as_u64()));
    let expected = [
        ("p50", Some(1), Some(39)),
        ("p90", Some(40), Some(0)),
        ("p99", Some(40), Some(0)),
        ("p99+50%", Some(60), Some(0)),
        ("max", Some(40), Some(0)),
    ];
    assert_eq!(numbers.collect::<Vec<_>>(), expected);
}

/// The commands of the guide run as written, and print what the guide says.
#[test]
fn the_guide_is_true() {
    let here = tempfile::tempdir().unwrap();
    let block = |language: &str, index: usize| {
        let open = format!("```{language}\n");
        GUIDE.split(&open).nth(index + 1).unwrap().split("```").next().unwrap()
    };
    fs::write(here.path().join("calls.csv"), block("csv", 0)).unwrap();
    for (index, output) in ["text", "toml"].into_iter().enumerate() {
        let shell = block("sh", index).replacen("tidegate", "\"$TIDEGATE\"", 1);
        let mut command = std::process::Command::new("/bin/sh");
        command.args(["-c", &shell]).current_dir(here.path()).env_clear();
        let ended: Ended = end(command.env("TIDEGATE", program()));
        assert_eq!((ended.code, &*ended.stdout), (Some(0), block(output, 0)), "{ended:?}");
    }
}
