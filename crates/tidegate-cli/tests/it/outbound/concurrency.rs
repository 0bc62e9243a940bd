//! The concurrency that is shown is the one enforced: over three models and three keys, from any
//! layer, fixed and auto-tuned.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_sim::{Account, Delay, Dialect, LedgerEntry, Limits};
use tidegate_testkit::launch::wait_until;

use super::fixtures::{KEY, Provider};
use super::traffic::at_once;
use crate::program::{Ended, Serving, end, run, serve, tidegate};

/// Duration of each call at the provider.
const CALL_TIME: Duration = Duration::from_millis(150);
const KEYS: [&str; 3] = [KEY, "another-key-of-a-caller", "a-third-key-of-a-caller"];
const MODELS: [&str; 3] = ["tidal-1", "tidal-2", "tidal-embed"];

/// The program in front of a provider without limits.
struct Fixture {
    provider: Provider,
    client: Client,
    serving: Serving,
    here: TempDir,
}

impl Fixture {
    fn start(name: &'static str, settings: &str, flags: &[&str], env: &[(&str, &str)]) -> Self {
        let here = tempfile::tempdir().unwrap();
        let provider = Provider::start(account(name));
        let text = format!("[providers.{name}]\nbase_url = \"{}\"\n{settings}\n", provider.url);
        fs::write(here.path().join("tidegate.toml"), text).unwrap();
        let mut command = serve(here.path(), flags);
        command.env("TIDEGATE_LOG", "info,tidegate_gateway=debug");
        set(&mut command, env);
        let serving = Serving::start(&mut command);
        let client = Client {
            agent: ureq::Agent::config_builder().http_status_as_error(false).build().into(),
            url: serving.url.clone(),
            name,
        };
        Self { provider, client, serving, here }
    }

    /// Returns the concurrency in the summary, and the reason for it.
    fn shown(&self) -> (u64, String) {
        let (status, body) = self.serving.ask("/config");
        assert_eq!(status, 200, "{body}");
        let summary: Value = serde_json::from_str(&body).unwrap();
        let provider = &summary["providers"][self.client.name];
        let reason = provider["max_concurrent_requests_reason"].as_str().unwrap_or_default();
        (provider["max_concurrent_requests"].as_u64().unwrap(), reason.to_owned())
    }

    /// Returns the maximum number of concurrent calls of matching models at the provider.
    fn most_of(&self, is_one: impl Fn(&str) -> bool) -> usize {
        let mut entries = self.provider.simulator.ledger().entries();
        entries.retain(|entry| is_one(entry.model.as_deref().unwrap_or_default()));
        let is_open_at = |entry: &LedgerEntry, at: Duration| {
            entry.at <= at && entry.ended.is_none_or(|ended| ended > at)
        };
        let open_at = |at| entries.iter().filter(|entry| is_open_at(entry, at)).count();
        entries.iter().map(|entry| open_at(entry.at)).max().unwrap_or(0)
    }

    fn most(&self) -> usize {
        self.most_of(|_| true)
    }

    fn stop(self) -> Ended {
        self.serving.stop("TERM")
    }
}

fn account(name: &str) -> Account {
    let dialect = if name == "ollama" { Dialect::Ollama } else { Dialect::OpenAi };
    let account = Account::new(dialect, name, KEYS[0]).any_model(Limits::new());
    let account = match dialect {
        Dialect::Ollama => account,
        _ => KEYS[1..].iter().fold(account, |account, key| account.key(*key)),
    };
    account.first_token(Delay::fixed(CALL_TIME))
}

/// A client that can be used from any thread.
struct Client {
    agent: ureq::Agent,
    url: String,
    name: &'static str,
}

impl Client {
    /// Calls every model with every key, with `callers` concurrent callers that call twice.
    fn call_all(&self, callers: usize) {
        let next = AtomicUsize::new(0);
        at_once(callers, || {
            let index = next.fetch_add(1, Ordering::Relaxed);
            for _ in 0..2 {
                assert_eq!(self.call(KEYS[index % 3], MODELS[index / 3 % 3]), 200);
            }
        });
    }

    fn call(&self, key: &str, model: &str) -> u16 {
        let messages = json!([{ "role": "user", "content": "How is the tide?" }]);
        let mut body = json!({ "model": model, "messages": messages });
        let path = if self.name == "ollama" {
            body["stream"] = json!(false);
            "/ollama/api/chat"
        } else {
            "/openai/v1/chat/completions"
        };
        let request = self.agent.post(format!("{}{path}", self.url));
        let request = request.header("authorization", format!("Bearer {key}"));
        let request = request.header("content-type", "application/json");
        request.send(body.to_string()).unwrap().status().as_u16()
    }
}

