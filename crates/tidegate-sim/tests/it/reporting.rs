//! Inaccurate reports about limits.

use std::time::Duration;

use serde_json::Value;
use tidegate_sim::{Delay, Dialect, Fault, Hint, Limits, Reporting, Simulator, Zone};
use tokio::time::advance;

use crate::client::{Call, DIALECTS, ReceivedResponse, account, with};

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

fn reporting(dialect: Dialect, limits: Limits, reporting: Reporting) -> Simulator {
    with(account(dialect, limits).reporting(reporting))
}

/// Returns the remaining amounts by header name.
fn remaining(response: &ReceivedResponse) -> Vec<(&str, u64)> {
    let fields = response.headers.iter().filter(|(name, _)| name.contains("remaining"));
    fields.map(|(name, value)| (name.as_str(), value.parse().unwrap())).collect()
}

#[tokio::test(start_paused = true)]
async fn coarse_reporting_rounds_only_remaining() {
    let limits = Limits::new()
        .requests_per_minute(60)
        .input_tokens_per_minute(6_300)
        .output_tokens_per_minute(6_000);
    let coarse = Reporting::Rounded { step: 1_000 };
    let simulator = reporting(Dialect::Anthropic, limits, coarse);
    let call = Call::new(Dialect::Anthropic).field("max_tokens", 1_499).output(1_499);
    let response = call.send(&simulator).await;
    assert_eq!(
        response.limit_headers(),
        [
            "anthropic-ratelimit-input-tokens-limit: 6300",
            "anthropic-ratelimit-input-tokens-remaining: 6000",
            "anthropic-ratelimit-input-tokens-reset: 2026-01-01T00:00:01Z",
            "anthropic-ratelimit-output-tokens-limit: 6000",
            "anthropic-ratelimit-output-tokens-remaining: 5000",
            "anthropic-ratelimit-output-tokens-reset: 2026-01-01T00:00:15Z",
            "anthropic-ratelimit-requests-limit: 60",
            "anthropic-ratelimit-requests-remaining: 0",
            "anthropic-ratelimit-requests-reset: 2026-01-01T00:00:01Z",
            "request-id: req_sim_1",
        ]
    );
    // 4,501 remain; 4,499 would be rounded down.
    let refused = call.field("max_tokens", 4_502).send(&simulator).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    let left = refused.header("anthropic-ratelimit-output-tokens-remaining");
    assert_eq!(left, Some("5000"), "reports more than remains");
}

#[tokio::test(start_paused = true)]
async fn rounded_number_stays_within_the_limit() {
    let limits = Limits::new().requests_per_minute(17).tokens_per_minute(1_600);
    let simulator = reporting(Dialect::Mistral, limits, Reporting::Rounded { step: 1_000 });
    let response = Call::new(Dialect::Mistral).output(10).send(&simulator).await;
    let expected =
        [("x-ratelimit-remaining-req-minute", 0), ("x-ratelimit-remaining-tokens-minute", 1_600)];
    assert_eq!(remaining(&response), expected);
}

#[tokio::test(start_paused = true)]
async fn per_second_reporting_is_not_enforced() {
    let limits = Limits::new().requests_per_minute(150).tokens_per_minute(6_000).phase(MILLI * 250);
    let simulator = reporting(Dialect::OpenAi, limits, Reporting::PerSecond);
    let call = Call::new(Dialect::OpenAi).field("max_tokens", 38).output(1);
    // Three requests per second, rounded up, and a hundred tokens.
    for (requests, tokens) in [(2, 60), (1, 20), (0, 0), (0, 0)] {
        let response = call.send(&simulator).await;
        assert_eq!(response.status, 200);
        assert_eq!(
            response.limit_headers()[..6],
            [
                "x-ratelimit-limit-requests: 150".to_owned(),
                "x-ratelimit-limit-tokens: 6000".to_owned(),
                format!("x-ratelimit-remaining-requests: {requests}"),
                format!("x-ratelimit-remaining-tokens: {tokens}"),
                "x-ratelimit-reset-requests: 1s".to_owned(),
                "x-ratelimit-reset-tokens: 1s".to_owned(),
            ]
        );
    }
    advance(MILLI * 749).await;
    assert_eq!(call.send(&simulator).await.header("x-ratelimit-remaining-tokens"), Some("0"));
    advance(MILLI).await;
    assert_eq!(call.send(&simulator).await.header("x-ratelimit-remaining-tokens"), Some("60"));
}

