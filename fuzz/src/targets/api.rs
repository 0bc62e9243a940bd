//! The HTTP API and the admin API: raw heads, and bodies below a well-formed head.

use std::time::Duration;

use serde_json::Value;
use tidegate_server::fuzzing::{Api, Apis};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::input;
use crate::runtime::block_on;

/// The limits in the configuration of the APIs.
const LIMITS: &str = r#"
[limits.client]
capacity = 100
rate = "50/s"
[limits.daily]
quota = 1000
every = "day"
[limits.slots]
concurrency = 4
lease = "30s"
"#;
/// The providers that have a default address.
const PROVIDERS: [&str; 9] = [
    "openai",
    "anthropic",
    "gemini",
    "groq",
    "mistral",
    "together",
    "openrouter",
    "deepseek",
    "ollama",
];
/// Timeout of a response; later ones are delayed on purpose.
const PATIENCE: Duration = Duration::from_secs(30);
/// Larger than any input.
const BUFFER: usize = 1 << 20;

thread_local! {
    static APIS: Apis = Apis::new(&config());
}

/// The configuration: limits, and every default provider at a closed local port, so that nothing
/// leaves the machine.
fn config() -> String {
    let away = PROVIDERS.iter().map(|name| {
        format!("[providers.{name}]\nbase_url = \"http://127.0.0.1:9\"\nmax_retries = 0\n")
    });
    away.fold(LIMITS.to_owned(), |config, provider| config + &provider)
}

/// Any bytes on a connection of the HTTP API.
pub(super) fn http_head(bytes: &[u8]) {
    check_heads(&exchange(Api::Http, bytes));
}

/// Any bytes on a connection of the admin API.
pub(super) fn admin_head(bytes: &[u8]) {
    check_heads(&exchange(Api::Admin, bytes));
}

/// A body for a path of the HTTP API: `METHOD /path` in the first line, the body below.
pub(super) fn http_body(bytes: &[u8]) {
    check_body(Api::Http, bytes);
}

/// A body for a path of the admin API: `METHOD /path` in the first line, the body below.
pub(super) fn admin_body(bytes: &[u8]) {
    check_body(Api::Admin, bytes);
}

/// Returns the bytes that an API sends in response.
fn exchange(api: Api, bytes: &[u8]) -> Vec<u8> {
    block_on(async {
        let (mut near, far) = tokio::io::duplex(BUFFER);
        let served = APIS.with(|apis| apis.serve(api, far));
        let asking = async move {
            let mut answer = Vec::new();
            // Fails if the server has already closed the connection.
            let _ = near.write_all(bytes).await;
            let _ = tokio::time::timeout(PATIENCE, near.read_to_end(&mut answer)).await;
            answer
        };
        tokio::select! {
            biased;
            answer = asking => answer,
            () = async { served.await; std::future::pending().await } => unreachable!(),
        }
    })
}

/// Checks that the response is HTTP and not a 500.
fn check_heads(answer: &[u8]) {
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{}", shown(answer));
    let failed = [&b"HTTP/1.1 500"[..], b"HTTP/1.0 500"];
    assert!(!failed.iter().any(|failed| answer.starts_with(failed)), "{}", shown(answer));
}

/// Checks that a well-formed request gets one response, that JSON in it is valid, and that an error
/// is a problem document.
fn check_body(api: Api, bytes: &[u8]) {
    let Some((line, body)) = input::text_line(bytes) else { return };
    let is_plain = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    if !line.bytes().all(is_plain) || line.split(' ').count() != 2 {
        return;
    }
    let head = format!(
        "{line} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let answer = exchange(api, &[head.as_bytes(), body].concat());
    check_heads(&answer);
    let (head, body) = input::split(&answer, b"\r\n\r\n");
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    if head.contains("content-type: application/json") && !body.is_empty() {
        serde_json::from_slice::<Value>(body).unwrap_or_else(|_| panic!("{}", shown(&answer)));
    }
    if head.contains("content-type: application/problem+json") && !body.is_empty() {
        let problem: Value = serde_json::from_slice(body).unwrap();
        assert!(problem["type"].is_string() && problem["status"].is_number(), "{problem}");
    }
}

fn shown(answer: &[u8]) -> String {
    String::from_utf8_lossy(answer).into_owned()
}
