//! All headers about limits, of every dialect, literally. The wall clock starts at the beginning of
//! 2026.

use std::time::Duration;

use tidegate_sim::{Dialect, Fault, Limits, Zone};

use crate::client::{Call, ReceivedResponse, simulator};

fn minute() -> Limits {
    Limits::new().requests_per_minute(60).tokens_per_minute(6_000)
}

#[tokio::test(start_paused = true)]
async fn openai_reports_limits_always_and_waits_on_rejection() {
    let simulator =
        simulator(Dialect::OpenAi, Limits::new().requests_per_minute(2).tokens_per_minute(6_000));
    let call = Call::new(Dialect::OpenAi).field("max_tokens", 98);
    let response = call.send(&simulator).await;
    assert_eq!(
        response.limit_headers(),
        [
            "x-ratelimit-limit-requests: 2",
            "x-ratelimit-limit-tokens: 6000",
            "x-ratelimit-remaining-requests: 1",
            "x-ratelimit-remaining-tokens: 5900",
            "x-ratelimit-reset-requests: 30s",
            "x-ratelimit-reset-tokens: 1s",
            "x-request-id: req_sim_1",
        ]
    );
    assert_eq!(response.header("date"), Some("Thu, 01 Jan 2026 00:00:00 GMT"));
    call.send(&simulator).await;
    tokio::time::advance(Duration::from_millis(500)).await;
    let refused = call.send(&simulator).await;
    assert_eq!(refused.status, 429);
    // Rejections count, so the refill of half a second is lost.
    assert_eq!(
        refused.limit_headers(),
        [
            "retry-after: 30",
            "retry-after-ms: 30000",
            "x-ratelimit-limit-requests: 2",
            "x-ratelimit-limit-tokens: 6000",
            "x-ratelimit-remaining-requests: 0",
            "x-ratelimit-remaining-tokens: 5850",
            "x-ratelimit-reset-requests: 1m0s",
            "x-ratelimit-reset-tokens: 1.5s",
            "x-request-id: req_sim_3",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn refilling_day_reports_time_until_full() {
    for dialect in [Dialect::OpenAi, Dialect::Groq] {
        let limits = Limits::new().requests_per_minute(60).requests_per_day_refilling(200);
        let simulator = simulator(dialect, limits);
        let call = Call::new(dialect);
        let limit_headers = |response: &ReceivedResponse| {
            ["limit", "remaining", "reset"].map(|name| {
                let name = format!("x-ratelimit-{name}-requests");
                response.header(&name).unwrap().to_owned()
            })
        };
        assert_eq!(
            limit_headers(&call.send(&simulator).await),
            ["200", "199", "7m12s"],
            "{dialect}"
        );
        for _ in 1..200 {
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(call.send(&simulator).await.status, 200);
        }
        let refused = call.send(&simulator).await;
        assert_eq!((refused.status, refused.header("retry-after")), (429, Some("233")));
        assert_eq!(limit_headers(&refused), ["200", "0", "23h56m41s"], "{dialect}");
        tokio::time::advance(Duration::from_secs(233)).await;
        assert_eq!(call.send(&simulator).await.status, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn azure_reports_whole_seconds_and_misspells_one_header() {
    let simulator = simulator(Dialect::AzureOpenAi, Limits::azure_deployment(1_000));
    let call = Call::new(Dialect::AzureOpenAi).field("max_tokens", 598);
    let response = call.send(&simulator).await;
    assert_eq!(
        response.limit_headers(),
        [
            "apim-request-id: sim-1",
            "x-ratelimit-limit-requests: 6",
            "x-ratelimit-limit-tokens: 1000",
            "x-ratelimit-remaining-requests: 5",
            "x-ratelimit-remaining-tokens: 400",
            "x-ratelimit-reset-requests: 10",
            "x-ratelimit-reset-tokens: 36",
        ]
    );
    let refused = call.send(&simulator).await;
    assert_eq!(
        refused.limit_headers(),
        [
            "apim-request-id: sim-2",
            "policy-id: DeploymentRatelimit-Token",
            "retry-after: 12",
            "retry-after-ms: 12000",
            "x-rate-limit-reset-tokens: 36",
            "x-ratelimit-limit-requests: 6",
            "x-ratelimit-limit-tokens: 1000",
            "x-ratelimit-remaining-requests: 5",
            "x-ratelimit-remaining-tokens: 400",
            "x-ratelimit-reset-requests: 10",
            "x-ratelimit-reset-tokens: 36",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn anthropic_reports_dates_for_each_limit() {
    let limits = Limits::new()
        .requests_per_minute(1)
        .tokens_per_minute(6_000)
        .input_tokens_per_minute(600)
        .output_tokens_per_minute(60);
    let simulator = simulator(Dialect::Anthropic, limits);
    let call = Call::new(Dialect::Anthropic).output(30);
    let response = call.send(&simulator).await;
    // Two of 600 tokens take 0.2 s to refill, which is within the first second.
    let expected = [
        "anthropic-ratelimit-input-tokens-limit: 600",
        "anthropic-ratelimit-input-tokens-remaining: 598",
        "anthropic-ratelimit-input-tokens-reset: 2026-01-01T00:00:01Z",
        "anthropic-ratelimit-output-tokens-limit: 60",
        "anthropic-ratelimit-output-tokens-remaining: 30",
        "anthropic-ratelimit-output-tokens-reset: 2026-01-01T00:00:30Z",
        "anthropic-ratelimit-requests-limit: 1",
        "anthropic-ratelimit-requests-remaining: 0",
        "anthropic-ratelimit-requests-reset: 2026-01-01T00:01:00Z",
        "anthropic-ratelimit-tokens-limit: 6000",
        "anthropic-ratelimit-tokens-remaining: 5968",
        "anthropic-ratelimit-tokens-reset: 2026-01-01T00:00:01Z",
        "request-id: req_sim_1",
    ];
    assert_eq!(response.limit_headers(), expected);
    let refused = call.send(&simulator).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("60")));
    assert_eq!(refused.limit_headers()[..12], expected[..12]);

    let few = crate::client::simulator(Dialect::Anthropic, Limits::new().requests_per_minute(5));
    let response = call.send(&few).await;
    assert!(!response.limit_headers().iter().any(|line| line.contains("tokens")), "{response:?}");
}

#[tokio::test(start_paused = true)]
async fn full_bucket_resets_now() {
    let simulator = simulator(Dialect::Anthropic, Limits::new().output_tokens_per_minute(90));
    tokio::time::advance(Duration::from_millis(1_500)).await;
    let response = Call::new(Dialect::Anthropic).output(0).send(&simulator).await;
    // No output was sent, so the bucket is full again and its reset is now, rounded up.
    assert_eq!(
        response.header("anthropic-ratelimit-output-tokens-reset"),
        Some("2026-01-01T00:00:02Z")
    );
}

#[tokio::test(start_paused = true)]
async fn groq_reports_requests_per_day_and_tokens_per_minute() {
    let limits = minute().requests_per_day(1_000, Zone::UTC);
    let simulator = simulator(Dialect::Groq, limits);
    let call = Call::new(Dialect::Groq).field("max_completion_tokens", 98).output(98);
    tokio::time::advance(Duration::from_secs(3_600)).await;
    let response = call.send(&simulator).await;
    let expected = [
        "x-ratelimit-limit-requests: 1000",
        "x-ratelimit-limit-tokens: 6000",
        "x-ratelimit-remaining-requests: 999",
        "x-ratelimit-remaining-tokens: 5900",
        "x-ratelimit-reset-requests: 23h0m0s",
        "x-ratelimit-reset-tokens: 1s",
        "x-request-id: req_sim_1",
    ];
    assert_eq!(response.limit_headers(), expected);
    simulator
        .inject("main", Fault::RateLimited { retry_after: Some(Duration::from_millis(2_100)) }, 1)
        .unwrap();
    let refused = call.send(&simulator).await;
    assert_eq!(refused.limit_headers()[0], "retry-after: 3");
    assert_eq!(refused.limit_headers()[1..7], expected[..6]);
}

#[tokio::test(start_paused = true)]
async fn mistral_reports_query_cost_and_no_resets() {
    let simulator = simulator(Dialect::Mistral, minute());
    let call = Call::new(Dialect::Mistral).output(50);
    let response = call.send(&simulator).await;
    let limits = [
        "x-ratelimit-limit-req-minute: 60",
        "x-ratelimit-limit-tokens-minute: 6000",
        "x-ratelimit-remaining-req-minute: 59",
        "x-ratelimit-remaining-tokens-minute: 5948",
    ];
    assert_eq!(response.limit_headers()[..4], limits);
    assert_eq!(response.limit_headers()[4..], ["x-ratelimit-tokens-query-cost: 52"]);
    let throttle = Fault::RateLimited { retry_after: Some(Duration::from_secs(9)) };
    simulator.inject("main", throttle, 1).unwrap();
    let refused = call.send(&simulator).await;
    assert_eq!(refused.limit_headers()[..1], ["retry-after: 9"]);
    assert_eq!(refused.limit_headers()[1..], limits);
}

#[tokio::test(start_paused = true)]
async fn together_reports_limits_per_second() {
    let limits = Limits::new().requests_per_minute(120).tokens_per_minute(6_000);
    let simulator = simulator(Dialect::Together, limits);
    let call = Call::new(Dialect::Together).output(98);
    tokio::time::advance(Duration::from_millis(300)).await;
    let response = call.send(&simulator).await;
    assert_eq!(
        response.limit_headers(),
        [
            "x-ratelimit-limit: 2",
            "x-ratelimit-remaining: 1",
            "x-ratelimit-reset: 1",
            "x-tokenlimit-limit: 100",
            "x-tokenlimit-remaining: 100",
        ]
    );
    assert_eq!(call.send(&simulator).await.status, 200);
    let refused = call.send(&simulator).await;
    assert_eq!(refused.status, 429);
    assert_eq!(
        refused.limit_headers(),
        [
            "retry-after: 1",
            "x-ratelimit-limit: 2",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 1",
            "x-tokenlimit-limit: 100",
            "x-tokenlimit-remaining: 100",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn openrouter_reports_limits_only_on_errors() {
    let simulator = simulator(Dialect::OpenRouter, Limits::new().requests_per_minute(1));
    let call = Call::new(Dialect::OpenRouter);
    assert!(call.send(&simulator).await.limit_headers().is_empty());
    let refused = call.send(&simulator).await;
    assert_eq!(
        refused.limit_headers(),
        [
            "retry-after: 60",
            "x-ratelimit-limit: 1",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 1767225660000",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn gemini_deepseek_and_ollama_send_no_limit_headers() {
    for (dialect, limits) in [
        (Dialect::Gemini, Limits::new().requests_per_minute(1)),
        (Dialect::DeepSeek, Limits::new().concurrency(1)),
        (Dialect::Ollama, Limits::new()),
    ] {
        let simulator = simulator(dialect, limits);
        let call = Call::new(dialect);
        let response = call.send(&simulator).await;
        assert_eq!((response.status, response.limit_headers()), (200, Vec::new()), "{dialect}");
        simulator.inject("main", Fault::Overloaded, 1).unwrap();
        let refused = call.send(&simulator).await;
        assert_ne!(refused.status, 200);
        assert!(refused.limit_headers().is_empty(), "{dialect}");
    }
}
