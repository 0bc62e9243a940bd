//! Responses that are not streamed, of every dialect, field by field.

use serde_json::json;
use tidegate_sim::{Dialect, Limits, Output, Simulator};

use crate::client::{Call, account, simulator, with};

fn setup(dialect: Dialect) -> (Simulator, Call) {
    let call = Call::new(dialect)
        .output(3)
        .header("x-sim-input-tokens", "20")
        .header("x-sim-cached-tokens", "5");
    (simulator(dialect, Limits::new()), call)
}

#[tokio::test(start_paused = true)]
async fn openai_like_dialects_share_a_format() {
    for dialect in [
        Dialect::OpenAi,
        Dialect::AzureOpenAi,
        Dialect::Groq,
        Dialect::Mistral,
        Dialect::Together,
        Dialect::OpenRouter,
        Dialect::DeepSeek,
    ] {
        let (simulator, call) = setup(dialect);
        let response = call.send(&simulator).await;
        let expected = json!({
            "id": "chatcmpl-sim-1",
            "object": "chat.completion",
            "created": 1_767_225_600,
            "model": "m",
            "choices": [{
                "index": 0,
                "message": { "role": "assistant", "content": "the sea ran " },
                "logprobs": null,
                "finish_reason": "stop",
            }],
            "usage": {
                "prompt_tokens": 20,
                "completion_tokens": 3,
                "total_tokens": 23,
                "prompt_tokens_details": { "cached_tokens": 5 },
                "completion_tokens_details": { "reasoning_tokens": 0 },
            },
        });
        assert_eq!((response.status, response.json()), (200, expected), "{dialect}");
        assert_eq!(response.header("content-type"), Some("application/json"));
        let short = call.field("max_tokens", 2).send(&simulator).await.json();
        assert_eq!(short["choices"][0]["finish_reason"], "length", "{dialect}");
        assert_eq!(short["usage"]["completion_tokens"], 2, "{dialect}");
    }
}

#[tokio::test(start_paused = true)]
async fn anthropic_reports_cached_tokens_separately() {
    let (simulator, call) = setup(Dialect::Anthropic);
    let expected = json!({
        "id": "msg_sim_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{ "type": "text", "text": "the sea ran " }],
        "stop_reason": "end_turn",
        "stop_sequence": null,
        "usage": {
            "input_tokens": 15,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 5,
            "output_tokens": 3,
        },
    });
    assert_eq!(call.send(&simulator).await.json(), expected);
    let short = call.field("max_tokens", 2).send(&simulator).await.json();
    assert_eq!(short["stop_reason"], "max_tokens");
}

#[tokio::test(start_paused = true)]
async fn gemini_reports_usage_metadata() {
    let (simulator, call) = setup(Dialect::Gemini);
    let expected = json!({
        "candidates": [{
            "content": { "parts": [{ "text": "the sea ran " }], "role": "model" },
            "index": 0,
            "finishReason": "STOP",
        }],
        "usageMetadata": {
            "promptTokenCount": 20,
            "cachedContentTokenCount": 5,
            "candidatesTokenCount": 3,
            "totalTokenCount": 23,
        },
        "modelVersion": "m",
        "responseId": "sim-1",
    });
    assert_eq!(call.send(&simulator).await.json(), expected);
    let short = call.field("generationConfig", json!({ "maxOutputTokens": 2 }));
    let short = short.send(&simulator).await.json();
    assert_eq!(short["candidates"][0]["finishReason"], "MAX_TOKENS");
    let in_query =
        Call::new(Dialect::Gemini).path("/v1beta/models/m:generateContent?key=secret-key");
    let in_query = in_query.header("x-goog-api-key", "");
    assert_eq!(in_query.send(&simulator).await.status, 400, "a header goes first");
}

#[tokio::test(start_paused = true)]
async fn gemini_serves_two_api_versions() {
    let (simulator, call) = setup(Dialect::Gemini);
    for (path, status) in [
        ("/v1beta/models/m:generateContent", 200),
        ("/v1/models/m:generateContent", 200),
        ("/v1/models/m:streamGenerateContent?alt=sse", 200),
        ("/models/m:generateContent", 404),
        ("/v1alpha/models/m:generateContent", 404),
    ] {
        assert_eq!(call.clone().path(path).send(&simulator).await.status, status, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn ollama_reports_eval_counts() {
    let (simulator, call) = setup(Dialect::Ollama);
    let expected = json!({
        "model": "m",
        "created_at": "2026-01-01T00:00:00Z",
        "message": { "role": "assistant", "content": "the sea ran " },
        "done": true,
        "done_reason": "stop",
        "total_duration": 0,
        "load_duration": 0,
        "prompt_eval_count": 20,
        "prompt_eval_cached_count": 5,
        "prompt_eval_duration": 0,
        "eval_count": 3,
        "eval_duration": 0,
    });
    assert_eq!(call.send(&simulator).await.json(), expected);
}

#[tokio::test(start_paused = true)]
async fn embeddings_have_one_vector_per_text() {
    for (dialect, path) in [
        (Dialect::OpenAi, "/v1/embeddings"),
        (Dialect::AzureOpenAi, "/openai/deployments/m/embeddings?api-version=1"),
        (Dialect::Mistral, "/v1/embeddings"),
        (Dialect::Together, "/v1/embeddings"),
    ] {
        let simulator = simulator(dialect, Limits::new());
        let call = Call::new(dialect).path(path).field("input", json!(["12345678", "1234"]));
        let response = call.send(&simulator).await.json();
        assert_eq!(
            response["usage"],
            json!({ "prompt_tokens": 3, "total_tokens": 3 }),
            "{dialect}"
        );
        assert_eq!(response["data"].as_array().unwrap().len(), 2, "{dialect}");
        assert_eq!(response["data"][1]["index"], 1, "{dialect}");
    }
    let none = simulator(Dialect::Groq, Limits::new());
    let call = Call::new(Dialect::Groq).path("/openai/v1/embeddings").field("input", "a");
    assert_eq!(call.send(&none).await.status, 404);
}

#[tokio::test(start_paused = true)]
async fn response_length_comes_from_the_seed_or_the_request() {
    let lengths = async |seed| {
        let account = account(Dialect::OpenAi, Limits::new()).output(Output::between(10..=500));
        let simulator = Simulator::builder().account(account).seed(seed).build().unwrap();
        let mut lengths = Vec::new();
        for _ in 0..8 {
            let response = Call::new(Dialect::OpenAi).send(&simulator).await.json();
            lengths.push(response["usage"]["completion_tokens"].as_u64().unwrap());
        }
        lengths
    };
    let first = lengths(1).await;
    assert!(first.iter().all(|length| (10..=500).contains(length)), "{first:?}");
    assert_eq!(first, lengths(1).await);
    assert_ne!(first, lengths(2).await);
    let fixed = with(account(Dialect::OpenAi, Limits::new()).output(Output::fixed(9)));
    let response = Call::new(Dialect::OpenAi).send(&fixed).await.json();
    assert_eq!(response["usage"]["completion_tokens"], 9);
}
