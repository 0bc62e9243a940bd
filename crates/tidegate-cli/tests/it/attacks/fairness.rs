//! A caller that uses many names gets the share of one caller.
//!
//! Every attack fills the queue of a provider with a concurrency of one, from one address. Then a
//! victim calls, and the test counts how many calls of the attacker are served before it.

use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use serde_json::{Value, json};
use tidegate_testkit::launch::wait_until;

use super::fixtures::{Caller, LOCALHOST, Program, Upstream, small_response};

const OTHER_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const CHAT: &str = "/v1/chat/completions";
/// Number of attacker calls in the queue before the victim calls.
const CROWD: usize = 60;
/// Number of attacker calls that may be served before one call of the victim: the next one, and
/// those already scheduled.
const FEW: usize = 3;

const ONE_AT_A_TIME: &str = "max_concurrent_requests = 1";
const WITH_OWN_KEY: &str = "max_concurrent_requests = 1\napi_key_env = \"OWN_KEY\"";

/// The program in front of a provider that does not respond until the queue is opened.
struct Queue {
    program: Program,
    upstream: Upstream,
    provider: &'static str,
    is_open: Arc<(Mutex<bool>, Condvar)>,
    /// Connections of queued calls.
    calls: Vec<Caller>,
}

/// Headers and model of a call.
#[derive(Default)]
struct Call<'c> {
    key: Option<&'c str>,
    tenant: Option<&'c str>,
    priority: Option<&'c str>,
    model: Option<&'c str>,
}

impl Queue {
    fn start(provider: &'static str, settings: &str) -> Self {
        let is_open = Arc::new((Mutex::new(false), Condvar::new()));
        let gate = is_open.clone();
        let upstream = Upstream::start(move |_| {
            let (is_open, opened) = &*gate;
            drop(opened.wait_while(is_open.lock().unwrap(), |is_open| !*is_open).unwrap());
            small_response()
        });
        let url = &upstream.url;
        let config = format!("[providers.{provider}]\nbase_url = \"{url}\"\n{settings}\n");
        let program = Program::start_with(&config, |command| {
            command.env("OWN_KEY", "sk-own");
        });
        let mut queue = Self { program, upstream, provider, is_open, calls: Vec::new() };
        queue.call(LOCALHOST, "first", &Call { key: Some("sk-first"), ..Call::default() });
        wait_until("the first call is at the provider", || {
            (queue.upstream.count() == 1).then_some(())
        });
        queue
    }

    /// Makes a call from an address and leaves it queued. `who` identifies it at the upstream.
    fn call(&mut self, from: IpAddr, who: &str, call: &Call<'_>) {
        let model = call.model.unwrap_or("m");
        let messages = json!([{"role": "user", "content": who}]);
        let body = json!({"model": model, "messages": messages}).to_string();
        let mut caller = Caller::at(self.program.http, from);
        let host = self.program.http;
        let mut head = format!("POST /{}{CHAT} HTTP/1.1\r\nhost: {host}\r\n", self.provider);
        let headers = [
            ("authorization", call.key.map(|key| format!("Bearer {key}"))),
            ("x-tidegate-tenant", call.tenant.map(str::to_owned)),
            ("x-tidegate-priority", call.priority.map(str::to_owned)),
        ];
        for (name, value) in headers {
            head.extend(value.map(|value| format!("{name}: {value}\r\n")));
        }
        let length = body.len();
        head += &format!("content-type: application/json\r\ncontent-length: {length}\r\n\r\n");
        caller.write(&[head.as_bytes(), body.as_bytes()].concat()).unwrap();
        self.calls.push(caller);
    }

    /// Returns the number of queued calls, from a metric that older versions have too.
    fn waiting(&self) -> usize {
        let (status, text) = self.program.serving.ask("/metrics");
        assert_eq!(status, 200, "{text}");
        let name = format!("tidegate_llm_queue_length{{provider=\"{}\"}} ", self.provider);
        text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or_default()
    }

    /// Waits until every call is queued or at the provider.
    fn settle(&self) {
        let calls = self.calls.len();
        wait_until("all calls wait", || (self.arrived() == calls).then_some(()));
    }

    /// Returns the number of calls that are queued or at the provider.
    fn arrived(&self) -> usize {
        self.waiting() + self.upstream.count()
    }

    /// Queues the attacker's calls, then the victim's. Returns how many attacker calls were served
    /// before the last call of the victim.
    fn overtaking<'c>(
        mut self,
        attacker: impl Fn(&mut Self, usize),
        (victim_at, victim, victim_calls): (IpAddr, &Call<'c>, usize),
    ) -> usize {
        (0..CROWD).for_each(|number| attacker(&mut self, number));
        self.settle();
        for _ in 0..victim_calls {
            self.call(victim_at, "victim", victim);
            self.settle();
        }
        *self.is_open.0.lock().unwrap() = true;
        self.is_open.1.notify_all();
        for call in &mut self.calls {
            assert_eq!(call.read().unwrap().unwrap().status(), 200);
        }
        let served = self.upstream.seen();
        let is_victim = |request: &super::fixtures::Message| request.text().contains("victim");
        let last = served.iter().rposition(is_victim).unwrap();
        // Excluding the first call and those of the victim.
        last + 1 - 1 - victim_calls
    }
}

fn assert_few(overtaking: usize, most: usize) {
    assert!(overtaking <= most, "{overtaking} calls of the attacker went before the victim");
}

const VICTIM: Call<'static> =
    Call { key: Some("sk-shared"), tenant: None, priority: None, model: None };

