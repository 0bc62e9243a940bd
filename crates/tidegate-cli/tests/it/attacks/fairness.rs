//! One caller with many names has the turns of one caller.
//!
//! Every attack fills the queue of a provider that takes one call at a time, from one address. Then a
//! victim calls, and what counts is how many calls of the attacker are let through before it.

use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use serde_json::{Value, json};
use tidegate_testkit::launch::wait_until;

use super::stage::{Caller, LOCALHOST, Program, Upstream, small_answer};

const OTHER_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const CHAT: &str = "/v1/chat/completions";
/// How many calls of an attacker wait before the victim comes.
const CROWD: usize = 60;
/// How many of them may go before one call of the victim: the one whose turn it is, and one that was
/// due already.
const FEW: usize = 3;

const ONE_AT_A_TIME: &str = "max_concurrent_requests = 1";
const WITH_OWN_KEY: &str = "max_concurrent_requests = 1\napi_key_env = \"OWN_KEY\"";

/// A provider that answers nothing until it is told to, and the program in front of it.
struct Queue {
    program: Program,
    upstream: Upstream,
    provider: &'static str,
    is_open: Arc<(Mutex<bool>, Condvar)>,
    /// Connections of calls that wait.
    calls: Vec<Caller>,
}

/// A call as a caller makes it.
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
            small_answer()
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

    /// Makes a call from an address, and leaves it waiting. The upstream knows it by `who`.
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

    /// How many calls wait, by a metric that older programs have too.
    fn waiting(&self) -> usize {
        let (status, text) = self.program.serving.ask("/metrics");
        assert_eq!(status, 200, "{text}");
        let name = format!("tidegate_llm_queue_length{{provider=\"{}\"}} ", self.provider);
        text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or_default()
    }

    /// Waits until every call waits, or is at the provider.
    fn settle(&self) {
        let calls = self.calls.len();
        wait_until("all calls wait", || (self.arrived() == calls).then_some(()));
    }

    /// How many calls wait or are at the provider.
    fn arrived(&self) -> usize {
        self.waiting() + self.upstream.count()
    }

    /// Lets a crowd of calls wait, then some of a victim, and says how many of the crowd went before
    /// the last of the victim's.
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
        let is_victim = |request: &super::stage::Message| request.text().contains("victim");
        let last = served.iter().rposition(is_victim).unwrap();
        // Less the first call, and those of the victim.
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
fn a_tenant_for_every_call_takes_no_turn_of_another_address() {
    let attacker = |queue: &mut Queue, number: usize| {
        let tenant = format!("tenant-{number}");
        let call = Call { key: Some("sk-shared"), tenant: Some(&tenant), ..Call::default() };
        queue.call(LOCALHOST, "attacker", &call);
    };
    let queue = Queue::start("openai", ONE_AT_A_TIME);
    assert_few(queue.overtaking(attacker, (OTHER_ADDRESS, &VICTIM, 1)), FEW);
    // With limits of its own an account has one queue for all models.
    let queue = Queue::start("openai", "max_concurrent_requests = 1\nrequests_per_minute = 100000");
    assert_few(queue.overtaking(attacker, (OTHER_ADDRESS, &VICTIM, 1)), FEW);
}

/// One address, two keys of callers, at a provider that is called with the operator's key.
#[test]
fn a_tenant_for_every_call_takes_no_turn_of_another_key_at_the_same_address() {
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
fn a_key_for_every_call_takes_no_turn_of_another_address_at_a_keyless_provider() {
    let queue = Queue::start("ollama", ONE_AT_A_TIME);
    let nobody = Call::default();
    assert_few(queue.overtaking(with_another_key, (OTHER_ADDRESS, &nobody, 1)), FEW);
}

#[test]
fn a_key_for_every_call_takes_no_turn_of_another_address_at_a_provider_with_an_own_key() {
    let queue = Queue::start("openai", WITH_OWN_KEY);
    assert_few(queue.overtaking(with_another_key, (OTHER_ADDRESS, &VICTIM, 1)), FEW);
}

#[test]
fn a_key_for_every_call_takes_no_turn_of_another_address_at_a_provider_with_keys_of_callers() {
    let queue = Queue::start("openai", ONE_AT_A_TIME);
    assert_few(queue.overtaking(with_another_key, (OTHER_ADDRESS, &VICTIM, 1)), FEW);
}

/// Where limits are learned every model has a queue of its own, and the victim waits behind a call of
/// the attacker in one of them.
#[test]
fn a_model_for_every_call_takes_no_turn_of_another_address() {
    let attacker = |queue: &mut Queue, number: usize| {
        let model = format!("model-{number}");
        let call = Call { key: Some("sk-shared"), model: Some(&model), ..Call::default() };
        queue.call(LOCALHOST, "attacker", &call);
    };
    let queue = Queue::start("openai", ONE_AT_A_TIME);
    let victim = Call { model: Some("model-59"), ..VICTIM };
    assert_few(queue.overtaking(attacker, (OTHER_ADDRESS, &victim, 1)), 2 * FEW);
}

/// The victim makes several calls: one of them would go by the guaranteed share of its class.
#[test]
fn a_high_priority_takes_no_turn_of_another_address() {
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

/// Calls of one tenant beyond a bound are refused at once, and the refusal says why.
#[test]
fn the_queue_of_a_tenant_is_bounded() {
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
    // Others are not kept out.
    queue.call(OTHER_ADDRESS, "victim", &VICTIM);
    wait_until("the victim waits", || (queue.arrived() == 1_002).then_some(()));
}
