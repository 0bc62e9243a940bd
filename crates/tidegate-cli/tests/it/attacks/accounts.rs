//! Callers' keys: a key never has two buckets, and a flood of keys neither frees limits nor
//! exhausts memory.

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};

use super::fixtures::{
    Caller, LOCALHOST, Message, Program, Upstream, UpstreamResponse, small_response,
};

/// Returns a chat request for a model.
fn chat(model: &str) -> Vec<u8> {
    format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"hi"}}]}}"#).into_bytes()
}

/// Rejects a call instead of queueing it.
const AT_ONCE: (&str, &str) = ("x-tidegate-max-wait-ms", "0");

fn bearer(key: &str) -> String {
    format!("Bearer {key}")
}

/// Returns the number of requests at an upstream that contain `text` in their headers.
fn count_with(upstream: &Upstream, text: &str) -> usize {
    let has = |message: &Message| {
        let mut values = message.headers.iter().map(|(_, value)| value);
        message.start.contains(text) || values.any(|value| value.contains(text))
    };
    upstream.seen().iter().filter(|message| has(message)).count()
}

/// Calls a path once with each set of headers and returns the statuses.
fn call_each(program: &Program, path: &str, headers: &[Vec<(&str, &str)>]) -> Vec<u16> {
    let mut caller = Caller::at(program.http, LOCALHOST);
    let call = |headers: &Vec<(&str, &str)>| {
        let headers = [headers, &[AT_ONCE, ("content-type", "application/json")][..]].concat();
        caller.request("POST", path, &headers, &chat("m")).status()
    };
    headers.iter().map(call).collect()
}

fn config(name: &str, upstream: &Upstream, settings: &str) -> String {
    format!("[providers.{name}]\nbase_url = \"{}\"\n{settings}\n", upstream.url)
}

#[test]
fn spellings_of_a_key_in_authorization_share_a_bucket() {
    let upstream = Upstream::start(|_| small_response());
    let program = Program::start(&config("openai", &upstream, "requests_per_minute = 6"));
    let authorizations = [
        "Bearer sk-one",
        "Bearer\tsk-one",
        "bearer \t sk-one",
        "BEARER   sk-one",
        "Bearer sk-one\t ",
        "Bearer\t\tsk-one",
        "Token\tsk-one",
        "sk-one",
        "Bearer sk-one, Bearer sk-two",
        "Bearer \"sk-one\"",
        "Bearer x sk-one",
    ];
    let headers = authorizations.map(|value| vec![("authorization", value)]);
    let statuses = call_each(&program, "/openai/v1/chat/completions", &headers);
    assert_eq!(statuses[0], 200);
    assert!(statuses[1..].iter().all(|status| [400, 429].contains(status)), "{statuses:?}");
    assert_eq!(upstream.count(), 1, "{statuses:?}");
}

/// OpenAI's API also accepts the key as a basic-auth password, with any user name.
#[test]
fn key_as_basic_auth_password_shares_the_bucket() {
    let upstream = Upstream::start(|_| small_response());
    let program = Program::start(&config("openai", &upstream, "requests_per_minute = 6"));
    // `:sk-one`, `a:sk-one` and `b:sk-one`.
    let basics = ["Basic OnNrLW9uZQ==", "Basic YTpzay1vbmU=", "basic\tYjpzay1vbmU="];
    let headers = basics.map(|value| vec![("authorization", value)]);
    let statuses = call_each(&program, "/openai/v1/chat/completions", &headers);
    assert!(upstream.count() <= 1, "{statuses:?}");
}

#[test]
fn second_key_in_a_request_is_not_sent_uncharged() {
    let upstream = Upstream::start(|_| small_response());
    let settings = "requests_per_minute = 6";
    let text = config("openai", &upstream, settings) + &config("anthropic", &upstream, settings);
    let program = Program::start(&text);
    let junk: Vec<String> = (0..8).map(|number| format!("junk-{number}")).collect();
    let bearers: Vec<String> = junk.iter().map(|junk| bearer(junk)).collect();
    let (one, two) = (bearer("sk-openai-key"), bearer("sk-anthropic-key"));
    // The provider decides which of two headers it uses.
    let mut headers = vec![vec![("authorization", one.as_str())]];
    headers.extend(
        bearers
            .iter()
            .map(|junk| vec![("authorization", junk.as_str()), ("authorization", one.as_str())]),
    );
    call_each(&program, "/openai/v1/chat/completions", &headers);
    assert_eq!(count_with(&upstream, "sk-openai-key"), 1);
    let mut headers = vec![vec![("x-api-key", "sk-anthropic-key")]];
    headers.extend(
        junk.iter().map(|junk| vec![("x-api-key", junk.as_str()), ("authorization", two.as_str())]),
    );
    call_each(&program, "/anthropic/v1/messages", &headers);
    assert_eq!(count_with(&upstream, "sk-anthropic-key"), 1);
}

