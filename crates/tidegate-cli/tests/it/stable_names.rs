//! Names that scripts, dashboards, clients and stored data rely on, compared with the committed
//! list `stable_names.txt`.
//!
//! All of them are read from the running program: flags from its help, configuration keys from its
//! schema, routes and fields from its responses, metrics from `/metrics`, stored formats from what
//! it wrote. A line that disappears from the list breaks somebody; a new line is added on purpose.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tidegate_sim::{Fault, Faults, Limits};
use tidegate_testkit::launch::{Flavor, RedisServer, Reply};

use crate::outbound::fixtures::{KEY, Provider, Sdk};
use crate::program::{Serving, run, serve};

const COMMITTED: &str = include_str!("stable_names.txt");

type Names = BTreeSet<String>;

/// Compares the lines of one kind with the committed ones.
#[track_caller]
fn check(kind: &str, found: &Names) {
    let committed: Names =
        COMMITTED.lines().filter(|line| line.starts_with(kind)).map(str::to_owned).collect();
    let missing: Vec<_> = committed.difference(found).collect();
    let added: Vec<_> = found.difference(&committed).collect();
    assert!(
        missing.is_empty() && added.is_empty(),
        "names that others rely on have changed; if a new one is meant, add it to \
         stable_names.txt\nmissing: {missing:#?}\nnot in the list: {added:#?}"
    );
}

#[test]
fn commands_and_flags() {
    let here = tempfile::tempdir().unwrap();
    let mut found = Names::new();
    let mut commands = vec![vec![]];
    while let Some(command) = commands.pop() {
        let help = run(here.path(), &[&command[..], &["--help"]].concat()).stdout;
        let name = ["tidegate"].iter().chain(&command).copied().collect::<Vec<_>>().join(" ");
        for line in section(&help, "Options:") {
            let flags = line.split([' ', ',']).filter(|word| word.starts_with("--"));
            found.extend(flags.take(1).map(|flag| format!("flag {name} {flag}")));
        }
        for line in section(&help, "Commands:") {
            let subcommand = line.split(' ').next().unwrap().to_owned();
            if subcommand != "help" {
                found.insert(format!("flag {name} {subcommand}"));
                let subcommand: &str = subcommand.leak();
                commands.push([&command[..], &[subcommand]].concat());
            }
        }
    }
    check("flag ", &found);
}

/// The entries of one section of a help text, without their indentation and continuation lines.
fn section<'h>(help: &'h str, title: &str) -> impl Iterator<Item = &'h str> {
    let lines = help.lines().skip_while(move |line| *line != title).skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    lines.filter(|line| !line.starts_with("          ")).map(str::trim_start)
}

#[test]
fn configuration_keys() {
    let here = tempfile::tempdir().unwrap();
    let schema = run(here.path(), &["config", "schema"]).stdout;
    let mut found = Names::new();
    collect_keys("", &serde_json::from_str(&schema).unwrap(), &mut found);
    check("key ", &found);
}

/// Collects the keys of a schema. Tables whose entries are named by the operator show as `*`.
fn collect_keys(path: &str, schema: &Value, found: &mut Names) {
    let mut nested = schema["properties"].as_object().into_iter().flatten().peekable();
    let others = &schema["additionalProperties"];
    if nested.peek().is_none() && !others.is_object() && !path.is_empty() {
        found.insert(format!("key {path}"));
    }
    let join = |name: &str| match path {
        "" => name.to_owned(),
        _ => format!("{path}.{name}"),
    };
    for (name, inner) in nested {
        collect_keys(&join(name), inner, found);
    }
    if others.is_object() {
        collect_keys(&join("*"), others, found);
    }
}

