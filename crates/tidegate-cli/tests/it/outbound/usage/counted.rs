//! `tidegate_llm_tokens_total` compared with the ledger of the provider.

use std::time::Duration;

use serde_json::json;
use tidegate_sim::{CallEnding, Delay, Fault, Limits, Output};
use tidegate_testkit::launch::wait_until;

use super::super::fixtures::{Gateway, Provider, Sdk};
use super::client::{MODEL, Options, call, send};
use super::raw_provider::RawProvider;

const TOKENS: &str = "tidegate_llm_tokens_total";
const REQUESTS: &str = "tidegate_llm_requests_total";
const WHOLE: Options =
    Options { is_streamed: false, asks_for_usage: false, coding: None, leaves_after: None };
const STREAMED: Options = Options { is_streamed: true, ..WHOLE };

fn wait_until_counts_are_exact(gateway: &Gateway) {
    let ready = || (gateway.metric("tidegate_llm_tokenizer_ready", &[]) == 1.0).then_some(());
    wait_until("the vocabulary is unpacked", ready);
}

/// Checks that two sums differ by at most two percent.
#[track_caller]
fn assert_close(what: &str, counted: f64, ledger: u64) {
    let ledger = ledger as f64;
    let difference = (counted - ledger).abs() / ledger;
    assert!(difference <= 0.02, "{what}: {counted} counted, {ledger} in the ledger");
}

/// Makes calls of every kind and compares the token counts.
fn assert_counts_match_the_ledger(sdk: Sdk) {
    let account = sdk
        .account()
        .any_model(Limits::new())
        .output(Output::fixed(300))
        .per_token(Delay::fixed(Duration::from_millis(2)));
    let provider = Provider::start(account);
    let gateway = Gateway::start(sdk, &provider.url, "");
    let inject = |fault| provider.simulator.inject(sdk.name, fault, 1).unwrap();
    let mut calls = 0;
    let mut make = |options: Options| {
        calls += 1;
        assert_eq!(call(&gateway, sdk, options).0, 200, "{options:?}");
    };
    for _ in 0..3 {
        make(WHOLE);
        make(STREAMED);
        make(Options { asks_for_usage: true, ..STREAMED });
    }
    // The next calls are cut, so that our own count is the only one.
    wait_until_counts_are_exact(&gateway);
    for coding in ["gzip", "deflate", "br", "zstd"] {
        make(Options { coding: Some(coding), ..WHOLE });
        make(Options { coding: Some(coding), ..STREAMED });
        inject(Fault::Cut { after: 150 });
        make(Options { coding: Some(coding), ..STREAMED });
    }
    for after in [1, 100, 200] {
        inject(Fault::Cut { after });
        make(STREAMED);
        inject(Fault::StreamError { after });
        make(STREAMED);
        make(Options { leaves_after: Some(20_000), ..STREAMED });
    }
    let calls = f64::from(calls);
    let told = || (gateway.metric(REQUESTS, &[]) == calls).then_some(());
    wait_until("all calls are counted", told);
    let ledger = provider.simulator.ledger().entries();
    let used = |part: fn(&tidegate_sim::CallCharge) -> u64| -> u64 {
        ledger.iter().map(|entry| part(&entry.used)).sum()
    };
    let left = ledger.iter().filter(|entry| entry.ending == CallEnding::Abandoned).count();
    assert_eq!(left, 3, "callers that disconnected");
    assert_close("input", gateway.metric(TOKENS, &["kind=\"input\""]), used(|used| used.input));
    assert_close("output", gateway.metric(TOKENS, &["kind=\"output\""]), used(|used| used.output));
    // Gemini reports counts in every chunk.
    let sources: &[&str] = match sdk.name {
        "gemini" => &["reported"],
        _ => &["reported", "estimated"],
    };
    for source in sources {
        let label = format!("source=\"{source}\"");
        let tokens = gateway.metric(TOKENS, &["kind=\"output\"", &label]);
        assert!(tokens > 0.0, "{source}");
    }
}

#[test]
fn openai_token_counts_match_the_ledger() {
    assert_counts_match_the_ledger(Sdk::OPENAI);
}

