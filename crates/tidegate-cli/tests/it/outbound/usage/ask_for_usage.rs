//! `ask_for_usage`: the gateway requests usage from the provider and hides it from the caller.

use serde_json::Value;
use tidegate_sim::{Limits, Output};
use tidegate_testkit::launch::wait_until;

use super::super::fixtures::{Gateway, Provider, Sdk};
use super::client::{Options, call};

const STREAMED: Options =
    Options { is_streamed: true, asks_for_usage: false, coding: None, leaves_after: None };

/// Returns the events of a stream, without their creation time.
fn events(body: &[u8]) -> Vec<String> {
    let text = String::from_utf8(body.to_vec()).unwrap();
    let events = text.split_terminator("\n\n").map(|event| {
        let data = event.strip_prefix("data: ").unwrap();
        match serde_json::from_str::<Value>(data) {
            Ok(mut data) => {
                data["created"].take();
                data.to_string()
            }
            Err(_) => data.to_owned(),
        }
    });
    events.collect()
}

/// Makes a streamed call. Returns its events and the token counts, reported and estimated.
fn streamed(settings: &str, options: Options) -> (Vec<String>, [f64; 2]) {
    let account = Sdk::OPENAI.account().any_model(Limits::new()).output(Output::fixed(30));
    let provider = Provider::start(account);
    let gateway = Gateway::start(Sdk::OPENAI, &provider.url, settings);
    let (status, body) = call(&gateway, Sdk::OPENAI, options);
    assert_eq!(status, 200);
    let counted = || (gateway.metric("tidegate_llm_requests_total", &[]) == 1.0).then_some(());
    wait_until("the call is counted", counted);
    let tokens = ["source=\"reported\"", "source=\"estimated\""]
        .map(|source| gateway.metric("tidegate_llm_tokens_total", &["kind=\"output\"", source]));
    (events(&body), tokens)
}

/// Setting: providers.*.ask_for_usage
#[test]
fn requested_usage_is_hidden_from_the_caller() {
    let (plain, counted) = streamed("", STREAMED);
    assert_eq!(counted[0], 0.0, "nothing was reported");
    let (stripped, told) = streamed("ask_for_usage = true", STREAMED);
    assert_eq!(told, [30.0, 0.0], "all tokens were reported");
    assert_eq!(stripped, plain);
    // A caller that requests usage itself receives it.
    let asking = Options { asks_for_usage: true, ..STREAMED };
    let (asked, told) = streamed("ask_for_usage = true", asking);
    assert_eq!(told, [30.0, 0.0]);
    assert_eq!(asked.len(), plain.len() + 1);
}