#[tokio::test(start_paused = true)]
async fn per_second_reporting_covers_every_limit() {
    let limits = Limits::new().input_tokens_per_minute(600).output_tokens_per_minute(6_000);
    let simulator = reporting(Dialect::Anthropic, limits, Reporting::PerSecond);
    let response = Call::new(Dialect::Anthropic).output(1).send(&simulator).await;
    assert_eq!(
        response.limit_headers()[..6],
        [
            "anthropic-ratelimit-input-tokens-limit: 600",
            "anthropic-ratelimit-input-tokens-remaining: 8",
            "anthropic-ratelimit-input-tokens-reset: 2026-01-01T00:00:01Z",
            "anthropic-ratelimit-output-tokens-limit: 6000",
            "anthropic-ratelimit-output-tokens-remaining: 50",
            "anthropic-ratelimit-output-tokens-reset: 2026-01-01T00:00:01Z",
        ]
    );
    let limits = Limits::new().requests_per_minute(120).tokens_per_minute(6_000);
    let simulator = reporting(Dialect::Together, limits, Reporting::PerSecond);
    advance(MILLI * 300).await;
    let response = Call::new(Dialect::Together).output(98).send(&simulator).await;
    assert_eq!(
        response.limit_headers(),
        [
            "x-ratelimit-limit: 120",
            "x-ratelimit-remaining: 1",
            "x-ratelimit-reset: 1",
            "x-tokenlimit-limit: 6000",
            "x-tokenlimit-remaining: 98",
        ]
    );
    let simulator =
        reporting(Dialect::OpenRouter, Limits::new().requests_per_minute(1), Reporting::PerSecond);
    Call::new(Dialect::OpenRouter).send(&simulator).await;
    let refused = Call::new(Dialect::OpenRouter).send(&simulator).await;
    assert_eq!(
        refused.limit_headers(),
        [
            "retry-after: 60",
            "x-ratelimit-limit: 1",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 1767225601000",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn every_reporting_dialect_can_report_a_constant() {
    for (dialect, fields) in [
        (Dialect::OpenAi, 2),
        (Dialect::AzureOpenAi, 2),
        (Dialect::Anthropic, 2),
        (Dialect::Groq, 2),
        (Dialect::Mistral, 2),
        (Dialect::Together, 2),
        (Dialect::OpenRouter, 1),
    ] {
        let limits = || {
            let limits = Limits::new().requests_per_minute(60).tokens_per_minute(6_000);
            limits.requests_per_day(1, Zone::UTC)
        };
        let constant = Reporting::Constant { remaining: 7_777 };
        let simulator = reporting(dialect, limits(), constant);
        let truthful = reporting(dialect, limits(), Reporting::Accurate);
        for status in [200, 429] {
            let call = Call::new(dialect).output(10);
            let (response, truth) = (call.send(&simulator).await, call.send(&truthful).await);
            assert_eq!(response.status, status, "{dialect}");
            let expected = if (dialect, status) == (Dialect::OpenRouter, 200) { 0 } else { fields };
            let reported = remaining(&response);
            assert_eq!(reported.len(), expected, "{dialect}");
            assert!(reported.iter().all(|(_, left)| *left == 7_777), "{dialect}: {reported:?}");
            let rest = |response: &ReceivedResponse| {
                let fields = response.limit_headers().into_iter();
                fields.filter(|field| !field.contains("remaining")).collect::<Vec<_>>()
            };
            assert_eq!(rest(&response), rest(&truth), "{dialect}");
        }
    }
    let simulator = reporting(
        Dialect::OpenRouter,
        Limits::new().requests_per_minute(60),
        Reporting::Constant { remaining: 5 },
    );
    let throttle = Fault::RateLimited { retry_after: Some(SECOND) };
    for fault in [throttle, Fault::DayQuota] {
        simulator.inject("main", fault, 1).unwrap();
        let refused = Call::new(Dialect::OpenRouter).send(&simulator).await;
        assert_eq!(refused.header("x-ratelimit-remaining"), Some("5"));
        let headers = &refused.json()["error"]["metadata"]["headers"];
        assert_eq!(headers["X-RateLimit-Remaining"], "5");
    }
}

/// Returns limits that one small call exhausts: the next one is rejected, and a large one always.
fn narrow(dialect: Dialect) -> Limits {
    match dialect {
        Dialect::Gemini => Limits::new().input_tokens_per_minute(3),
        Dialect::DeepSeek | Dialect::Ollama => Limits::new(),
        Dialect::Anthropic => Limits::new().tokens_per_minute(55).output_tokens_per_minute(55),
        _ => Limits::new().requests_per_minute(60).tokens_per_minute(20),
    }
}

/// Returns the error codes of a body, without messages and numbers.
fn codes(response: &ReceivedResponse) -> Vec<Value> {
    let body = response.json();
    let body = if body.is_array() { &body[0] } else { &body };
    let error = if body["error"].is_object() { &body["error"] } else { body };
    let details = &error["details"][0];
    let names = ["type", "code", "status", "object", "raw_status_code"];
    let mut codes: Vec<Value> = names.iter().map(|name| error[name].clone()).collect();
    codes.push(details["violations"][0]["quotaId"].clone());
    codes.push(error["details"]["error_code"].clone());
    codes
}

fn assert_silent(response: &ReceivedResponse, case: &str) {
    let ids = ["x-request-id: ", "request-id: ", "apim-request-id: "];
    let others = response.limit_headers().into_iter();
    let others: Vec<_> =
        others.filter(|field| !ids.iter().any(|id| field.starts_with(id))).collect();
    assert!(others.is_empty(), "{case}: {others:?}");
    if response.status == 200 {
        return;
    }
    let body = response.json();
    let body = if body.is_array() { &body[0] } else { &body };
    let error = [&body["error"]["message"], &body["message"], &body["error"]];
    let message = error.iter().find_map(|text| text.as_str()).unwrap();
    assert!(!message.contains(|letter: char| letter.is_ascii_digit()), "{case}: {message}");
    for word in ["again in", "retry after", "retry in", "regain"] {
        assert!(!message.contains(word), "{case}: {message}");
    }
    for member in ["quotaValue", "RetryInfo", "retryDelay", "RateLimit-"] {
        assert!(!response.body.contains(member), "{case}: {}", response.body);
    }
}

#[tokio::test(start_paused = true)]
async fn silent_account_errors_contain_no_numbers() {
    let faults = [
        Fault::RateLimited { retry_after: Some(SECOND * 17) },
        Fault::RateLimited { retry_after: None },
        Fault::LockOut { length: MILLI, hint: Hint::Sent },
        Fault::DayQuota,
        Fault::InsufficientQuota,
        Fault::ServerError,
        Fault::Unavailable,
        Fault::Overloaded,
    ];
    for dialect in DIALECTS {
        let silent = reporting(dialect, narrow(dialect), Reporting::Never);
        let truthful = reporting(dialect, narrow(dialect), Reporting::Accurate);
        let both = async |call: &Call, case: &str| {
            let (response, truth) = (call.send(&silent).await, call.send(&truthful).await);
            let case = format!("{dialect}: {case}");
            assert_silent(&response, &case);
            assert_eq!(response.status, truth.status, "{case}");
            if response.status != 200 {
                assert_eq!(codes(&response), codes(&truth), "{case}");
            }
            response.status
        };
        let small = Call::new(dialect).output(50);
        assert_eq!(both(&small, "admitted").await, 200);
        let limited = !matches!(dialect, Dialect::DeepSeek | Dialect::Ollama);
        assert_eq!(both(&small, "limited").await, if limited { 429 } else { 200 });
        let mut large = small.clone().field("max_tokens", 2_000).field("system", "x");
        let text = "x".repeat(400);
        large.body["messages"] = serde_json::json!([{ "role": "user", "content": text }]);
        large.body["contents"] = serde_json::json!([{ "parts": [{ "text": text }] }]);
        both(&large, "too large").await;
        for fault in faults {
            if silent.inject("main", fault, 1).is_ok() {
                truthful.inject("main", fault, 1).unwrap();
                both(&small, &format!("{fault:?}")).await;
                advance(MILLI).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn silent_account_hides_its_concurrency() {
    for dialect in [Dialect::OpenAi, Dialect::AzureOpenAi, Dialect::Anthropic, Dialect::Gemini] {
        let account = account(dialect, Limits::new().concurrency(1))
            .first_token(Delay::fixed(SECOND))
            .reporting(Reporting::Never);
        let simulator = with(account);
        let call = Call::new(dialect).output(1);
        let (first, second) = tokio::join!(call.send(&simulator), call.send(&simulator));
        assert_eq!((first.status, second.status), (200, 429), "{dialect}");
        assert_silent(&second, "busy");
    }
}
