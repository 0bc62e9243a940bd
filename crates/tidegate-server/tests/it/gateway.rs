//! Calls to a simulated provider through the whole server, over real sockets.

mod changes;
mod jobs;

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate::MemoryStore;
use tidegate::clock::ManualClock;
use tidegate_config::{Layers, Loader};
use tidegate_core::WallTime;
use tidegate_server::Server;
use tidegate_sim::{Account, Delay, Dialect, Limits, Output, Simulator};
use tidegate_testkit::launch::wait_until;
use tokio::runtime::Runtime;

use crate::wire::Response;
use crate::{TestServer, layers_on, one_worker};

const KEY: &str = "sk-caller";
const MODEL: &str = "model-1";
const MILLI: Duration = Duration::from_millis(1);

/// An account that responds with ten tokens after `delay` milliseconds.
fn account(delay: u32, limits: Limits) -> Account {
    Account::new(Dialect::OpenAi, "main", KEY)
        .model(MODEL, limits)
        .output(Output::fixed(10))
        .first_token(Delay::fixed(MILLI * delay))
}

fn chat() -> Value {
    let messages = [json!({"role": "user", "content": "A river?"})];
    json!({"model": MODEL, "messages": messages, "max_tokens": 20})
}

/// A provider, and a server in front of it.
struct Fixture {
    server: TestServer,
    simulator: Simulator,
    /// The runtime of the provider.
    _provider: Runtime,
}

impl Fixture {
    /// Starts a provider, and a server with `settings` for it and `text` besides. The provider's
    /// key is in the environment, for settings that name it.
    fn new(account: Account, settings: &str, text: &str) -> Self {
        let server = |layers| (Server::new(layers).unwrap(), ManualClock::new());
        Self::with_server(account, settings, text, server)
    }

    /// Starts a provider and a server that the test creates, with the clock of its store.
    fn with_server(
        account: Account,
        settings: &str,
        text: &str,
        server: impl FnOnce(Layers) -> (Server, ManualClock),
    ) -> Self {
        Self::of_provider("openai", account, &format!("{settings}\n{text}"), server)
    }

    /// Starts a provider of any name, and a server with `settings` for it.
    fn of_provider(
        name: &str,
        account: Account,
        settings: &str,
        server: impl FnOnce(Layers) -> (Server, ManualClock),
    ) -> Self {
        let provider = one_worker();
        let (simulator, url) = provider.block_on(async {
            let simulator = Simulator::builder().account(account).build().unwrap();
            let url = simulator.serve_on_loopback().await.unwrap();
            (simulator, url)
        });
        let text = format!("[providers.{name}]\nbase_url = \"{url}\"\n{settings}");
        let loader = Loader::default().environment([("PROVIDER_KEY".to_owned(), KEY.to_owned())]);
        let (server, clock) = server(layers_on(loader, &text));
        let server = TestServer::serving(server, clock);
        Self { server, simulator, _provider: provider }
    }

    /// Sends a chat request without streaming.
    fn call(&self) -> Response {
        Response::of(self.send(&chat()))
    }

    /// Sends a chat request with streaming, and returns the whole stream.
    fn stream(&self) -> String {
        let mut body = chat();
        body["stream"] = true.into();
        let mut response = self.send(&body);
        assert_eq!(response.status(), 200);
        let mut text = String::new();
        response.body_mut().as_reader().read_to_string(&mut text).unwrap();
        text
    }

    fn send(&self, body: &Value) -> http::Response<ureq::Body> {
        let url = format!("http://{}/openai/v1/chat/completions", self.server.address());
        let request = self.server.agent.post(url).header("authorization", format!("Bearer {KEY}"));
        request.header("content-type", "application/json").send(body.to_string()).unwrap()
    }

