//! Callers that demand too much or send unusual requests do not affect others.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use serde_json::{Value, json};
use tidegate::pacer::PoolSize;
use tidegate_gateway::{Gateway, Upstream};
use tidegate_llm::plan::{Constraint, RawConstraint};
use tidegate_providers::Dialect;
use tidegate_sim::Delay;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{
    FAMILIES, MODEL, Mode, PEER, SECOND, account, chat, chat_with_key, gateway, gateway_to,
    is_idle, per_minute, send, settle, simulator, upstream,
};
use crate::transport::ScriptedProvider;

/// A chat request with additional members.
fn chat_with(members: &Value) -> Request<Full<Bytes>> {
    let mut body =
        json!({ "model": MODEL, "messages": [{ "role": "user", "content": "A river?" }] });
    body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    chat("openai", Mode::Single).map(|_| Full::new(Bytes::from(body.to_string())))
}

fn with_max_wait(mut request: Request<Full<Bytes>>, millis: u32) -> Request<Full<Bytes>> {
    request.headers_mut().insert("x-tidegate-max-wait-ms", HeaderValue::from(millis));
    request
}

fn tokens(tokens_per_minute: i64) -> Constraint {
    let tokens_per_minute = Some(tokens_per_minute);
    Constraint::try_new(&RawConstraint { tokens_per_minute, ..RawConstraint::default() }).unwrap()
}

fn openai() -> Upstream {
    upstream("openai", Dialect::OpenAi)
}

fn provider_with_status(status: u16) -> ScriptedProvider {
    ScriptedProvider::new(move |_, _| {
        Response::builder().status(status).body(Full::new(Bytes::from_static(b"{}"))).unwrap()
    })
}

