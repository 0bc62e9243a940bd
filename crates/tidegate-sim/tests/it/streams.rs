//! Streams of every dialect: events, order, timing, and cut streams.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_sim::{CallEnding, Delay, Dialect, Fault, Limits};
use tokio::time::Instant;

use crate::client::{Call, ReceivedResponse, account, simulator, with};

const MILLI: Duration = Duration::from_millis(1);

fn streamed(dialect: Dialect) -> Call {
    let call = Call::new(dialect).output(2);
    match dialect {
        Dialect::Gemini => call.path("/v1beta/models/m:streamGenerateContent?alt=sse"),
        _ => call.field("stream", true),
    }
}

async fn stream(dialect: Dialect) -> ReceivedResponse {
    streamed(dialect).send(&simulator(dialect, Limits::new())).await
}

fn chunk(choices: &Value) -> Value {
    json!({
        "id": "chatcmpl-sim-1",
        "object": "chat.completion.chunk",
        "created": 1_767_225_600,
        "model": "m",
        "choices": choices,
    })
}

fn delta(delta: &Value, finish: Option<&str>) -> Value {
    chunk(&json!([{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish }]))
}

fn usage(input: u64, output: u64) -> Value {
    json!({
        "prompt_tokens": input,
        "completion_tokens": output,
        "total_tokens": input + output,
        "prompt_tokens_details": { "cached_tokens": 0 },
        "completion_tokens_details": { "reasoning_tokens": 0 },
    })
}

#[tokio::test(start_paused = true)]
async fn openai_reports_usage_only_on_request() {
    let response = stream(Dialect::OpenAi).await;
    assert_eq!(response.header("content-type"), Some("text/event-stream"));
    assert!(response.is_complete && response.body.ends_with("data: [DONE]\n\n"));
    let plain = [
        delta(&json!({ "role": "assistant", "content": "" }), None),
        delta(&json!({ "content": "the " }), None),
        delta(&json!({ "content": "sea " }), None),
        delta(&json!({}), Some("stop")),
    ];
    assert_eq!(response.events(), plain);
    let call = streamed(Dialect::OpenAi).field("stream_options", json!({ "include_usage": true }));
    let events = call.send(&simulator(Dialect::OpenAi, Limits::new())).await.events();
    let mut expected: Vec<Value> = plain.into_iter().chain([chunk(&json!([]))]).collect();
    for event in &mut expected {
        event["usage"] = Value::Null;
    }
    expected[4]["usage"] = usage(2, 2);
    assert_eq!(events, expected);
}

#[tokio::test(start_paused = true)]
async fn mistral_reports_usage_in_the_last_chunk() {
    let events = stream(Dialect::Mistral).await.events();
    assert_eq!(events.len(), 4);
    assert_eq!(events[3]["usage"], usage(2, 2));
    assert!(events[..3].iter().all(|event| event.get("usage").is_none()));
}

#[tokio::test(start_paused = true)]
async fn anthropic_names_events_and_accumulates_usage() {
    let response = stream(Dialect::Anthropic).await;
    let names: Vec<&str> =
        response.body.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    let expected = [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(names, expected);
    let events = response.events();
    let types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, expected);
    let start = json!({
        "input_tokens": 2,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 1,
    });
    assert_eq!(events[0]["message"]["usage"], start);
    assert_eq!(events[3]["delta"], json!({ "type": "text_delta", "text": "the " }));
    assert_eq!(events[6]["usage"], json!({ "output_tokens": 2 }));
    assert_eq!(events[6]["delta"]["stop_reason"], "end_turn");
}

#[tokio::test(start_paused = true)]
async fn gemini_reports_usage_in_every_chunk() {
    let events = stream(Dialect::Gemini).await.events();
    assert_eq!(events.len(), 2);
    assert_eq!(events[0]["usageMetadata"]["candidatesTokenCount"], 1);
    assert_eq!(events[0]["candidates"][0].get("finishReason"), None);
    assert_eq!(events[1]["usageMetadata"]["totalTokenCount"], 4);
    assert_eq!(events[1]["candidates"][0]["finishReason"], "STOP");
    // Without `alt=sse` the stream is one JSON list.
    let list = streamed(Dialect::Gemini).path("/v1beta/models/m:streamGenerateContent");
    let list = list.send(&simulator(Dialect::Gemini, Limits::new())).await;
    assert_eq!(list.header("content-type"), Some("application/json; charset=UTF-8"));
    assert_eq!(list.json().as_array().unwrap(), &events);
}

