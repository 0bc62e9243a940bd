//! Every header that tells of a limit, of every dialect, to the last character. The wall clock
//! starts with 2026.

use std::time::Duration;

use tidegate_sim::{Dialect, Fault, Limits, Zone};

use crate::client::{Answer, Call, simulator};

fn minute() -> Limits {
    Limits::new().requests_per_minute(60).tokens_per_minute(6_000)
}

#[tokio::test(start_paused = true)]
async fn openai_tells_limits_on_every_answer_and_waits_on_refusals() {
    let simulator =
        simulator(Dialect::OpenAi, Limits::new().requests_per_minute(2).tokens_per_minute(6_000));
    let call = Call::new(Dialect::OpenAi).field("max_tokens", 98);
    let answer = call.send(&simulator).await;
    assert_eq!(
        answer.told(),
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
    assert_eq!(answer.header("date"), Some("Thu, 01 Jan 2026 00:00:00 GMT"));
    call.send(&simulator).await;
    tokio::time::advance(Duration::from_millis(500)).await;
    let refused = call.send(&simulator).await;
    assert_eq!(refused.status, 429);
    // Refusals count, so the half second that had flowed in is lost.
    assert_eq!(
        refused.told(),
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
async fn a_day_that_refills_is_told_until_it_is_full() {
    for dialect in [Dialect::OpenAi, Dialect::Groq] {
        let limits = Limits::new().requests_per_minute(60).requests_per_day_refilling(200);
        let simulator = simulator(dialect, limits);
        let call = Call::new(dialect);
        let told = |answer: &Answer| {
            ["limit", "remaining", "reset"].map(|name| {
                let name = format!("x-ratelimit-{name}-requests");
                answer.header(&name).unwrap().to_owned()
            })
        };
        assert_eq!(told(&call.send(&simulator).await), ["200", "199", "7m12s"], "{dialect}");
        for _ in 1..200 {
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(call.send(&simulator).await.status, 200);
        }
        let refused = call.send(&simulator).await;
        assert_eq!((refused.status, refused.header("retry-after")), (429, Some("233")));
        assert_eq!(told(&refused), ["200", "0", "23h56m41s"], "{dialect}");
        tokio::time::advance(Duration::from_secs(233)).await;
        assert_eq!(call.send(&simulator).await.status, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn azure_tells_whole_seconds_and_misspells_one_header() {
    let simulator = simulator(Dialect::AzureOpenAi, Limits::azure_deployment(1_000));
    let call = Call::new(Dialect::AzureOpenAi).field("max_tokens", 598);
    let answer = call.send(&simulator).await;
    assert_eq!(
        answer.told(),
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
        refused.told(),
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
async fn anthropic_tells_dates_for_each_family_it_limits() {
    let limits = Limits::new()
        .requests_per_minute(1)
        .tokens_per_minute(6_000)
        .input_tokens_per_minute(600)
        .output_tokens_per_minute(60);
    let simulator = simulator(Dialect::Anthropic, limits);
    let call = Call::new(Dialect::Anthropic).output(30);
    let answer = call.send(&simulator).await;
    // Two tokens of 600 take 0.2 s, which is within the first second.
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
    assert_eq!(answer.told(), expected);
    let refused = call.send(&simulator).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("60")));
    assert_eq!(refused.told()[..12], expected[..12]);

    let few = crate::client::simulator(Dialect::Anthropic, Limits::new().requests_per_minute(5));
    let answer = call.send(&few).await;
    assert!(!answer.told().iter().any(|line| line.contains("tokens")), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_is_full_resets_now() {
    let simulator = simulator(Dialect::Anthropic, Limits::new().output_tokens_per_minute(90));
    tokio::time::advance(Duration::from_millis(1_500)).await;
    let answer = Call::new(Dialect::Anthropic).output(0).send(&simulator).await;
    // Nothing was said, so the bucket is full again, and its date is now, rounded up.
    assert_eq!(
        answer.header("anthropic-ratelimit-output-tokens-reset"),
        Some("2026-01-01T00:00:02Z")
    );
}

#[tokio::test(start_paused = true)]
async fn groq_tells_requests_of_the_day_and_tokens_of_the_minute() {
    let limits = minute().requests_per_day(1_000, Zone::UTC);
    let simulator = simulator(Dialect::Groq, limits);
    let call = Call::new(Dialect::Groq).field("max_completion_tokens", 98).output(98);
    tokio::time::advance(Duration::from_secs(3_600)).await;
    let answer = call.send(&simulator).await;
    let expected = [
        "x-ratelimit-limit-requests: 1000",
        "x-ratelimit-limit-tokens: 6000",
        "x-ratelimit-remaining-requests: 999",
        "x-ratelimit-remaining-tokens: 5900",
        "x-ratelimit-reset-requests: 23h0m0s",
        "x-ratelimit-reset-tokens: 1s",
        "x-request-id: req_sim_1",
    ];
    assert_eq!(answer.told(), expected);
    simulator
        .inject("main", Fault::RateLimited { retry_after: Some(Duration::from_millis(2_100)) }, 1)
        .unwrap();
    let refused = call.send(&simulator).await;
    assert_eq!(refused.told()[0], "retry-after: 3");
    assert_eq!(refused.told()[1..7], expected[..6]);
}

#[tokio::test(start_paused = true)]
async fn mistral_tells_what_a_query_costs_and_no_resets() {
    let simulator = simulator(Dialect::Mistral, minute());
    let call = Call::new(Dialect::Mistral).output(50);
    let answer = call.send(&simulator).await;
    let limits = [
        "x-ratelimit-limit-req-minute: 60",
        "x-ratelimit-limit-tokens-minute: 6000",
        "x-ratelimit-remaining-req-minute: 59",
        "x-ratelimit-remaining-tokens-minute: 5948",
    ];
    assert_eq!(answer.told()[..4], limits);
    assert_eq!(answer.told()[4..], ["x-ratelimit-tokens-query-cost: 52"]);
    let throttle = Fault::RateLimited { retry_after: Some(Duration::from_secs(9)) };
    simulator.inject("main", throttle, 1).unwrap();
    let refused = call.send(&simulator).await;
    assert_eq!(refused.told()[..1], ["retry-after: 9"]);
    assert_eq!(refused.told()[1..], limits);
}

#[tokio::test(start_paused = true)]
async fn together_tells_limits_of_the_second() {
    let limits = Limits::new().requests_per_minute(120).tokens_per_minute(6_000);
    let simulator = simulator(Dialect::Together, limits);
    let call = Call::new(Dialect::Together).output(98);
    tokio::time::advance(Duration::from_millis(300)).await;
    let answer = call.send(&simulator).await;
    assert_eq!(
        answer.told(),
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
        refused.told(),
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
async fn openrouter_tells_limits_on_errors_alone() {
    let simulator = simulator(Dialect::OpenRouter, Limits::new().requests_per_minute(1));
    let call = Call::new(Dialect::OpenRouter);
    assert!(call.send(&simulator).await.told().is_empty());
    let refused = call.send(&simulator).await;
    assert_eq!(
        refused.told(),
        [
            "retry-after: 60",
            "x-ratelimit-limit: 1",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 1767225660000",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn gemini_deepseek_and_ollama_tell_nothing_in_headers() {
    for (dialect, limits) in [
        (Dialect::Gemini, Limits::new().requests_per_minute(1)),
        (Dialect::DeepSeek, Limits::new().concurrency(1)),
        (Dialect::Ollama, Limits::new()),
    ] {
        let simulator = simulator(dialect, limits);
        let call = Call::new(dialect);
        let answer = call.send(&simulator).await;
        assert_eq!((answer.status, answer.told()), (200, Vec::new()), "{dialect}");
        simulator.inject("main", Fault::Overloaded, 1).unwrap();
        let refused = call.send(&simulator).await;
        assert_ne!(refused.status, 200);
        assert!(refused.told().is_empty(), "{dialect}");
    }
}
