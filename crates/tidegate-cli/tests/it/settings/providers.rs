//! Settings of providers, tested with a provider without limits, so that only the setting can limit
//! calls.

use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;

use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_sim::{Fault, Faults, Limits, Output};
use ureq::http;

use super::parsed;
use crate::outbound::fixtures::{KEY, Provider, Sdk};
use crate::program::{Serving, serve};

/// Starts a provider without limits whose responses have 800 tokens.
fn provider(sdk: Sdk, faults: Faults) -> Provider {
    let account = sdk.account().any_model(Limits::new()).output(Output::fixed(800));
    Provider::start(account.faults(faults))
}

/// A running program whose providers use a key from the environment.
struct Program {
    serving: Serving,
    agent: ureq::Agent,
    _folder: TempDir,
}

impl Program {
    /// Starts the program. `sections` contains names, base URLs and additional lines of providers.
    fn start(sections: &[(&str, &str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut text = String::new();
        for (name, base_url, settings) in sections {
            let dialect = if settings.contains("dialect") { "" } else { "dialect = \"openai\"\n" };
            writeln!(
                text,
                "[providers.{name}]\nbase_url = \"{base_url}\"\napi_key_env = \"PROVIDER_KEY\"\n\
                 {dialect}{settings}"
            )
            .unwrap();
        }
        fs::write(folder.path().join("tidegate.toml"), text).unwrap();
        let mut command = serve(folder.path(), &[]);
        let serving = Serving::start(command.env("PROVIDER_KEY", KEY));
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        Self { serving, agent, _folder: folder }
    }

    fn call(&self, path: &str, body: &Value) -> Answer {
        let request = self.agent.post(format!("{}/{path}", self.serving.url));
        let request = request.header("content-type", "application/json");
        let (head, mut body) = request.send(body.to_string()).unwrap().into_parts();
        Answer { head, body: body.read_to_string().unwrap() }
    }

    fn chat(&self, provider: &str, body: &Value) -> Answer {
        self.call(&format!("{provider}/v1/chat/completions"), body)
    }
}

#[derive(Debug)]
struct Answer {
    head: http::response::Parts,
    body: String,
}

impl Answer {
    fn status(&self) -> u16 {
        self.head.status.as_u16()
    }

    fn header(&self, name: &str) -> &str {
        self.head.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn number(&self, name: &str) -> i64 {
        self.header(name).parse().unwrap_or_else(|_| panic!("{name} of {self:?}"))
    }
}

/// Returns a chat request.
fn chat(words: usize, max_tokens: u64) -> Value {
    let messages = [json!({"role": "user", "content": "tide ".repeat(words)})];
    json!({"model": "tidal-1", "messages": messages, "max_tokens": max_tokens})
}

const ONE: [u16; 2] = [200, 429];
const THREE: [u16; 4] = [200, 200, 200, 429];

/// Name, configuration lines, call, and expected statuses of consecutive calls.
type Binding<'a> = (&'a str, &'a str, Value, &'a [u16]);

fn limit_cases() -> [Binding<'static>; 7] {
    let (short, long, talkative) = (chat(1, 10), chat(600, 10), chat(1, 900));
    [
        ("requests", "requests_per_minute = 2", short.clone(), &ONE),
        ("capacity", "requests_per_minute = 3\nburst_capacity = 3", short.clone(), &THREE),
        ("factor", "requests_per_minute = 3\nburst_factor = 60.0", short.clone(), &THREE),
        ("interval", "min_interval_ms = 60000", short, &ONE),
        ("tokens", "tokens_per_minute = 1000", talkative.clone(), &ONE),
        ("input", "input_tokens_per_minute = 1000", long, &ONE),
        ("output", "output_tokens_per_minute = 1000", talkative, &ONE),
    ]
}

/// Makes consecutive calls under each limit, which is configured below an optional header. Calls
/// that exceed it would wait at least 15 s and are rejected, because `max_wait` is one second.
fn assert_each_limit_applies(limits: &[Binding<'_>], header: impl Fn(&str) -> String) {
    let provider = provider(Sdk::OPENAI, Faults::new());
    let section =
        |(name, limit, ..): &Binding<'_>| format!("max_wait = \"1s\"\n{}{limit}", header(name));
    let settings: Vec<_> = limits.iter().map(section).collect();
    let sections: Vec<_> = limits
        .iter()
        .zip(&settings)
        .map(|((name, ..), settings)| (*name, provider.url.as_str(), settings.as_str()))
        .collect();
    let program = Program::start(&sections);
    for (name, _, body, statuses) in limits {
        let answers: Vec<_> = statuses.iter().map(|_| program.chat(name, body)).collect();
        let got: Vec<_> = answers.iter().map(Answer::status).collect();
        assert_eq!(got, *statuses, "{name}: {answers:?}");
    }
}

/// Setting: providers.*.requests_per_minute, providers.*.burst_capacity, providers.*.burst_factor
/// Setting: providers.*.min_interval_ms, providers.*.tokens_per_minute
/// Setting: providers.*.input_tokens_per_minute, providers.*.output_tokens_per_minute
#[test]
fn each_limit_of_a_provider_binds() {
    assert_each_limit_applies(&limit_cases(), |_| String::new());
}

/// Setting: providers.*.models.*.requests_per_minute, providers.*.models.*.burst_capacity
/// Setting: providers.*.models.*.burst_factor, providers.*.models.*.min_interval_ms
/// Setting: providers.*.models.*.tokens_per_minute, providers.*.models.*.input_tokens_per_minute
/// Setting: providers.*.models.*.output_tokens_per_minute
#[test]
fn each_limit_of_a_model_binds() {
    assert_each_limit_applies(&limit_cases(), |name| {
        format!("[providers.{name}.models.\"tidal-*\"]\n")
    });
}

/// Setting: providers.*.endpoints.*.requests_per_minute
/// Setting: providers.*.endpoints.*.tokens_per_minute
#[test]
fn each_limit_of_an_endpoint_binds() {
    let limits =
        limit_cases().into_iter().filter(|(name, ..)| ["requests", "tokens"].contains(name));
    let limits: Vec<_> = limits.collect();
    assert_each_limit_applies(&limits, |name| format!("[providers.{name}.endpoints.chat]\n"));
}

/// Setting: providers.*.requests_per_day, providers.*.models.*.requests_per_day
#[test]
fn daily_requests_are_limited() {
    let provider = provider(Sdk::OPENAI, Faults::new());
    let of_model = "[providers.model.models.tidal-1]\nrequests_per_day = 2";
    let program = Program::start(&[
        ("daily", &provider.url, "requests_per_day = 2"),
        ("model", &provider.url, of_model),
    ]);
    for name in ["daily", "model"] {
        // Four calls succeed if the day ends between them.
        let mut answers = (0..5).map(|_| program.chat(name, &chat(1, 10)));
        let refused = answers.find(|it| it.status() != 200).unwrap();
        assert_eq!(refused.status(), 429, "{refused:?}");
        assert_eq!(parsed(&refused.body)["error"]["type"], "insufficient_quota", "{refused:?}");
        assert_eq!(refused.header("x-tidegate-limited-by"), "requests_per_day");
        assert!((1..=86_400_000).contains(&refused.number("retry-after-ms")), "until midnight");
    }
    let other = json!({"model": "tidal-2", "messages": chat(1, 10)["messages"]});
    assert_eq!(program.chat("model", &other).status(), 200, "another model has its own quota");
}

/// The default of eight retries would not fit into five seconds.
///
/// Setting: providers.*.max_retries, providers.*.retry_base
#[test]
fn retries_follow_their_settings() {
    let failing = provider(Sdk::OPENAI, Faults::new().on_calls(1..=u64::MAX, Fault::ServerError));
    let settings = "max_retries = 6\nretry_base = \"1ms\"\nmax_wait = \"5s\"";
    let program = Program::start(&[("failing", &failing.url, settings)]);
    let answer = program.chat("failing", &chat(1, 10));
    assert_eq!((answer.status(), answer.number("x-tidegate-attempts")), (500, 7), "{answer:?}");
    assert_eq!(failing.simulator.ledger().seen(), 7);
}

/// The system accepts the connection, but the server never responds.
///
/// Setting: providers.*.connect_timeout
#[test]
fn connect_timeout_applies() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base_url = format!("https://{}", listener.local_addr().unwrap());
    let settings = "connect_timeout = \"70ms\"\nmax_retries = 0";
    let program = Program::start(&[("silent", &base_url, settings)]);
    let answer = program.chat("silent", &chat(1, 10));
    assert_eq!(answer.status(), 504, "{answer:?}");
    assert!(answer.body.contains("no connection within 70ms"), "{answer:?}");
}

/// Setting: providers.*.fallback, providers.*.models
#[test]
fn fallback_answers_and_configured_models_are_named_in_metrics() {
    let failing = provider(Sdk::OPENAI, Faults::new().on_calls(1..=u64::MAX, Fault::ServerError));
    let working = provider(Sdk::OPENAI, Faults::new());
    let program = Program::start(&[
        ("first", &failing.url, "max_retries = 0\nfallback = [\"second\"]"),
        ("second", &working.url, ""),
        ("named", &working.url, "models = [\"tidal-1\"]"),
    ]);
    let answer = program.chat("first", &chat(1, 10));
    assert_eq!((answer.status(), answer.header("x-tidegate-provider")), (200, "second"));
    for name in ["second", "named"] {
        assert_eq!(program.chat(name, &chat(1, 10)).status(), 200);
    }
    let (_, metrics) = program.serving.ask("/metrics");
    for label in [r#"provider="named",model="tidal-1""#, r#"provider="second",model="other""#] {
        assert!(metrics.contains(label), "{label} in {metrics}");
    }
}

/// The key is sent in the header of the dialect.
///
/// Setting: providers.*.dialect, providers.*.api_key_env
#[test]
fn provider_uses_its_dialect_and_key() {
    let provider = provider(Sdk::GEMINI, Faults::new());
    let sections = ["gemini", "openai"].map(|dialect| format!("dialect = \"{dialect}\""));
    let [right, wrong] = sections.each_ref().map(String::as_str);
    let program =
        Program::start(&[("right", &provider.url, right), ("wrong", &provider.url, wrong)]);
    let body = json!({"contents": [{"role": "user", "parts": [{"text": "How is the tide?"}]}]});
    let path = "v1beta/models/tidal-1:generateContent";
    let [right, wrong] =
        ["right", "wrong"].map(|name| program.call(&format!("{name}/{path}"), &body));
    assert_eq!(right.status(), 200, "{right:?}");
    assert_ne!(wrong.status(), 200, "{wrong:?}");
}