#[tokio::test(start_paused = true)]
async fn ollama_streams_json_lines_by_default() {
    let mut call = streamed(Dialect::Ollama);
    call.body.as_object_mut().unwrap().remove("stream");
    let response = call.send(&simulator(Dialect::Ollama, Limits::new())).await;
    assert_eq!(response.header("content-type"), Some("application/x-ndjson"));
    let lines: Vec<Value> =
        response.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0]["message"]["content"], "the ");
    assert_eq!((&lines[1]["done"], lines[1].get("eval_count")), (&json!(false), None));
    assert_eq!((&lines[2]["done"], &lines[2]["eval_count"]), (&json!(true), &json!(2)));
}

#[tokio::test(start_paused = true)]
async fn empty_response_is_terminated() {
    for dialect in [Dialect::OpenAi, Dialect::Anthropic, Dialect::Gemini, Dialect::Ollama] {
        let response = streamed(dialect).output(0).send(&simulator(dialect, Limits::new())).await;
        assert!(response.is_complete && !response.body.is_empty(), "{dialect}");
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_arrive_on_schedule() {
    let account = account(Dialect::OpenAi, Limits::new())
        .first_token(Delay::fixed(MILLI * 300))
        .per_token(Delay::fixed(MILLI * 20));
    let simulator = with(account);
    let began = Instant::now();
    streamed(Dialect::OpenAi).output(11).send(&simulator).await;
    assert_eq!(began.elapsed(), MILLI * 500);
    let began = Instant::now();
    Call::new(Dialect::OpenAi).output(11).send(&simulator).await;
    assert_eq!(began.elapsed(), MILLI * 500, "a response that is not streamed takes as long");
}

#[tokio::test(start_paused = true)]
async fn jitter_is_seeded_and_bounded() {
    let times = async |seed| {
        let account = account(Dialect::OpenAi, Limits::new())
            .first_token(Delay::between(MILLI * 100..=MILLI * 120));
        let builder = tidegate_sim::Simulator::builder().account(account).seed(seed);
        let simulator = builder.build().unwrap();
        let mut times = Vec::new();
        for _ in 0..6 {
            let began = Instant::now();
            Call::new(Dialect::OpenAi).send(&simulator).await;
            times.push(began.elapsed());
        }
        times
    };
    let first = times(1).await;
    // Timers have a resolution of one millisecond.
    assert!(first.iter().all(|time| (MILLI * 100..=MILLI * 121).contains(time)), "{first:?}");
    assert_eq!(first, times(1).await);
    assert_ne!(first, times(2).await);
}

#[tokio::test(start_paused = true)]
async fn cut_stream_has_partial_content_and_no_end() {
    for dialect in [Dialect::OpenAi, Dialect::Anthropic, Dialect::Gemini, Dialect::Ollama] {
        let simulator = simulator(dialect, Limits::new());
        simulator.inject("main", Fault::Cut { after: 3 }, 1).unwrap();
        let response = streamed(dialect).output(10).send(&simulator).await;
        assert_eq!((response.status, response.is_complete), (200, false), "{dialect}");
        for (word, sent_text) in [("the ", true), ("sea ", true), ("ran ", true), ("out ", false)] {
            assert_eq!(response.body.contains(word), sent_text, "{dialect} {word}");
        }
        assert!(!response.body.contains("[DONE]"));
        assert_eq!(simulator.ledger().entries()[0].ending, CallEnding::Cut);
    }
}

#[tokio::test(start_paused = true)]
async fn cut_before_the_first_token_sends_only_headers() {
    let simulator = simulator(Dialect::Gemini, Limits::new());
    simulator.inject("main", Fault::Cut { after: 0 }, 1).unwrap();
    let response = streamed(Dialect::Gemini).send(&simulator).await;
    assert_eq!((response.status, response.is_complete, response.body.as_str()), (200, false, ""));
}

#[tokio::test(start_paused = true)]
async fn cut_after_the_last_token_omits_the_end() {
    let simulator = simulator(Dialect::OpenAi, Limits::new());
    simulator.inject("main", Fault::Cut { after: 99 }, 1).unwrap();
    let response = streamed(Dialect::OpenAi).send(&simulator).await;
    assert!(!response.is_complete && response.body.contains("sea "));
    assert!(!response.body.contains("[DONE]"));
}

#[tokio::test(start_paused = true)]
async fn whole_response_is_cut_in_half() {
    let simulator = simulator(Dialect::OpenAi, Limits::new());
    let whole = Call::new(Dialect::OpenAi).send(&simulator).await;
    simulator.inject("main", Fault::Cut { after: 0 }, 1).unwrap();
    let cut = Call::new(Dialect::OpenAi).send(&simulator).await;
    assert_eq!((cut.status, cut.is_complete), (200, false));
    assert_eq!(cut.body.len(), whole.body.len() / 2);
}

#[tokio::test(start_paused = true)]
async fn stream_can_fail_with_an_error_event() {
    let overloaded = json!({
        "type": "error",
        "error": { "type": "overloaded_error", "message": "Overloaded" },
    });
    let server = json!({ "error": {
        "message": "The server had an error while it answered.",
        "type": "server_error",
        "param": null,
        "code": null,
    } });
    let chunk = json!({
        "id": "gen-sim-1",
        "object": "chat.completion.chunk",
        "created": 1_767_225_600,
        "model": "m",
        "error": { "code": 502, "message": "The provider disconnected." },
        "choices": [{ "index": 0, "delta": { "content": "" }, "finish_reason": "error" }],
    });
    let unavailable = json!({ "error": {
        "code": 503,
        "message": "The model is overloaded.",
        "status": "UNAVAILABLE",
    } });
    for (dialect, event) in [
        (Dialect::OpenAi, server),
        (Dialect::Anthropic, overloaded),
        (Dialect::OpenRouter, chunk),
        (Dialect::Gemini, unavailable),
    ] {
        let simulator = simulator(dialect, Limits::new());
        simulator.inject("main", Fault::StreamError { after: 1 }, 1).unwrap();
        let response = streamed(dialect).send(&simulator).await;
        assert_eq!((response.status, response.is_complete), (200, true), "{dialect}");
        assert!(response.body.contains("the ") && !response.body.contains("sea "), "{dialect}");
        assert_eq!(response.events().last(), Some(&event), "{dialect}");
        assert_eq!(simulator.ledger().entries()[0].ending, CallEnding::Broken);
    }
    let simulator = simulator(Dialect::Ollama, Limits::new());
    simulator.inject("main", Fault::StreamError { after: 1 }, 1).unwrap();
    let response = streamed(Dialect::Ollama).send(&simulator).await;
    assert!(response.body.ends_with("{\"error\":\"the model runner has stopped\"}\n"));
}

#[tokio::test(start_paused = true)]
async fn malformed_responses_are_not_json() {
    for dialect in [Dialect::OpenAi, Dialect::Anthropic, Dialect::Gemini, Dialect::Ollama] {
        let simulator = simulator(dialect, Limits::new());
        simulator.inject("main", Fault::Malformed, 2).unwrap();
        let whole = Call::new(dialect).send(&simulator).await;
        assert_eq!((whole.status, whole.is_complete), (200, true));
        assert!(serde_json::from_str::<Value>(&whole.body).is_err(), "{dialect}");
        let response = streamed(dialect).send(&simulator).await;
        let data = response.body.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
        let broken =
            |line: &&str| line.starts_with('{') && serde_json::from_str::<Value>(line).is_err();
        assert_eq!(data.filter(broken).count(), 1, "{dialect}: {}", response.body);
    }
}
