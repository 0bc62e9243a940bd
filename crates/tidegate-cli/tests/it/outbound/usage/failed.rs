//! Errors after status 200: they are classified, counted, logged in one line, and not successes.

use serde_json::json;
use tidegate_sim::{Fault, Limits, Output};
use tidegate_testkit::launch::wait_until;

use super::super::fixtures::{Gateway, Provider, Sdk};
use super::client::{MODEL, Options, call, send};
use super::raw_provider::RawProvider;

const REQUESTS: &str = "tidegate_llm_requests_total";
const FAILURES: &str = "tidegate_llm_answer_failures_total";
const ALL_FAILURES: &str = "tidegate_llm_failures_total";
const LINE: &str = "response failed after it had started";
const STREAMED: Options =
    Options { is_streamed: true, asks_for_usage: false, coding: None, leaves_after: None };

fn wait_for_calls(gateway: &Gateway, calls: f64) {
    wait_until("all calls are counted", || (gateway.metric(REQUESTS, &[]) == calls).then_some(()));
}

#[test]
fn stream_error_is_classified_counted_and_logged_for_every_api() {
    for sdk in [Sdk::OPENAI, Sdk::ANTHROPIC, Sdk::GEMINI, Sdk::OLLAMA] {
        let account = sdk.account().any_model(Limits::new()).output(Output::fixed(50));
        let provider = Provider::start(account);
        let gateway = Gateway::start(sdk, &provider.url, "");
        for (coding, fault) in [
            (None, Fault::StreamError { after: 20 }),
            (Some("gzip"), Fault::StreamError { after: 20 }),
            (None, Fault::Cut { after: 20 }),
        ] {
            provider.simulator.inject(sdk.name, fault, 1).unwrap();
            assert_eq!(call(&gateway, sdk, Options { coding, ..STREAMED }).0, 200);
        }
        wait_for_calls(&gateway, 3.0);
        let name = sdk.name;
        assert_eq!(gateway.metric(REQUESTS, &["outcome=\"broken\""]), 3.0, "{name}");
        let provider = format!("provider=\"{name}\"");
        assert_eq!(gateway.metric(FAILURES, &[&provider]), 3.0, "{name}");
        assert_eq!(gateway.metric(ALL_FAILURES, &[&provider]), 3.0, "{name}");
        let log = gateway.stop().stderr;
        let lines: Vec<_> = log.lines().filter(|line| line.contains(LINE)).collect();
        assert_eq!(lines.len(), 3, "{log}");
        for (line, cause) in lines.iter().zip(["reported", "reported", "connection"]) {
            assert!(line.contains(&format!("cause=\"{cause}\"")), "{line}");
            assert!(line.contains("class=") && line.contains("request_id="), "{line}");
        }
        assert!(
            !log.contains("the model runner has stopped"),
            "the log contains no response text: {log}"
        );
    }
}

/// The HTTP body ends properly, but the stream in it is truncated.
#[test]
fn truncated_stream_is_not_a_success() {
    let sse = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"tide\"}}]}\n\n";
    let anthropic = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\
        \"delta\":{\"type\":\"text_delta\",\"text\":\"tide\"}}\n\n";
    let gemini =
        "data: {\"candidates\":[{\"index\":0,\"content\":{\"parts\":[{\"text\":\"t\"}]}}]}\n\n";
    let ollama = "{\"message\":{\"content\":\"tide\"},\"done\":false}\n";
    for (sdk, kind, body) in [
        (Sdk::OPENAI, "text/event-stream", sse),
        (Sdk::ANTHROPIC, "text/event-stream", anthropic),
        (Sdk::GEMINI, "text/event-stream", gemini),
        (Sdk::OLLAMA, "application/x-ndjson", ollama),
    ] {
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nx-request-id: req_7\r\n\
             connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        let provider = RawProvider::start(answer);
        let gateway = Gateway::start(sdk, &provider.url, "");
        let (status, got) = call(&gateway, sdk, STREAMED);
        assert_eq!((status, got.as_slice()), (200, body.as_bytes()), "the bytes pass unchanged");
        wait_for_calls(&gateway, 1.0);
        assert_eq!(gateway.metric(REQUESTS, &["outcome=\"broken\""]), 1.0, "{}", sdk.name);
        assert_eq!(gateway.metric(FAILURES, &["class=\"transient\""]), 1.0, "{}", sdk.name);
        let log = gateway.stop().stderr;
        let line = log.lines().find(|line| line.contains(LINE)).unwrap();
        assert!(line.contains("cause=\"ended_early\""), "{line}");
        assert!(line.contains("upstream_request_id=\"req_7\""), "{line}");
    }
}

/// An error body with status 200 that is not streamed.
#[test]
fn error_body_with_status_200_is_not_a_success() {
    let body = r#"{"error":{"code":502,"message":"Upstream said: secret words"}}"#;
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    let provider = RawProvider::start(answer);
    let gateway = Gateway::start(Sdk::OPENAI, &provider.url, "");
    let request = json!({ "model": MODEL, "messages": [] });
    let options = Options { is_streamed: false, ..STREAMED };
    let (status, got) = send(&gateway, "/chat/completions", &request, options);
    assert_eq!((status, got.as_slice()), (200, body.as_bytes()));
    wait_for_calls(&gateway, 1.0);
    assert_eq!(gateway.metric(REQUESTS, &["outcome=\"answered\""]), 0.0);
    assert_eq!(gateway.metric(FAILURES, &[]), 1.0);
    let log = gateway.stop().stderr;
    assert!(log.contains(LINE) && !log.contains("secret words"), "{log}");
}

/// Only the body tells that the quota is exhausted and a retry is useless.
#[test]
fn compressed_error_is_classified_by_its_content() {
    let provider = Provider::start(Sdk::OPENAI.account().any_model(Limits::new()));
    let gateway = Gateway::start(Sdk::OPENAI, &provider.url, "max_wait = \"3s\"");
    provider.simulator.inject(Sdk::OPENAI.name, Fault::InsufficientQuota, u64::MAX).unwrap();
    let options = Options { is_streamed: false, coding: Some("gzip"), ..STREAMED };
    let (status, body) = call(&gateway, Sdk::OPENAI, options);
    assert_eq!(status, 429);
    assert!(body.starts_with(&[0x1f, 0x8b]), "the bytes pass unchanged: {body:?}");
    assert_eq!(provider.simulator.ledger().seen(), 1, "{}", gateway.stop().stderr);
}