    /// Starts concurrent callers with `calls` sequential calls each.
    fn callers<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        callers: usize,
        calls: usize,
    ) -> Vec<ScopedJoinHandle<'scope, Vec<Response>>> {
        let caller = move || (0..calls).map(|_| self.call()).collect();
        (0..callers).map(|_| scope.spawn(caller)).collect()
    }

    /// Starts concurrent callers that make calls until the crowd is dropped.
    fn crowd<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        callers: usize,
    ) -> Crowd<'scope> {
        let stopped = Arc::new(AtomicBool::new(false));
        let caller = || {
            let stopped = stopped.clone();
            scope.spawn(move || {
                let should_continue = || !stopped.load(Ordering::SeqCst);
                std::iter::from_fn(|| should_continue().then(|| self.call())).collect()
            })
        };
        let callers = (0..callers).map(|_| caller()).collect();
        Crowd { callers, stopped }
    }

    /// Reads a gauge of the provider from the metrics.
    fn gauge(&self, name: &str) -> u64 {
        let line = format!("tidegate_llm_{name}{{provider=\"openai\"}} ");
        let text = self.server.admin_get("/metrics").body;
        let value = text.lines().find_map(|it| it.strip_prefix(&line)).unwrap_or("0");
        value.parse().unwrap()
    }

    fn wait_for_gauge(&self, name: &str, value: u64) {
        wait_until(&format!("{value} {name}"), || (self.gauge(name) == value).then_some(()));
    }
}

/// Callers that continue until this is dropped.
struct Crowd<'scope> {
    callers: Vec<ScopedJoinHandle<'scope, Vec<Response>>>,
    stopped: Arc<AtomicBool>,
}

impl Crowd<'_> {
    /// Lets the calls in flight end, and returns all responses.
    fn stop(mut self) -> Vec<Response> {
        self.stopped.store(true, Ordering::SeqCst);
        responses(std::mem::take(&mut self.callers))
    }
}

impl Drop for Crowd<'_> {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
    }
}

/// Returns the responses of all callers, in no order.
fn responses(callers: Vec<ScopedJoinHandle<'_, Vec<Response>>>) -> Vec<Response> {
    callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect()
}

#[track_caller]
fn assert_all_ok(replies: &[Response]) {
    for response in replies {
        assert_eq!(response.status, 200, "{response:?}");
    }
}

#[test]
fn a_call_is_forwarded() {
    let fixture = Fixture::new(account(1, Limits::new()), "", "");
    let response = fixture.call();
    assert_eq!(response.status, 200, "{response:?}");
    assert_eq!(response.header("x-tidegate-provider"), Some("openai"));
    assert_eq!(response.member("usage")["completion_tokens"], 10);
    assert!(fixture.stream().ends_with("data: [DONE]\n\n"));
    assert_eq!(fixture.simulator.ledger().seen(), 2);
    fixture.wait_for_gauge("in_flight", 0);
}

/// The provider allows eight concurrent calls, the endpoint two.
///
/// Setting: providers.*.endpoints.*.max_concurrent_requests
#[test]
fn an_endpoint_has_its_own_concurrency_limit() {
    let settings = "max_concurrent_requests = 8\n[providers.openai.endpoints.chat]\n\
                    max_concurrent_requests = 2\n";
    let fixture = Fixture::new(account(40, Limits::new()), settings, "");
    let replies = std::thread::scope(|scope| responses(fixture.callers(scope, 10, 2)));
    assert_all_ok(&replies);
    let ledger = fixture.simulator.ledger();
    assert_eq!(ledger.count(|call| call.in_flight > 2), 0);
    assert!(ledger.count(|call| call.in_flight == 2) > 0);
}

/// It is 23:00 in London, and 8:00 of the next day in Tokyo.
///
/// Setting: providers.*.requests_per_day_zone, providers.*.models.*.requests_per_day_zone
#[test]
fn daily_limits_of_a_provider_end_in_its_time_zone() {
    for header in ["", "[providers.openai.models.\"*\"]\n"] {
        day_ends_in_tokyo(header);
    }
}