fn set(command: &mut Command, env: &[(&str, &str)]) {
    for (name, value) in env {
        command.env(name, value);
    }
}

/// A fixed concurrency, from each layer.
///
/// Setting: providers.*.max_concurrent_requests, providers.*.auto_tune.enabled
#[test]
fn fixed_concurrency_is_enforced_over_models_and_keys_from_any_layer() {
    let none = ["--database", "none"];
    for (name, settings, flags, env, source) in [
        ("openai", "max_concurrent_requests = 3", &none[..], None, "file"),
        ("openai", "", &none[..], Some(("OPENAI_MAX_CONCURRENT", "3")), "environment"),
        ("openai", "", &[], None, "database"),
        ("openai", "[providers.openai.auto_tune]\nenabled = false", &none[..], None, "default"),
        ("ollama", "", &none[..], None, "default"),
    ] {
        let env: Vec<_> = env.into_iter().collect();
        let fixture = Fixture::start(name, settings, flags, &env);
        if source == "database" {
            let change = json!({ "providers": { "openai": { "max_concurrent_requests": 3 } } });
            let (status, body) = fixture.serving.patch(&change);
            assert_eq!(status, 200, "{body}");
        }
        let key = format!("providers.{name}.max_concurrent_requests");
        let (shown, reason) = fixture.shown();
        let expected = match (name, source) {
            ("ollama", _) => 1,
            (_, "default") => 8,
            _ => 3,
        };
        assert_eq!(shown, expected, "{name} by {source}");
        assert_eq!(fixture.serving.setting(&key), (expected.into(), source.to_owned()));
        let why = if source == "default" { "default" } else { source };
        assert!(reason.contains(why), "{source}: {reason}");
        fixture.client.call_all(if name == "ollama" { 9 } else { 18 });
        let most = fixture.most() as u64;
        assert_eq!(most, expected, "{name} by {source}");
        let ended = fixture.stop();
        let line = format!("concurrency pool created provider={name} ");
        assert_eq!(ended.stderr.matches(&line).count(), 1, "{}", ended.stderr);
    }
}

/// R358: `MAX_CONCURRENT_THREADS` limits auto-tuning too.
#[test]
fn max_concurrent_threads_is_shown_and_enforced() {
    let env = [("MAX_CONCURRENT_THREADS", "4")];
    let fixture = Fixture::start("openai", "", &["--database", "none"], &env);
    assert_eq!(fixture.shown().0, 4);
    fixture.client.call_all(18);
    assert_eq!((fixture.most(), fixture.shown().0), (4, 4));
    let mut show = tidegate(fixture.here.path(), &["config", "show", "providers.openai"]);
    set(&mut show, &env);
    let shown = end(&mut show).stdout;
    let line =
        |key: &str| shown.lines().find(|line| line.contains(key)).unwrap_or_default().to_owned();
    assert!(line("max_concurrent_requests").contains(" 4 "), "{shown}");
    assert!(line("auto_tune.ceiling").contains(" 4 "), "{shown}");
}

/// The auto-tuned concurrency is shown and enforced, and stops at the configured ceiling.
///
/// Setting: providers.*.auto_tune.ceiling
#[test]
fn auto_tuned_concurrency_is_shown_and_stops_at_its_ceiling() {
    let settings = "[providers.openai.auto_tune]\nceiling = 20";
    let fixture = Fixture::start("openai", settings, &["--database", "none"], &[]);
    let (shown, reason) = fixture.shown();
    assert_eq!((shown, reason.as_str()), (8, "starting value of auto-tuning; maximum 20"));
    let key = "providers.openai.max_concurrent_requests";
    std::thread::scope(|scope| {
        let client = &fixture.client;
        let calls = scope.spawn(|| client.call_all(45));
        wait_until("it grows", || (fixture.shown().0 > 8).then_some(()));
        calls.join().unwrap();
    });
    let (shown, reason) = fixture.shown();
    let most = fixture.most() as u64;
    assert!(most > 8 && most <= shown && shown <= 20, "{most} at once, {shown} shown");
    assert!(reason.starts_with("auto-tuned from 8: grew while all slots were in use"), "{reason}");
    let setting = fixture.serving.settings(key).remove(0);
    assert_eq!((&setting["value"], &setting["in_force"]), (&json!(8), &json!(shown)));
    let show = run(fixture.here.path(), &["config", "show", "--config", "tidegate.toml", key]);
    assert!(show.stdout.contains("auto-tuned from here, up to 20"), "{show:?}");
}