/// One key, two addresses.
#[test]
fn tenant_per_call_does_not_delay_another_address() {
    let attacker = |queue: &mut Queue, number: usize| {
        let tenant = format!("tenant-{number}");
        let call = Call { key: Some("sk-shared"), tenant: Some(&tenant), ..Call::default() };
        queue.call(LOCALHOST, "attacker", &call);
    };
    let queue = Queue::start("openai", ONE_AT_A_TIME);
    assert_few(queue.overtaking(attacker, (OTHER_ADDRESS, &VICTIM, 1)), FEW);
    // With configured limits, an account has one queue for all models.
    let queue = Queue::start("openai", "max_concurrent_requests = 1\nrequests_per_minute = 100000");
    assert_few(queue.overtaking(attacker, (OTHER_ADDRESS, &VICTIM, 1)), FEW);
}

/// One address and two callers' keys, at a provider that is called with the operator's key.
#[test]
fn tenant_per_call_does_not_delay_another_key() {
    let attacker = |queue: &mut Queue, number: usize| {
        let tenant = format!("tenant-{number}");
        let call = Call { key: Some("sk-attacker"), tenant: Some(&tenant), ..Call::default() };
        queue.call(LOCALHOST, "attacker", &call);
    };
    let queue = Queue::start("openai", WITH_OWN_KEY);
    assert_few(queue.overtaking(attacker, (LOCALHOST, &VICTIM, 1)), FEW);
}

fn with_another_key(queue: &mut Queue, number: usize) {
    let (key, tenant) = (format!("sk-invented-{number}"), format!("tenant-{number}"));
    let call = Call { key: Some(&key), tenant: Some(&tenant), ..Call::default() };
    queue.call(LOCALHOST, "attacker", &call);
}

#[test]
fn key_per_call_does_not_delay_others_at_a_keyless_provider() {
    let queue = Queue::start("ollama", ONE_AT_A_TIME);
    let nobody = Call::default();
    assert_few(queue.overtaking(with_another_key, (OTHER_ADDRESS, &nobody, 1)), FEW);
}

#[test]
fn key_per_call_does_not_delay_others_with_the_operators_key() {
    let queue = Queue::start("openai", WITH_OWN_KEY);
    assert_few(queue.overtaking(with_another_key, (OTHER_ADDRESS, &VICTIM, 1)), FEW);
}

#[test]
fn key_per_call_does_not_delay_others_with_callers_keys() {
    let queue = Queue::start("openai", ONE_AT_A_TIME);
    assert_few(queue.overtaking(with_another_key, (OTHER_ADDRESS, &VICTIM, 1)), FEW);
}

/// With learned limits every model has its own queue, and the victim waits behind one call of the
/// attacker in one of them.
#[test]
fn model_per_call_does_not_delay_another_address() {
    let attacker = |queue: &mut Queue, number: usize| {
        let model = format!("model-{number}");
        let call = Call { key: Some("sk-shared"), model: Some(&model), ..Call::default() };
        queue.call(LOCALHOST, "attacker", &call);
    };
    let queue = Queue::start("openai", ONE_AT_A_TIME);
    let victim = Call { model: Some("model-59"), ..VICTIM };
    assert_few(queue.overtaking(attacker, (OTHER_ADDRESS, &victim, 1)), 2 * FEW);
}

/// The victim makes several calls, because a single one would be served by the guaranteed share of
/// its priority.
#[test]
fn high_priority_does_not_delay_another_address() {
    let attacker = |queue: &mut Queue, _| {
        let call = Call { key: Some("sk-shared"), priority: Some("high"), ..Call::default() };
        queue.call(LOCALHOST, "attacker", &call);
    };
    let queue = Queue::start("openai", ONE_AT_A_TIME);
    assert_few(queue.overtaking(attacker, (OTHER_ADDRESS, &VICTIM, 4)), FEW + 4);
    let queue = Queue::start("openai", ONE_AT_A_TIME);
    let humble = Call { priority: Some("low"), ..VICTIM };
    assert_few(queue.overtaking(attacker, (OTHER_ADDRESS, &humble, 1)), FEW);
}

/// Calls of one tenant beyond a bound are rejected immediately, with the reason.
#[test]
fn tenant_queue_is_bounded() {
    let mut queue = Queue::start("openai", ONE_AT_A_TIME);
    let body = r#"{"model":"m","messages":[{"role":"user","content":"flood"}]}"#;
    let request = format!(
        "POST /openai{CHAT} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer sk-flood\r\n\
         x-tidegate-tenant: flood\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        queue.program.http,
        body.len(),
    );
    let mut flood: Vec<TcpStream> = Vec::new();
    for _ in 0..1_000 {
        let mut stream = TcpStream::connect(queue.program.http).unwrap();
        std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
        flood.push(stream);
    }
    wait_until("they wait", || (queue.arrived() == 1_001).then_some(()));
    let flooding = Call { key: Some("sk-flood"), tenant: Some("flood"), ..Call::default() };
    queue.call(LOCALHOST, "flood", &flooding);
    let refusal = wait_until("one too many is refused", || {
        let call = queue.calls.last_mut()?;
        call.stream.set_nonblocking(true).unwrap();
        let mut one = [0];
        let has_come = call.stream.peek(&mut one).is_ok();
        call.stream.set_nonblocking(false).unwrap();
        has_come.then(|| call.read().unwrap().unwrap())
    });
    assert_eq!(refusal.status(), 429, "{}", refusal.text());
    assert!(refusal.header("retry-after").is_some(), "{refusal:?}");
    let message =
        serde_json::from_slice::<Value>(&refusal.body).unwrap()["error"]["message"].clone();
    assert!(message.as_str().unwrap().contains("1000 calls of this tenant wait"), "{message}");
    // Other tenants are still accepted.
    queue.call(OTHER_ADDRESS, "victim", &VICTIM);
    wait_until("the victim waits", || (queue.arrived() == 1_002).then_some(()));
}