const REQUESTS: [(&str, &str); 14] = [
    ("/v1/take", r#"{"limit":"client","key":"a","receipt":true}"#),
    ("/v1/take", r#"{"limit":"client","key":"a","cost":101}"#),
    ("/v1/take", r#"{"charges":[{"limit":"client","key":"a","cost":101}]}"#),
    ("/v1/take", r#"{"limit":"clients","key":"a"}"#),
    ("/v1/peek", r#"{"limit":"client","key":"a"}"#),
    ("/v1/reserve", r#"{"limit":"client","key":"a","max_wait_ms":10}"#),
    ("/v1/settle", r#"{"limit":"client","key":"a","delta":1}"#),
    ("/v1/hold", r#"{"limit":"client","key":"a","for_ms":10}"#),
    ("/v1/reset", r#"{"limit":"client","key":"a"}"#),
    ("/v1/batch", r#"{"operations":[{"op":"take","limit":"client","key":"b"}]}"#),
    ("/v1/admit", r#"{"organization":"acme","client":"a"}"#),
    ("/v1/admit", r#"{"organization":"acme","client":"a","cost":1000}"#),
    ("/v1/acquire", r#"{"limit":"client","key":"c"}"#),
    ("/v1/release", r#"{"id":"unknown"}"#),
];

const ROUTES: [&str; 13] = [
    "/healthz",
    "/v1/acquire",
    "/v1/admit",
    "/v1/batch",
    "/v1/hold",
    "/v1/peek",
    "/v1/pending",
    "/v1/release",
    "/v1/renew",
    "/v1/reserve",
    "/v1/reset",
    "/v1/settle",
    "/v1/take",
];

const ADMIN_ROUTES: [&str; 10] = [
    "/admin/config",
    "/admin/events",
    "/admin/history",
    "/admin/keys/reset",
    "/admin/providers",
    "/admin/providers/openai",
    "/config",
    "/healthz",
    "/metrics",
    "/readyz",
];

#[test]
fn routes_and_fields() {
    let here = tempfile::tempdir().unwrap();
    let serving = Serving::start(&mut serve(here.path(), &[]));
    let mut found = Names::new();
    for (path, body) in REQUESTS {
        let (status, body) = serving.post(path, body);
        let body: Value = serde_json::from_str(&body).unwrap();
        collect_fields(&format!("{path} {status}"), &body, &mut found);
        found.extend(body["type"].as_str().map(|urn| format!("http problem {urn}")));
    }
    for (listener, url, routes) in
        [("http", &serving.url, &ROUTES[..]), ("admin", &serving.admin, &ADMIN_ROUTES)]
    {
        for path in routes {
            let request = ureq::delete(format!("{url}{path}")).config();
            let reply = request.http_status_as_error(false).build().call().unwrap();
            let allowed = reply.headers().get("allow").map(|value| value.to_str().unwrap());
            found.insert(format!("http route {listener} {path} {}", allowed.unwrap_or("none")));
        }
    }
    check("http ", &found);
}

fn collect_fields(path: &str, value: &Value, found: &mut Names) {
    for (name, value) in value.as_object().into_iter().flatten() {
        found.insert(format!("http field {path} {name}"));
        for item in value.as_array().into_iter().flatten() {
            collect_fields(&format!("{path} {name}[]"), item, found);
        }
    }
}

/// Labels whose values are names that the operator or the caller chose, numbers or versions.
const FREE_LABELS: [&str; 6] = ["le", "limit", "model", "provider", "tenant", "version"];

/// Calls that succeed, are retried, are throttled and fail, then everything that was counted.
#[test]
fn metrics_and_headers() {
    let here = tempfile::tempdir().unwrap();
    let faults = Faults::new().on_calls(2..=2, Fault::ServerError);
    let limits = Limits::new().requests_per_minute(60).tokens_per_minute(60_000);
    let account = Sdk::OPENAI.account().any_model(limits).faults(faults);
    let provider = Provider::start(account);
    let text = format!(
        "[providers.openai]\nbase_url = \"{}\"\nrequests_per_minute = 600\n\
         [providers.openai.models.gpt-5]\n",
        provider.url
    );
    fs::write(here.path().join("tidegate.toml"), text).unwrap();
    let serving = Serving::start(&mut serve(here.path(), &[]));
    let mut found = Names::new();
    for key in [KEY, KEY, KEY, "rejected-key"] {
        let call = json!({"model": "gpt-5", "messages": [{"role": "user", "content": "hello"}]});
        let request = ureq::post(format!("{}/openai/v1/chat/completions", serving.url));
        let request = request.header("authorization", format!("Bearer {key}"));
        let request = request.header("content-type", "application/json").config();
        let mut reply = request.http_status_as_error(false).build().send(call.to_string()).unwrap();
        reply.body_mut().read_to_string().unwrap();
        let names = reply.headers().keys().map(http::HeaderName::as_str);
        let ours = names.filter(|name| name.starts_with("x-tidegate-"));
        found.extend(ours.map(|name| format!("metric header {name}")));
    }
    for (path, body) in REQUESTS {
        serving.post(path, body);
    }
    serving.patch(&json!({"limits": {"client": {"capacity": 5}}}));
    let (status, text) = serving.ask("/metrics");
    assert_eq!(status, 200, "{text}");
    for line in text.lines() {
        match line.strip_prefix("# TYPE ") {
            Some(family) => _ = found.insert(format!("metric {family}")),
            None if line.starts_with('#') => {}
            None => collect_labels(line, &mut found),
        }
    }
    check("metric ", &found);
}

/// Collects the labels of a sample, with their values if the program chose them.
fn collect_labels(sample: &str, found: &mut Names) {
    let Some((name, labels)) = sample.split_once('{') else { return };
    let labels = labels.rsplit_once('}').unwrap().0;
    for label in labels.split("\",") {
        let (label, value) = label.split_once("=\"").unwrap();
        let value = value.trim_end_matches('"');
        let value = if FREE_LABELS.contains(&label) { "*" } else { value };
        found.insert(format!("metric {name} {label}={value}"));
    }
}

#[test]
fn stored_formats() {
    let here = tempfile::tempdir().unwrap();
    let limits = "[limits.client]\ncapacity = 100\nrate = \"1/h\"\n\
                  [limits.slots]\nconcurrency = 2\n\
                  [limits.daily]\nquota = 10\nevery = \"day\"\n";
    let with_snapshot = format!("[store]\nsnapshot = \"state/table.snapshot\"\n{limits}");
    fs::write(here.path().join("tidegate.toml"), with_snapshot).unwrap();
    let mut found = Names::new();

    let serving = Serving::start(&mut serve(here.path(), &[]));
    let (_, body) = serving.post("/v1/take", r#"{"limit":"client","key":"a","receipt":true}"#);
    let body: Value = serde_json::from_str(&body).unwrap();
    let receipt = body["receipt"].as_str().unwrap();
    found.insert(format!("stored receipt {}", first_byte(receipt)));
    let (status, body) = serving.patch(&json!({"limits": {"client": {"capacity": 50}}}));
    assert_eq!(status, 200, "{body}");
    assert_eq!(serving.stop("TERM").code, Some(0));
    for file in fs::read_dir(here.path().join("state")).unwrap() {
        let path = file.unwrap().path();
        found.insert(format!("stored file {}", path.file_name().unwrap().to_str().unwrap()));
        found.extend(formats_of(&path).into_iter().map(|format| format!("stored {format}")));
    }

    fs::write(here.path().join("tidegate.toml"), limits).unwrap();
    let server = RedisServer::builder(Flavor::Redis).start();
    let serving = Serving::start(&mut serve(here.path(), &["--store", &server.url()]));
    for (limit, key) in [("client", "alice"), ("slots", "alice"), ("daily", "alice")] {
        let body = json!({"limit": limit, "key": key}).to_string();
        assert_eq!(serving.post("/v1/take", &body).0, 200, "{limit}");
    }
    let body = r#"{"limit":"client","key":"held","for_ms":60000}"#;
    assert_eq!(serving.post("/v1/hold", body).0, 200);
    for key in redis_keys(&server) {
        found.insert(format!("stored redis {key}"));
    }
    check("stored ", &found);
}

/// The first byte of what a Base64 text encodes, in either of the two common alphabets.
fn first_byte(text: &str) -> u8 {
    let value = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' | b'-' => 62,
        _ => 63,
    };
    let text = text.as_bytes();
    value(text[0]) << 2 | value(text[1]) >> 4
}

/// The magic bytes and the format number of a snapshot, or the tables of a database.
fn formats_of(path: &Path) -> Vec<String> {
    let bytes = fs::read(path).unwrap();
    if bytes.starts_with(b"TIDESNAP") {
        let number = u32::from_le_bytes(bytes[8..12].try_into().unwrap());
        return vec![format!("snapshot TIDESNAP {number}")];
    }
    let text = String::from_utf8_lossy(&bytes);
    let tables = text.split("CREATE TABLE ").skip(1).filter_map(|table| table.split_once("STRICT"));
    let columns = |table: &str| table.split_whitespace().collect::<Vec<_>>().join(" ");
    tables.map(|(table, _)| format!("sqlite {}", columns(table))).collect()
}

/// The names of all keys and their types.
fn redis_keys(server: &RedisServer) -> Vec<String> {
    let keys = server.command(&["KEYS", "*"]).array().into_iter().map(Reply::text);
    keys.map(|key| format!("{} {key}", server.command(&["TYPE", &key]).text())).collect()
}