/// Returns how long a small call takes.
async fn small_call_duration(gateway: &Gateway) -> Duration {
    let start = Instant::now();
    let response = send(gateway, with_max_wait(chat("openai", Mode::Single), 1_000_000)).await;
    assert_eq!(response.number("x-tidegate-attempts"), 1, "{}: it was sent", response.status);
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_huge_max_tokens_delays_others_by_at_most_a_minute() {
    let greedy = || chat_with(&json!({ "max_tokens": 1_000_000 }));
    let failing =
        gateway_to(&provider_with_status(500), [openai().limits(tokens(90_000)).max_retries(0)]);
    assert_eq!(send(&failing, greedy()).await.status, 500);
    assert!(small_call_duration(&failing).await <= SECOND * 62);
    let simulator = simulator(account(FAMILIES[0].2).first_token(Delay::fixed(SECOND * 2)));
    let gateway = gateway(&simulator, openai().limits(tokens(90_000)));
    let gone = timeout(SECOND, gateway.handle(greedy(), PEER)).await;
    assert!(gone.is_err(), "sent, then cancelled by the caller");
    assert!(small_call_duration(&gateway).await <= SECOND * 65);
    assert!(is_idle(&gateway));
}

#[tokio::test(start_paused = true)]
async fn huge_token_counts_are_accepted() {
    for limits in [None, Some(tokens(90_000))] {
        let upstream = match limits {
            Some(limits) => openai().limits(limits),
            None => openai(),
        };
        let gateway = gateway_to(&provider_with_status(200), [upstream]);
        for members in [
            json!({ "max_tokens": 2_500_000 }),
            json!({ "max_tokens": 100, "n": 1_000_000_000 }),
            json!({ "max_completion_tokens": u64::MAX, "n": u64::MAX }),
        ] {
            assert_eq!(send(&gateway, chat_with(&members)).await.status, 200, "{members}");
            sleep(SECOND * 120).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_input_that_never_fits_is_a_413() {
    let provider = provider_with_status(200);
    let gateway = gateway_to(&provider, [openai().limits(tokens(90_000))]);
    let prompt = format!(r#"{{"model":"m","prompt":[7{}]}}"#, ",7".repeat(11_000_000));
    let mut request = chat("openai", Mode::Single).map(|_| Full::new(Bytes::from(prompt)));
    *request.uri_mut() = "/openai/v1/completions".parse().unwrap();
    let refused = send(&gateway, request).await;
    assert_eq!(refused.status, 413);
    assert_eq!(refused.json()["error"]["code"], "request_too_large");
    assert!(provider.requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_retry_without_a_permit_forwards_the_provider_error() {
    let gateway = gateway_to(&provider_with_status(500), [openai().limits(per_minute(1))]);
    let failed = send(&gateway, with_max_wait(chat("openai", Mode::Single), 5_000)).await;
    assert_eq!((failed.status.as_u16(), &failed.body[..]), (500, &b"{}"[..]));
    assert_eq!(failed.number("x-tidegate-attempts"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_names_the_binding_limit_and_retry_after() {
    let raw = RawConstraint {
        requests_per_minute: Some(6_000),
        tokens_per_minute: Some(600),
        ..RawConstraint::default()
    };
    let limits = Constraint::try_new(&raw).unwrap();
    let gateway = gateway_to(&provider_with_status(200), [openai().limits(limits)]);
    // A call waits for the request limit, but the next one is refused because of tokens.
    send(&gateway, chat_with(&json!({ "max_tokens": 1 }))).await;
    send(&gateway, chat_with(&json!({ "max_tokens": 590 }))).await;
    let refused = send(&gateway, with_max_wait(chat("openai", Mode::Single), 100)).await;
    assert_eq!((refused.status.as_u16(), refused.header("x-tidegate-limited-by")), (429, "tokens"));
    let millis = refused.number("retry-after-ms");
    assert!((2_000..=6_000).contains(&millis), "{millis}");
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains("limited by tokens"));
    assert_eq!(refused.json()["error"]["type"], "tokens");
}

#[tokio::test(start_paused = true)]
async fn exhausted_concurrency_is_named() {
    let simulator = simulator(account(FAMILIES[0].2).first_token(Delay::fixed(SECOND * 30)));
    let gateway = gateway(&simulator, openai().concurrency(PoolSize::Fixed(1)));
    let first = gateway.clone();
    let first = tokio::spawn(async move { send(&first, chat("openai", Mode::Single)).await });
    settle().await;
    let refused = send(&gateway, with_max_wait(chat("openai", Mode::Single), 100)).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("x-tidegate-limited-by"), "concurrency");
    assert_eq!(refused.json()["error"]["type"], "requests");
    assert_eq!(first.await.unwrap().status, 200);
}

#[tokio::test(start_paused = true)]
async fn unusual_path_spellings_are_limited_and_forwarded_unchanged() {
    for path in [
        "/v1/chat/completion%73",
        "/v1/chat%2Fcompletions",
        "/v1//chat/completions",
        "/v1/chat/completions/",
        "/v1/chat/completions;x=1",
    ] {
        let provider = provider_with_status(200);
        let gateway = gateway_to(&provider, [openai().limits(per_minute(1))]);
        let request = || {
            let mut request = with_max_wait(chat("openai", Mode::Single), 0);
            *request.uri_mut() = format!("/openai{path}").parse().unwrap();
            request
        };
        assert_eq!(send(&gateway, request()).await.status, 200, "{path}");
        assert_eq!(send(&gateway, request()).await.status, 429, "{path}");
        assert_eq!(provider.requests()[0].uri.path(), path);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_key_does_not_use_the_retry_budget_of_others() {
    let seen = Mutex::new(HashSet::new());
    let provider = ScriptedProvider::new(move |_, got| {
        let key = got.headers["authorization"].clone();
        // Other keys fail once.
        let succeeds = key != "Bearer sk-bad" && !seen.lock().unwrap().insert(key);
        let status = if succeeds { 200 } else { 500 };
        Response::builder().status(status).body(Full::new(Bytes::from_static(b"{}"))).unwrap()
    });
    // Since every key fails at first, a breaker would open for the provider.
    let gateway = gateway_to(&provider, [openai().max_retries(1).without_breaker()]);
    let keys = (0..200).map(|_| "sk-bad".to_owned()).chain((0..10).map(|key| format!("sk-{key}")));
    let mut calls = JoinSet::new();
    for key in keys {
        let gateway = gateway.clone();
        calls.spawn(async move {
            let response = send(&gateway, chat_with_key("openai", Mode::Single, &key)).await;
            (key, response.status.as_u16(), response.number("x-tidegate-attempts"))
        });
    }
    let calls = calls.join_all().await;
    let (bad, good): (Vec<_>, Vec<_>) = calls.into_iter().partition(|(key, ..)| key == "sk-bad");
    assert!(bad.iter().any(|(_, _, attempts)| *attempts == 1), "its own retry budget is exhausted");
    assert!(good.iter().all(|(_, status, attempts)| (*status, *attempts) == (200, 2)), "{good:?}");
}