#[test]
fn key_in_a_query_has_one_bucket_in_any_encoding() {
    let upstream = Upstream::start(|_| small_response());
    let program = Program::start(&config("gemini", &upstream, "requests_per_minute = 6"));
    let path = "/gemini/v1beta/models/m:generateContent";
    let queries = [
        "?key=sk-one",
        "?key=%73k-one",
        "?key=s%6b-one",
        "?k%65y=sk-one",
        "?key=sk-on%65",
        "?key=sk-one%20",
        "?key=sk-one+",
        "?key=&key=sk-one",
    ];
    let statuses: Vec<u16> = queries
        .iter()
        .flat_map(|query| call_each(&program, &format!("{path}{query}"), &[vec![]]))
        .collect();
    assert_eq!(statuses[0], 200);
    assert_eq!(upstream.count(), 1, "{statuses:?}");
    // Together with a header that the provider may ignore.
    let junk: Vec<String> = (0..4).map(|number| format!("junk-{number}")).collect();
    let headers: Vec<_> = junk.iter().map(|junk| vec![("x-goog-api-key", junk.as_str())]).collect();
    call_each(&program, &format!("{path}?key=sk-one"), &headers);
    assert_eq!(count_with(&upstream, "sk-one"), 1);
}

#[test]
fn random_keys_share_a_bucket_at_keyless_providers() {
    let upstream = Upstream::start(|_| small_response());
    let settings = "requests_per_minute = 6";
    let text = config("ollama", &upstream, settings) + &config("local", &upstream, settings);
    let program = Program::start(&text);
    for path in ["/ollama/api/chat", "/ollama/v1/chat/completions", "/local/v1/chat/completions"] {
        let before = upstream.count();
        let keys: Vec<String> = (0..10).map(|number| bearer(&format!("{path}-{number}"))).collect();
        let headers: Vec<_> =
            keys.iter().map(|key| vec![("authorization", key.as_str())]).collect();
        let statuses = call_each(&program, path, &headers);
        assert!(upstream.count() - before <= 1, "{path}: {statuses:?}");
    }
}

/// All keys together may use 16 times the limit of one key.
#[test]
fn many_keys_do_not_multiply_the_limit() {
    let upstream = Upstream::start(|_| small_response());
    let program = Program::start(&config("openai", &upstream, "requests_per_minute = 6"));
    let keys: Vec<String> = (0..100).map(|number| bearer(&format!("sk-{number}"))).collect();
    let headers: Vec<_> = keys.iter().map(|key| vec![("authorization", key.as_str())]).collect();
    let statuses = call_each(&program, "/openai/v1/chat/completions", &headers);
    let passed = upstream.count();
    assert!((16..40).contains(&passed), "{passed} of 100: {statuses:?}");
}

/// Starts an upstream where three keys are exhausted, each in a different way.
fn exhausted() -> Upstream {
    Upstream::start(|request| match request.header("authorization") {
        Some("Bearer sk-quota") => UpstreamResponse::json(
            429,
            r#"{"error":{"message":"no money","type":"insufficient_quota","code":"insufficient_quota"}}"#,
        ),
        Some("Bearer sk-held") => UpstreamResponse::json(
            429,
            r#"{"error":{"message":"later","type":"requests","code":"rate_limit_exceeded"}}"#,
        )
        .header("retry-after", "500"),
        Some("Bearer sk-learned") => small_response()
            .header("x-ratelimit-limit-requests", "1")
            .header("x-ratelimit-remaining-requests", "0")
            .header("x-ratelimit-reset-requests", "500s"),
        _ => small_response(),
    })
}

#[test]
fn exhausted_key_stays_exhausted_after_a_flood_of_keys() {
    let upstream = exhausted();
    let program = Program::start(&config("openai", &upstream, "max_retries = 0"));
    let names = ["sk-quota", "sk-held", "sk-learned"];
    let keys = names.map(bearer);
    let headers = keys.each_ref().map(|key| vec![("authorization", key.as_str())]);
    let path = "/openai/v1/chat/completions";
    call_each(&program, path, &headers);
    let refused = call_each(&program, path, &headers);
    assert_eq!(refused, [429, 429, 429], "rejected by the program, before the flood");
    assert_eq!(upstream.count(), 3);
    let junk: Vec<String> = (0..1_100).map(|number| bearer(&format!("junk-{number}"))).collect();
    let flood: Vec<_> = junk.iter().map(|key| vec![("authorization", key.as_str())]).collect();
    let statuses = call_each(&program, path, &flood);
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    let refused = call_each(&program, path, &headers);
    let sent = names.map(|name| count_with(&upstream, name));
    assert_eq!((sent, refused), ([1, 1, 1], vec![429, 429, 429]));
}

