//! Error bodies of Anthropic and Gemini, field by field.

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

#[tokio::test(start_paused = true)]
async fn anthropic_distinguishes_rate_spend_and_overload() {
    let limits = Limits::new().requests_per_minute(60).output_tokens_per_minute(70);
    let simulator = simulator(Dialect::Anthropic, limits);
    let body = |number: u64, error: Value| json!({ "type": "error", "error": error, "request_id": format!("req_sim_{number}") });
    let call = Call::new(Dialect::Anthropic).output(50);
    call.send(&simulator).await;
    let refused = call.send(&simulator).await;
    let error = json!({
        "type": "rate_limit_error",
        "message": "This request would exceed your limit of 70 output tokens per minute.",
    });
    assert_eq!((refused.status, refused.json()), (429, body(2, error)));
    assert_eq!(refused.header("retry-after"), Some("26"));
    let large = call.field("max_tokens", 71).send(&simulator).await;
    let error = json!({
        "type": "rate_limit_error",
        "message": "This request alone exceeds your limit of 70 output tokens per minute.",
    });
    assert_eq!((large.status, large.json()), (429, body(3, error)));
    assert_eq!(large.header("retry-after"), None);
    let error = |kind: &str, message: &str| json!({ "type": kind, "message": message });
    let spend = json!({
        "type": "rate_limit_error",
        "message": "The spend limit of your organization is reached.",
        "details": { "error_code": "enforced_spend_limit_reached" },
    });
    let rate = "This request would exceed your rate limit.";
    let usage = "You have reached your specified API usage limits. You will regain access on \
                 2026-01-02T00:00:00Z.";
    for (number, (fault, status, error, wait)) in [
        (THROTTLE, 429, error("rate_limit_error", rate), Some("1")),
        (SILENT, 429, error("rate_limit_error", rate), None),
        (Fault::InsufficientQuota, 429, spend, None),
        (Fault::DayQuota, 400, error("invalid_request_error", usage), None),
        (Fault::ServerError, 500, error("api_error", "Internal server error"), None),
        (Fault::Unavailable, 503, error("api_error", "Service unavailable"), None),
        (Fault::Overloaded, 529, error("overloaded_error", "Overloaded"), None),
    ]
    .into_iter()
    .enumerate()
    {
        simulator.inject("main", fault, 1).unwrap();
        let response = Call::new(Dialect::Anthropic).field("max_tokens", 1).send(&simulator).await;
        let expected = body(number as u64 + 4, error);
        assert_eq!((response.status, response.json()), (status, expected), "{fault:?}");
        assert_eq!(response.header("retry-after"), wait, "{fault:?}");
    }
}

fn gemini(message: &str, quota: Option<(&str, &str, &str)>, retry: Option<&str>) -> Value {
    let mut error = json!({ "code": 429, "message": message, "status": "RESOURCE_EXHAUSTED" });
    let mut details = Vec::new();
    if let Some((metric, id, value)) = quota {
        details.push(json!({
            "@type": "type.googleapis.com/google.rpc.QuotaFailure",
            "violations": [{
                "quotaMetric": format!("generativelanguage.googleapis.com/{metric}"),
                "quotaId": id,
                "quotaDimensions": { "location": "global", "model": "m" },
                "quotaValue": value,
            }],
        }));
    }
    if let Some(delay) = retry {
        details.push(json!({
            "@type": "type.googleapis.com/google.rpc.RetryInfo",
            "retryDelay": delay,
        }));
    }
    if !details.is_empty() {
        error["details"] = details.into();
    }
    json!({ "error": error })
}

#[tokio::test(start_paused = true)]
async fn gemini_reports_details_and_a_wrong_delay_for_days() {
    let limits = Limits::new()
        .requests_per_minute(7)
        .input_tokens_per_minute(100)
        .requests_per_day(8, Zone::hours(-8));
    let simulator = simulator(Dialect::Gemini, limits);
    let call = Call::new(Dialect::Gemini);
    let requests = "generate_content_requests";
    let tokens = "generate_content_input_token_count";
    let per_minute = "GenerateRequestsPerMinutePerProjectPerModel";
    let per_day = "GenerateRequestsPerDayPerProjectPerModel";
    let input = "GenerateContentInputTokensPerModelPerMinute";
    let exceeded = "You exceeded your current quota.";
    for _ in 0..7 {
        assert_eq!(call.send(&simulator).await.status, 200);
    }
    let wait = format!("{exceeded} Please retry in 8.571428572s.");
    assert_eq!(
        call.send(&simulator).await.json(),
        gemini(&wait, Some((requests, per_minute, "7")), Some("9s"))
    );
    tokio::time::advance(Duration::from_secs(60)).await;
    let text = "x".repeat(396);
    let long = call.clone().field("contents", json!([{ "parts": [{ "text": text }] }]));
    assert_eq!(long.send(&simulator).await.status, 200);
    let lie = format!("{exceeded} Please retry in 22s.");
    let spent = call.send(&simulator).await;
    assert_eq!(
        (spent.status, spent.json()),
        (429, gemini(&lie, Some((requests, per_day, "8")), Some("22s")))
    );
    let streamed = call.clone().path("/v1beta/models/m:streamGenerateContent?alt=sse");
    let wrapped = json!([gemini(&lie, Some((requests, per_day, "8")), Some("22s"))]);
    assert_eq!(streamed.send(&simulator).await.json(), wrapped);

    let small = Limits::new().input_tokens_per_minute(100);
    let simulator = crate::client::simulator(Dialect::Gemini, small);
    long.send(&simulator).await;
    let wait = format!("{exceeded} Please retry in 58.8s.");
    assert_eq!(
        long.send(&simulator).await.json(),
        gemini(&wait, Some((tokens, input, "100")), Some("59s"))
    );
    let zero = format!("{exceeded} limit: 0, model: m");
    let throttled = format!("{exceeded} Please retry in 0.976s.");
    for (fault, expected) in [
        (THROTTLE, gemini(&throttled, Some((requests, per_minute, "0")), Some("1s"))),
        (SILENT, gemini(exceeded, None, None)),
        (Fault::DayQuota, gemini(&lie, Some((requests, per_day, "200")), Some("22s"))),
        (Fault::InsufficientQuota, gemini(&zero, Some((requests, per_day, "0")), None)),
    ] {
        let response = send_with_fault(&simulator, Dialect::Gemini, fault).await;
        assert_eq!((response.status, response.json()), (429, expected), "{fault:?}");
    }
    let simulator = crate::client::simulator(Dialect::Gemini, Limits::new());
    let error = send_with_fault(&simulator, Dialect::Gemini, Fault::Overloaded).await;
    assert_eq!((error.status, &error.json()["error"]["status"]), (503, &json!("UNAVAILABLE")));
    let error = send_with_fault(&simulator, Dialect::Gemini, Fault::ServerError).await;
    assert_eq!((error.status, &error.json()["error"]["status"]), (500, &json!("INTERNAL")));
}