fn day_ends_in_tokyo(header: &str) {
    const HOUR: u64 = 3_600_000;
    let settings = format!(
        "api_key_env = \"PROVIDER_KEY\"\n{header}requests_per_day = 1\n\
         requests_per_day_zone = \"Asia/Tokyo\"\n"
    );
    let fixture = Fixture::with_server(account(1, Limits::new()), &settings, "", |layers| {
        let clock = ManualClock::new();
        clock.set_wall(WallTime::from_secs(20_000 * 86_400 - 3_600));
        let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
        (Server::with_store(layers, Arc::new(store)).unwrap(), clock)
    });
    assert_eq!([fixture.call().status, fixture.call().status], [200, 429]);
    fixture.server.advance(15 * HOUR);
    assert_eq!(fixture.call().status, 429, "still the same day in Tokyo");
    fixture.server.advance(2 * HOUR);
    assert_eq!(fixture.call().status, 200);
}

/// Calls go out with a key of the server. Its limits are in the server's store; those of callers'
/// keys are not, and follow the clock of the machine.
const OWN_KEY: &str = "api_key_env = \"PROVIDER_KEY\"\n";

/// A server whose store has a clock that stands still, so no bucket refills.
fn frozen(layers: Layers) -> (Server, ManualClock) {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    (Server::with_store(layers, Arc::new(store)).unwrap(), clock)
}

/// R374, R119: one second's worth of the requests that Gemini and Anthropic publish for a tier.
#[test]
fn models_of_other_providers_have_the_limits_of_the_tier() {
    let anthropic = json!({
        "model": "claude-opus-5",
        "max_tokens": 20,
        "messages": [{"role": "user", "content": "A river?"}],
    });
    let gemini = json!({"contents": [{"role": "user", "parts": [{"text": "A river?"}]}]});
    let generate = "v1beta/models/gemini-2.5-flash:generateContent";
    for (name, dialect, tier, path, body, at_once) in [
        ("gemini", Dialect::Gemini, "tier_2", generate, gemini, 2_000 / 60),
        ("anthropic", Dialect::Anthropic, "start", "v1/messages", anthropic, 1_000 / 60),
    ] {
        let account = Account::new(dialect, "main", KEY).any_model(Limits::new());
        let settings = format!("{OWN_KEY}max_wait = \"0s\"\ntier = \"{tier}\"\n");
        let fixture = Fixture::of_provider(name, account, &settings, frozen);
        let url = format!("http://{}/{name}/{path}", fixture.server.address());
        let statuses = (0..=at_once).map(|_| {
            let request = fixture.server.agent.post(&url).header("x-goog-api-key", KEY);
            let request =
                request.header("x-api-key", KEY).header("anthropic-version", "2023-06-01");
            let request = request.header("content-type", "application/json");
            request.send(body.to_string()).unwrap().status().as_u16()
        });
        let statuses: Vec<_> = statuses.collect();
        assert_eq!(statuses, [vec![200; at_once], vec![429]].concat(), "{name} in {tier}");
    }
}

/// R374: in its first tier, `gpt-4o` has 500 requests per minute, of which eight fit in a second.
///
/// Setting: providers.*.tier
#[test]
fn models_have_the_limits_of_the_tier() {
    let mut body = chat();
    body["model"] = "gpt-4o".into();
    for (tier, ninth) in [("", 200), ("tier = \"tier_1\"\n", 429)] {
        let account = Account::new(Dialect::OpenAi, "main", KEY)
            .model("gpt-4o", Limits::new())
            .output(Output::fixed(10));
        let settings = format!("{OWN_KEY}max_wait = \"0s\"\n{tier}");
        let fixture = Fixture::with_server(account, &settings, "", frozen);
        let statuses: Vec<_> = (0..9).map(|_| fixture.send(&body).status().as_u16()).collect();
        assert_eq!(statuses, [[200; 8].as_slice(), &[ninth]].concat(), "{tier}");
    }
}
