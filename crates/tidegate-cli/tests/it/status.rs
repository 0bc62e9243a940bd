//! `status`: against a running server, one that is not ready, and none.

use std::fs;
use std::net::TcpListener;

use serde_json::Value;
use tidegate_sim::Limits;

use crate::outbound::fixtures::{KEY, Provider, Sdk};
use crate::output::is_listed;
use crate::program::{Ended, Serving, end, run, serve, tidegate};

const TOKEN: &str = "TIDEGATE_ADMIN_TOKEN";

fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// Starts a server in front of a provider that was called once.
fn called(folder: &std::path::Path) -> (Provider, Serving) {
    let provider = Provider::start(Sdk::OPENAI.account().any_model(Limits::new()));
    let text = format!(
        "[limits.api]\ncapacity = 2\nrate = \"1/day\"\n[providers.openai]\nbase_url = \"{}\"\n\
         requests_per_minute = 10\nmodel = \"unused\"\n",
        provider.url
    );
    fs::write(folder.join("tidegate.toml"), text).unwrap();
    let serving = Serving::start(&mut serve(folder, &[]));
    let body = r#"{"model":"gpt-5","messages":[{"role":"user","content":"hello"}]}"#;
    let request = ureq::post(format!("{}/openai/v1/chat/completions", serving.url));
    let request = request.header("authorization", format!("Bearer {KEY}"));
    let mut reply = request.header("content-type", "application/json").send(body).unwrap();
    reply.body_mut().read_to_string().unwrap();
    for _ in 0..3 {
        serving.post("/v1/take", r#"{"limit":"api","key":"a"}"#);
    }
    (provider, serving)
}

#[test]
fn everything_is_on_one_screen() {
    let here = tempfile::tempdir().unwrap();
    let (_provider, serving) = called(here.path());
    let ended = run(here.path(), &["status", "--admin", &serving.admin]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    let has = |part: &str| assert!(ended.stdout.contains(part), "{part}: {}", ended.stdout);
    has(&format!("tidegate {} at {}: ready, up ", env!("CARGO_PKG_VERSION"), serving.admin));
    has(&format!("http {}", serving.url.trim_start_matches("http://")));
    has("store: memory:, ok, ");
    let row = |name: &str| {
        let row = ended.stdout.lines().find(|line| line.split(' ').next() == Some(name));
        row.unwrap_or_else(|| panic!("{name}: {}", ended.stdout)).split_whitespace()
    };
    assert_eq!(row("api").collect::<Vec<_>>(), ["api", "2", "1", "0"]);
    assert_eq!(row("openai").nth(1), Some("0"), "no call waits");
    has("requests 10 %");
    has("warning: tidegate.toml");
    has("idle providers: ");
    assert!(ended.stdout.lines().count() < 25, "{}", ended.stdout);
}

#[test]
fn nothing_is_printed_for_a_health_check_that_passes() {
    let here = tempfile::tempdir().unwrap();
    let serving = Serving::start(&mut serve(here.path(), &[]));
    let quiet = ["status", "--quiet", "--admin", &serving.admin];
    let ended = run(here.path(), &quiet);
    assert_eq!((ended.code, &*ended.stdout, &*ended.stderr), (Some(0), "", ""), "{ended:?}");
    let ended = run(here.path(), &[&quiet[..], &["--json"]].concat());
    assert_eq!(ended.code, Some(2), "{ended:?}");
}

#[test]
fn json_has_the_same() {
    let here = tempfile::tempdir().unwrap();
    let (_provider, serving) = called(here.path());
    let ended = run(here.path(), &["status", "--json", "--admin", &serving.admin]);
    let shown = json(&ended);
    assert_eq!((number(&shown["format"]), shown["status"].as_str()), (1, Some("ready")));
    is_listed("tidegate status", &shown);
    assert_eq!(shown["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(shown["listeners"]["admin"], serving.admin.trim_start_matches("http://"));
    assert_eq!(
        (&shown["store"]["url"], &shown["store"]["degraded"]),
        (&"memory:".into(), &false.into())
    );
    let limit = &shown["limits"][0];
    assert_eq!((number(&limit["allowed"]), number(&limit["denied"])), (2, 1), "{shown}");
    let openai = shown["providers"].as_array().unwrap().iter().find(|it| it["name"] == "openai");
    let openai = openai.unwrap();
    assert_eq!((number(&openai["waiting"]), number(&openai["in_flight"])), (0, 0));
    assert_eq!(openai["breaker"], "closed");
    assert!(openai["quota_used"]["requests"].as_f64().unwrap() > 0.0, "{openai}");
    assert!(shown["warnings"][0].as_str().unwrap().contains("providers.openai.model"), "{shown}");
}

#[test]
fn the_address_is_that_of_the_configuration() {
    let here = tempfile::tempdir().unwrap();
    let serving = Serving::start(&mut serve(here.path(), &[]));
    let admin = serving.admin.trim_start_matches("http://");
    fs::write(here.path().join("tidegate.toml"), format!("[listen]\nadmin = \"{admin}\"\n"))
        .unwrap();
    let ended = run(here.path(), &["status"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains(admin), "{ended:?}");
}

#[test]
fn without_a_server_the_error_says_what_to_do() {
    let here = tempfile::tempdir().unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let ended = run(here.path(), &["status", "--admin", &closed]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended:?}");
    assert!(ended.stderr.starts_with(&format!("no server answers at http://{closed}: ")));
    assert!(ended.stderr.contains("`tidegate serve`") && ended.stderr.contains("--admin"));
    for wrong in ["https://127.0.0.1:1", "nonsense"] {
        let ended = run(here.path(), &["status", "--admin", wrong]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
        assert!(ended.stderr.starts_with("--admin: "), "{ended:?}");
    }
}

#[test]
fn a_listener_of_another_kind_is_an_error() {
    let here = tempfile::tempdir().unwrap();
    let serving = Serving::start(&mut serve(here.path(), &[]));
    // The HTTP API has no /readyz.
    let ended = run(here.path(), &["status", "--admin", &serving.url]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended:?}");
    assert!(ended.stderr.contains("/readyz answered with status 404"), "{ended:?}");
}

#[test]
fn the_token_is_sent_and_never_shown() {
    let here = tempfile::tempdir().unwrap();
    let created = json(&run(here.path(), &["key", "--json"]));
    let (token, hash) = (created["token"].as_str().unwrap(), created["hash"].as_str().unwrap());
    let text = format!("[admin]\nread_tokens = [\"{hash}\"]\n");
    fs::write(here.path().join("tidegate.toml"), text).unwrap();
    let serving = Serving::start(&mut serve(here.path(), &[]));
    let ask = |token: Option<&str>| {
        let mut command = tidegate(here.path(), &["status", "--admin", &serving.admin]);
        end(command.envs(token.map(|token| (TOKEN, token))))
    };
    let ended = run(here.path(), &["status", "--quiet", "--admin", &serving.admin]);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "readiness needs no token: {ended:?}");
    let ended = ask(None);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("needs a token: set TIDEGATE_ADMIN_TOKEN"), "{ended:?}");
    let ended = ask(Some("a-wrong-token"));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("does not know the token in TIDEGATE_ADMIN_TOKEN"), "{ended:?}");
    assert!(!ended.stderr.contains("a-wrong-token"), "{ended:?}");
    let ended = ask(Some(token));
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    assert!(!ended.stdout.contains(token), "{ended:?}");
}

/// A limit that denies while its store is down makes the server not ready.
#[test]
fn a_server_that_is_not_ready_is_shown_and_a_failure() {
    let here = tempfile::tempdir().unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = "[limits.api]\ncapacity = 2\nrate = \"1/s\"\non_failure = \"closed\"\n";
    fs::write(here.path().join("tidegate.toml"), text).unwrap();
    let store = format!("redis://{closed}");
    let serving = Serving::start(&mut serve(here.path(), &["--store", &store]));
    let ask = || run(here.path(), &["status", "--json", "--admin", &serving.admin]);
    // The guard needs some failures before it gives the store up.
    let ended = tidegate_testkit::launch::wait_until("the server is not ready", || {
        let ended = ask();
        (ended.code == Some(1)).then_some(ended)
    });
    let shown = json(&ended);
    assert_eq!(
        (&shown["status"], &shown["store"]["degraded"]),
        (&"not ready".into(), &true.into())
    );
    assert_eq!((&shown["reasons"][0]["code"], ended.stderr.as_str()), (&"store".into(), ""));
    let ended = run(here.path(), &["status", "--quiet", "--admin", &serving.admin]);
    assert_eq!((ended.code, &*ended.stderr), (Some(1), "the server is not ready\n"), "{ended:?}");
}