/// A provider without a default concurrency starts at one.
#[test]
fn provider_without_a_default_starts_at_one() {
    let fixture = Fixture::start("openai", "", &["--database", "none"], &[]);
    let (status, body) = fixture.serving.ask("/config");
    assert_eq!(status, 200, "{body}");
    let summary: Value = serde_json::from_str(&body).unwrap();
    let gemini = &summary["providers"]["gemini"];
    assert_eq!(gemini["max_concurrent_requests"], 1);
    let reason = gemini["max_concurrent_requests_reason"].as_str().unwrap();
    assert_eq!(reason, "starting value of auto-tuning; maximum 1024");
}

/// One GPU: six callers with different keys, one call in flight, and one log line.
#[test]
fn one_gpu_serves_one_call_at_a_time() {
    let fixture = Fixture::start("ollama", "", &["--database", "none"], &[]);
    let (client, next) = (&fixture.client, AtomicUsize::new(0));
    at_once(6, || {
        let index = next.fetch_add(1, Ordering::Relaxed);
        assert_eq!(client.call(&format!("random-key-{index}"), MODELS[index % 3]), 200);
    });
    assert_eq!(fixture.most(), 1);
    let ended = fixture.stop();
    let line = "concurrency pool created provider=ollama concurrency=Fixed(1)";
    assert_eq!(ended.stderr.matches(line).count(), 1, "{}", ended.stderr);
}

/// Models can have limits in the file, by name and pattern, within those of the provider.
///
/// Setting: providers.*.models.*.max_concurrent_requests
#[test]
fn models_can_have_their_own_limits() {
    let settings = "max_concurrent_requests = 6\n\
        [providers.openai.models.\"tidal-embed\"]\nmax_concurrent_requests = 1\n\
        [providers.openai.models.\"tidal-*\"]\nmax_concurrent_requests = 4\n";
    let fixture = Fixture::start("openai", settings, &["--database", "none"], &[]);
    let (client, next) = (&fixture.client, AtomicUsize::new(0));
    at_once(24, || {
        let index = next.fetch_add(1, Ordering::Relaxed);
        assert_eq!(client.call(KEYS[index / 3 % 3], MODELS[index % 3]), 200);
    });
    assert_eq!(fixture.most_of(|model| model == "tidal-embed"), 1, "over all keys");
    assert_eq!(fixture.most_of(|model| model != "tidal-embed"), 4, "both others share an entry");
    assert!(fixture.most() <= 5);
}

/// Concurrency does not grow while calls take longer than allowed, however many wait.
///
/// Setting: providers.*.auto_tune.max_latency
#[test]
fn slow_calls_prevent_auto_tuned_growth() {
    let settings = "[providers.openai.auto_tune]\nmax_latency = \"10ms\"";
    let fixture = Fixture::start("openai", settings, &["--database", "none"], &[]);
    // The first answers come before the number would grow.
    fixture.client.call_all(8);
    fixture.client.call_all(45);
    assert_eq!((fixture.most(), fixture.shown().0), (8, 8));
    let reason = fixture.shown().1;
    assert!(reason.ends_with("not growing because calls are too slow"), "{reason}");
}

/// A provider that accepts four concurrent calls and rejects others without reporting limits.
///
/// Setting: providers.*.auto_tune.decrease_factor, providers.*.auto_tune.decrease_above_percent
#[test]
fn push_back_lowers_auto_tuned_concurrency() {
    for (settings, lowered) in
        [("decrease_factor = 0.5", true), ("decrease_above_percent = 100", false)]
    {
        let here = tempfile::tempdir().unwrap();
        let account =
            Account::new(Dialect::OpenAi, "openai", KEY).any_model(Limits::new().concurrency(4));
        let provider = Provider::start(account.first_token(Delay::fixed(CALL_TIME)));
        let text = format!(
            "[providers.openai]\nbase_url = \"{}\"\nmax_concurrent_requests = 16\n\
             [providers.openai.auto_tune]\nenabled = true\nceiling = 16\n{settings}\n",
            provider.url
        );
        fs::write(here.path().join("tidegate.toml"), text).unwrap();
        let serving = Serving::start(&mut serve(here.path(), &["--database", "none"]));
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let client = Client { agent, url: serving.url.clone(), name: "openai" };
        let fixture = Fixture { provider, client, serving, here };
        assert_eq!(fixture.shown().0, 16);
        let client = &fixture.client;
        let statuses = at_once(24, || client.call(KEY, MODELS[0]));
        assert_eq!(statuses, [200; 24]);
        let (shown, reason) = fixture.shown();
        match lowered {
            true => assert!(shown <= 8 && reason.contains("pushed back at"), "{shown}: {reason}"),
            false => assert_eq!(shown, 16, "{reason}"),
        }
    }
}
