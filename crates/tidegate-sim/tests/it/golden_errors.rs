//! Error bodies of OpenAI-like dialects and of Ollama, field by field.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_sim::{Dialect, Fault, Limits, Simulator, Zone};

use crate::client::{Call, ReceivedResponse, simulator};

const THROTTLE: Fault = Fault::RateLimited { retry_after: Some(Duration::from_millis(976)) };
const SILENT: Fault = Fault::RateLimited { retry_after: None };

async fn send_with_fault(
    simulator: &Simulator,
    dialect: Dialect,
    fault: Fault,
) -> ReceivedResponse {
    simulator.inject("main", fault, 1).unwrap();
    Call::new(dialect).send(simulator).await
}

fn openai(message: &str, kind: &str, code: Option<&str>) -> Value {
    json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
}

fn limits() -> Limits {
    Limits::new().requests_per_minute(60).tokens_per_minute(100).requests_per_day(500, Zone::UTC)
}

#[tokio::test(start_paused = true)]
async fn openai_reports_limit_used_requested_and_wait() {
    let simulator = simulator(Dialect::OpenAi, limits());
    let call = Call::new(Dialect::OpenAi).field("max_tokens", 88);
    call.send(&simulator).await;
    let refused = call.send(&simulator).await;
    assert_eq!(
        refused.json(),
        openai(
            "Rate limit reached for m in organization org-sim on tokens per min (TPM): Limit 100, \
             Used 90, Requested 90. Please try again in 48s.",
            "tokens",
            Some("rate_limit_exceeded"),
        )
    );
    let large = call.field("max_tokens", 99).send(&simulator).await;
    assert_eq!((large.status, large.header("retry-after")), (429, None));
    assert_eq!(
        large.json(),
        openai(
            "Request too large for m in organization org-sim on tokens per min (TPM): Limit 100, \
             Requested 101. Send less, or allow less output.",
            "tokens",
            Some("rate_limit_exceeded"),
        )
    );
    let few = crate::client::simulator(Dialect::OpenAi, Limits::new().requests_per_minute(1));
    Call::new(Dialect::OpenAi).send(&few).await;
    let refused = Call::new(Dialect::OpenAi).send(&few).await;
    assert_eq!(
        refused.json(),
        openai(
            "Rate limit reached for m in organization org-sim on requests per min (RPM): Limit 1, \
             Used 1, Requested 1. Please try again in 1m0s.",
            "requests",
            Some("rate_limit_exceeded"),
        )
    );
}