/// Returns the resident memory of the program, in MiB.
fn resident(program: &Program) -> usize {
    let path = format!("/proc/{}/statm", program.serving.id());
    let pages = fs::read_to_string(path).unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4 / 1_024
}

/// Returns the bytes of a chat request for a model, with a numbered key.
fn chat_request(host: SocketAddr, key: usize, model: &str) -> Vec<u8> {
    let body = chat(model);
    let head = format!(
        "POST /openai/v1/chat/completions HTTP/1.1\r\nhost: {host}\r\n\
         authorization: Bearer sk-{key}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), &body].concat()
}

/// Makes a call with every key and model, on two connections.
fn call_all(program: &Program, keys: usize, models: &[String]) {
    let host = program.http;
    std::thread::scope(|scope| {
        for part in 0..2 {
            scope.spawn(move || {
                let mut caller = Caller::at(host, LOCALHOST);
                for key in (part..keys).step_by(2) {
                    call_with(&mut caller, host, key, models);
                }
            });
        }
    });
}

/// Makes a call with a key and every model, pipelined.
fn call_with(caller: &mut Caller, host: SocketAddr, key: usize, models: &[String]) {
    let mut writer: TcpStream = caller.stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for model in models {
                writer.write_all(&chat_request(host, key, model)).unwrap();
            }
        });
        for _ in models {
            assert_eq!(caller.read().unwrap().unwrap().status(), 200);
        }
    });
}

/// Default memory budget of accounts, queues and models, in MiB, and slack for the allocator,
/// connections and retired limits.
const BUDGET: usize = 64;
const SLACK: usize = 32;

#[test]
fn many_keys_and_models_stay_within_the_memory_budget() {
    let upstream = Upstream::start(|_| small_response());
    let program = Program::start(&config("openai", &upstream, ""));
    // The first call loads shared data.
    call_all(&program, 1, &["first".to_owned()]);
    let before = resident(&program);
    // Without a budget each pair takes at least 6 KiB, so these would take 120 MiB.
    let models: Vec<String> =
        (0..256).map(|number| format!("model-{number}-{}", "x".repeat(100))).collect();
    call_all(&program, 80, &models);
    let grown = resident(&program) - before;
    assert!(grown <= BUDGET + SLACK, "grown by {grown} MiB");
}

#[test]
fn long_model_names_do_not_exhaust_memory() {
    let upstream = Upstream::start(|_| small_response());
    let program = Program::start(&config("openai", &upstream, ""));
    call_all(&program, 1, &["first".to_owned()]);
    let before = resident(&program);
    let models: Vec<String> =
        (0..100).map(|number| format!("{number}-{}", "x".repeat(100_000))).collect();
    call_all(&program, 10, &models);
    let grown = resident(&program) - before;
    assert!(grown <= BUDGET + SLACK, "grown by {grown} MiB");
}

/// Every key waits once, which is logged as a warning if there are few.
#[test]
fn flood_of_keys_does_not_fill_the_log() {
    const KEYS: usize = 200;
    let upstream = Upstream::start(|_| small_response());
    let settings = "requests_per_minute = 600\nburst_capacity = 1\nmax_concurrent_requests = 300";
    let program = Program::start(&config("openai", &upstream, settings));
    let mut callers: Vec<_> = (0..KEYS).map(|_| Caller::at(program.http, LOCALHOST)).collect();
    for (key, caller) in callers.iter_mut().enumerate() {
        // Two requests at once per connection: the second has to wait.
        let request = chat_request(program.http, key, "m");
        caller.write(&[request.clone(), request].concat()).unwrap();
    }
    for caller in &mut callers {
        for _ in 0..2 {
            assert_eq!(caller.read().unwrap().unwrap().status(), 200);
        }
    }
    drop(callers);
    let log = program.serving.stop("TERM").stderr;
    let lines = log.lines().count();
    assert!(lines < KEYS / 2, "{lines} lines, such as {:?}", log.lines().last());
}

/// Every failed attempt is logged if there are few.
#[test]
fn flood_of_failures_does_not_fill_the_log() {
    let upstream = Upstream::start(|_| UpstreamResponse::json(500, "{}"));
    let settings = "max_retries = 3\nretry_base = \"1ms\"\nbreaker = false";
    let program = Program::start(&config("openai", &upstream, settings));
    let keys: Vec<String> = (0..100).map(|number| bearer(&format!("sk-{number}"))).collect();
    let headers: Vec<_> = keys.iter().map(|key| vec![("authorization", key.as_str())]).collect();
    let statuses = call_each(&program, "/openai/v1/chat/completions", &headers);
    assert!(statuses.iter().all(|status| *status >= 500), "{statuses:?}");
    let lines = program.serving.stop("TERM").stderr.lines().count();
    assert!(lines < 150, "{lines} lines of 100 calls");
}