#[test]
fn anthropic_token_counts_match_the_ledger() {
    assert_counts_match_the_ledger(Sdk::ANTHROPIC);
}

#[test]
fn gemini_token_counts_match_the_ledger() {
    assert_counts_match_the_ledger(Sdk::GEMINI);
}

#[test]
fn ollama_token_counts_match_the_ledger() {
    assert_counts_match_the_ledger(Sdk::OLLAMA);
}

/// An unknown content coding, and a body above the buffer limit with usage at its end.
#[test]
fn unreadable_body_is_estimated_and_long_body_is_read_to_its_end() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
    let words = "word ".repeat(2_000);
    let unknown = format!("{head}content-encoding: x-tide\r\n\r\n{words}");
    let vector = "0.25,".repeat(1_200_000);
    let usage = r#""usage":{"prompt_tokens":123,"total_tokens":123}"#;
    let long = format!("{head}\r\n{{\"data\":[{{\"embedding\":[{vector}0]}}],{usage}}}");
    for (answer, path, kind, source, expected) in [
        (unknown, "/chat/completions", "output", "estimated", 1_000.0..=10_000.0),
        (long, "/embeddings", "input", "reported", 123.0..=123.0),
    ] {
        let provider = RawProvider::start(answer);
        let gateway = Gateway::start(Sdk::OPENAI, &provider.url, "");
        let body = json!({ "model": MODEL, "input": "tide", "messages": [] });
        assert_eq!(send(&gateway, path, &body, WHOLE).0, 200);
        wait_until("the call is counted", || (gateway.metric(REQUESTS, &[]) == 1.0).then_some(()));
        let labels = [format!("kind=\"{kind}\""), format!("source=\"{source}\"")];
        let tokens = gateway.metric(TOKENS, &labels.each_ref().map(String::as_str));
        assert!(expected.contains(&tokens), "{path}: {tokens}");
    }
}

/// Counting tokens does not use any.
#[test]
fn token_counting_call_uses_no_tokens() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\
                  content-length: 19\r\n\r\n{\"input_tokens\":14}";
    let provider = RawProvider::start(answer);
    let gateway = Gateway::start(Sdk::ANTHROPIC, &provider.url, "");
    let messages = json!([{ "role": "user", "content": "How is the tide?" }]);
    let body = json!({ "model": MODEL, "messages": messages });
    assert_eq!(send(&gateway, "/v1/messages/count_tokens", &body, WHOLE).0, 200);
    wait_until("the call is counted", || (gateway.metric(REQUESTS, &[]) == 1.0).then_some(()));
    assert_eq!(gateway.metric(TOKENS, &[]), 0.0);
}

/// The first call that needs the vocabulary does not wait for it, and later calls are counted.
#[test]
fn first_call_is_estimated_and_later_calls_are_counted() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\
                  content-length: 2\r\n\r\n{}";
    let provider = RawProvider::start(answer);
    let gateway = Gateway::start(Sdk::OPENAI, &provider.url, "");
    let ready = || gateway.metric("tidegate_llm_tokenizer_ready", &[]);
    assert_eq!(ready(), 0.0, "nothing is unpacked before a call needs it");
    // A hundred tokens, which the estimate takes for half as many.
    let text = ["a"; 100].join(" ");
    let messages = json!([{ "role": "user", "content": text }]);
    let body = json!({ "model": MODEL, "messages": messages });
    let mut before = 0.0;
    let mut count = |calls: f64| {
        assert_eq!(send(&gateway, "/chat/completions", &body, WHOLE).0, 200);
        let told = || (gateway.metric(REQUESTS, &[]) == calls).then_some(());
        wait_until("the call is counted", told);
        let total = gateway.metric(TOKENS, &["kind=\"input\"", "source=\"estimated\""]);
        total - std::mem::replace(&mut before, total)
    };
    let first = count(1.0);
    assert!((30.0..70.0).contains(&first), "{first}");
    wait_until_counts_are_exact(&gateway);
    for calls in [2.0, 3.0] {
        let counted = count(calls);
        assert!((100.0..=110.0).contains(&counted), "{counted}");
    }
}