#[tokio::test(start_paused = true)]
async fn openai_formats_injected_errors() {
    let simulator = simulator(Dialect::OpenAi, limits());
    let limited = Some("rate_limit_exceeded");
    for (fault, status, body) in [
        (
            THROTTLE,
            429,
            openai(
                "Rate limit reached for m in organization org-sim. Please try again in 976ms.",
                "requests",
                limited,
            ),
        ),
        (
            SILENT,
            429,
            openai("Rate limit reached for m in organization org-sim.", "requests", limited),
        ),
        (
            Fault::DayQuota,
            429,
            openai(
                "Rate limit reached for m in organization org-sim on requests per day (RPD): Limit \
                 500, Used 500, Requested 1. Please try again in 24h0m0s.",
                "requests",
                limited,
            ),
        ),
        (
            Fault::InsufficientQuota,
            429,
            openai(
                "You have used up your quota; check your plan and billing details.",
                "insufficient_quota",
                Some("insufficient_quota"),
            ),
        ),
        (
            Fault::ServerError,
            500,
            openai("The server had an error while it answered.", "server_error", None),
        ),
        (
            Fault::Unavailable,
            503,
            openai("The model is overloaded; try again later.", "server_error", None),
        ),
        (
            Fault::Overloaded,
            503,
            openai("The model is overloaded; try again later.", "server_error", None),
        ),
    ] {
        let response = send_with_fault(&simulator, Dialect::OpenAi, fault).await;
        assert_eq!((response.status, response.json()), (status, body), "{fault:?}");
        let waits = matches!(fault, THROTTLE | Fault::DayQuota);
        assert_eq!(response.header("retry-after").is_some(), waits, "{fault:?}");
        assert_eq!(response.header("retry-after-ms").is_some(), waits, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn azure_uses_429_as_code() {
    let simulator = simulator(Dialect::AzureOpenAi, limits());
    let body = |message: &str| json!({ "error": { "code": "429", "message": message } });
    let call = Call::new(Dialect::AzureOpenAi).field("max_tokens", 88);
    call.send(&simulator).await;
    assert_eq!(
        call.send(&simulator).await.json(),
        body(
            "Requests to ChatCompletions_Create have exceeded token rate limit of the deployment. \
             Please retry after 48 seconds."
        )
    );
    assert_eq!(
        call.field("max_tokens", 99).send(&simulator).await.json(),
        body(
            "Requests to ChatCompletions_Create have exceeded token rate limit of the deployment. \
             The request alone is larger than the limit."
        )
    );
    let simulator = crate::client::simulator(Dialect::AzureOpenAi, limits());
    for (fault, message) in [
        (
            THROTTLE,
            "Requests to ChatCompletions_Create have exceeded call rate limit of the deployment. \
             Please retry after 1 seconds.",
        ),
        (
            SILENT,
            "Requests to ChatCompletions_Create have exceeded call rate limit of the deployment.",
        ),
        (
            Fault::DayQuota,
            "Requests to ChatCompletions_Create have exceeded call rate limit of the deployment. \
             Please retry after 86400 seconds.",
        ),
        (Fault::Overloaded, "The system is experiencing high demand."),
    ] {
        let response = send_with_fault(&simulator, Dialect::AzureOpenAi, fault).await;
        assert_eq!((response.status, response.json()), (429, body(message)), "{fault:?}");
    }
    assert_eq!(
        send_with_fault(&simulator, Dialect::AzureOpenAi, SILENT).await.header("retry-after"),
        None
    );
    assert_eq!(
        send_with_fault(&simulator, Dialect::AzureOpenAi, Fault::ServerError).await.status,
        500
    );
}

#[tokio::test(start_paused = true)]
async fn groq_uses_openai_format_for_its_own_limits() {
    let simulator = simulator(Dialect::Groq, limits());
    let call = Call::new(Dialect::Groq).field("max_tokens", 88).output(88);
    call.send(&simulator).await;
    assert_eq!(
        call.send(&simulator).await.json(),
        openai(
            "Rate limit reached for model `m` in organization `org_sim` on tokens per min (TPM): \
             Limit 100, Used 90, Requested 90. Please try again in 48s.",
            "tokens",
            Some("rate_limit_exceeded"),
        )
    );
    let month = send_with_fault(&simulator, Dialect::Groq, Fault::InsufficientQuota).await;
    assert_eq!((month.status, month.header("retry-after")), (429, None));
    assert_eq!(
        month.json(),
        openai(
            "The monthly quota of organization `org_sim` is used up.",
            "requests",
            Some("rate_limit_exceeded"),
        )
    );
}

#[tokio::test(start_paused = true)]
async fn mistral_errors_are_flat() {
    let simulator = simulator(Dialect::Mistral, Limits::new().requests_per_minute(1));
    Call::new(Dialect::Mistral).send(&simulator).await;
    let limited = json!({
        "object": "error",
        "message": "Rate limit exceeded",
        "type": "rate_limited",
        "param": null,
        "code": "1300",
        "raw_status_code": 429,
    });
    let refused = Call::new(Dialect::Mistral).send(&simulator).await;
    assert_eq!((refused.status, refused.json()), (429, limited.clone()));
    assert_eq!(refused.header("retry-after"), Some("60"));
    let silent = send_with_fault(&simulator, Dialect::Mistral, SILENT).await;
    assert_eq!((silent.status, silent.json(), silent.header("retry-after")), (429, limited, None));
    let error = send_with_fault(&simulator, Dialect::Mistral, Fault::DayQuota).await;
    assert_eq!(error.json()["code"], "1300");
}

#[tokio::test(start_paused = true)]
async fn together_reports_rate_limits_as_credit_limit() {
    let simulator = simulator(Dialect::Together, Limits::new().requests_per_minute(60));
    Call::new(Dialect::Together).send(&simulator).await;
    let refused = Call::new(Dialect::Together).send(&simulator).await;
    let message = "You have reached the rate limit of the model m.";
    assert_eq!((refused.status, refused.json()), (429, openai(message, "credit_limit", None)));
}

#[tokio::test(start_paused = true)]
async fn openrouter_errors_have_numeric_codes_and_metadata() {
    let simulator = simulator(Dialect::OpenRouter, Limits::new().requests_per_minute(1));
    Call::new(Dialect::OpenRouter).send(&simulator).await;
    let refused = Call::new(Dialect::OpenRouter).send(&simulator).await;
    let metadata = json!({
        "provider_name": "sim",
        "provider_code": 429,
        "headers": {
            "X-RateLimit-Limit": "1",
            "X-RateLimit-Remaining": "0",
            "X-RateLimit-Reset": "1767225660000",
        },
    });
    let expected = json!({ "error": {
        "code": 429,
        "message": "Rate limit exceeded: requests-per-min",
        "metadata": metadata,
    } });
    assert_eq!((refused.status, refused.json()), (429, expected));
    let credit = send_with_fault(&simulator, Dialect::OpenRouter, Fault::InsufficientQuota).await;
    let expected = json!({ "error": {
        "code": 402,
        "message": "There is no credit left.",
        "metadata": { "provider_name": "sim" },
    } });
    assert_eq!((credit.status, credit.json()), (402, expected));
    let day = send_with_fault(&simulator, Dialect::OpenRouter, Fault::DayQuota).await;
    assert_eq!(day.json()["error"]["message"], "Rate limit exceeded: requests-per-day");
    assert_eq!(day.header("x-ratelimit-reset"), Some("1767312000000"));
    let silent = send_with_fault(&simulator, Dialect::OpenRouter, SILENT).await;
    assert!(silent.limit_headers().is_empty(), "{silent:?}");
}

#[tokio::test(start_paused = true)]
async fn deepseek_and_ollama_errors_are_minimal() {
    let simulator = simulator(Dialect::DeepSeek, Limits::new().concurrency(5));
    let refused = send_with_fault(&simulator, Dialect::DeepSeek, THROTTLE).await;
    let body = openai("You are sending requests too fast.", "rate_limit_reached", None);
    assert_eq!((refused.status, refused.json()), (429, body));
    let credit = send_with_fault(&simulator, Dialect::DeepSeek, Fault::InsufficientQuota).await;
    let body = openai("Insufficient Balance", "unknown_error", Some("invalid_request_error"));
    assert_eq!((credit.status, credit.json()), (402, body));
    let simulator = crate::client::simulator(Dialect::Ollama, Limits::new());
    let busy = send_with_fault(&simulator, Dialect::Ollama, Fault::Overloaded).await;
    let body =
        json!({ "error": "server busy, please try again. maximum pending requests exceeded" });
    assert_eq!((busy.status, busy.json()), (503, body));
    let error = send_with_fault(&simulator, Dialect::Ollama, Fault::ServerError).await;
    assert_eq!(
        (error.status, error.json()),
        (500, json!({ "error": "the model runner has stopped" }))
    );
}
