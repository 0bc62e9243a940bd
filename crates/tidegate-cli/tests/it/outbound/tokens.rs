//! Limits on tokens, under each rule by which providers charge for output that may never come.

use std::time::Duration;

use tidegate_sim::{Account, Charging, Delay, Dialect, Limits, Output, Reporting};

use super::stage::{Gateway, Provider, Sdk};
use super::traffic::{CallOptions, Caller, Crowd};

const TOKENS_PER_MINUTE: u64 = 90_000;

/// Forty calls that reserve 4,000 tokens each and use about 40, at once. If the reservations were
/// kept, these would be 160,000 of 90,000 tokens a minute: 47 s.
fn reserve_much_and_use_little(charging: Charging) -> (Crowd, Provider, String) {
    let account = Sdk::OPENAI
        .account()
        .any_model(Limits::new().tokens_per_minute(TOKENS_PER_MINUTE))
        .charging(charging)
        .output(Output::fixed(36))
        .first_token(Delay::fixed(Duration::from_millis(500)));
    let provider = Provider::start(account);
    let settings = format!("tokens_per_minute = {TOKENS_PER_MINUTE}");
    let gateway = Gateway::start(Sdk::OPENAI, &provider.url, &settings);
    let crowd = Crowd::run(&gateway, 40, 4_000);
    (crowd, provider, gateway.stop().stderr)
}

#[test]
fn reservations_that_are_given_back_do_not_hold_up_forty_callers() {
    let charging = Charging::of(Dialect::OpenAi).given_back();
    let (crowd, provider, log) = reserve_much_and_use_little(charging);
    let throttled = provider.simulator.ledger().throttled();
    assert_eq!(crowd.answered(), 40, "{crowd}\n{log}");
    assert_eq!(throttled, 0, "the provider refused calls; {crowd}\n{log}");
    assert!(crowd.took() < Duration::from_secs(6), "{crowd}\n{log}");
}

#[test]
fn output_that_is_charged_at_the_end_does_not_hold_up_forty_callers() {
    let charging = Charging::of(Dialect::OpenAi).charged_at_end();
    let (crowd, provider, log) = reserve_much_and_use_little(charging);
    let throttled = provider.simulator.ledger().throttled();
    assert_eq!(crowd.answered(), 40, "{throttled} throttled; {crowd}\n{log}");
    assert!(crowd.took() < Duration::from_secs(6), "{throttled} throttled; {crowd}\n{log}");
}

/// Ten agents that allow themselves more output than there is in a minute, and use 300 tokens.
fn allow_more_than_a_minute_has(settings: &str) {
    let account = Sdk::ANTHROPIC
        .account()
        .any_model(Limits::new().output_tokens_per_minute(8_000))
        .charging(Charging::of(Dialect::Anthropic).charged_at_end())
        .reporting(Reporting::Coarsely { step: 1_000 })
        .output(Output::fixed(300))
        .first_token(Delay::fixed(Duration::from_millis(500)));
    let provider = Provider::start(account);
    let gateway = Gateway::start(Sdk::ANTHROPIC, &provider.url, settings);
    let crowd = Crowd::run(&gateway, 10, 8_192);
    let (throttled, log) = (provider.simulator.ledger().throttled(), gateway.stop().stderr);
    assert_eq!(crowd.answered(), 10, "{throttled} throttled; {crowd}\n{log}");
    assert!(crowd.took() < Duration::from_secs(30), "{throttled} throttled; {crowd}\n{log}");
}

#[test]
fn max_tokens_above_a_configured_limit_on_output_does_not_hold_up_ten_agents() {
    allow_more_than_a_minute_has("output_tokens_per_minute = 8000");
}

#[test]
fn max_tokens_above_a_learned_limit_on_output_does_not_hold_up_ten_agents() {
    allow_more_than_a_minute_has("");
}

fn small_calls() -> Account {
    // Four tokens of input and 56 of output, which are charged at admission and kept.
    let limits = Limits::new().requests_per_minute(60).tokens_per_minute(6_000);
    Sdk::OPENAI
        .account()
        .any_model(limits)
        .output(Output::fixed(56))
        .first_token(Delay::fixed(Duration::from_millis(300)))
}

#[test]
fn forty_small_calls_within_learned_limits_are_all_answered() {
    let provider = Provider::start(small_calls());
    let gateway = Gateway::start(Sdk::OPENAI, &provider.url, "");
    let crowd = Crowd::run(&gateway, 40, 56);
    let (throttled, log) = (provider.simulator.ledger().throttled(), gateway.stop().stderr);
    assert_eq!(crowd.answered(), 40, "{throttled} throttled; {crowd}\n{log}");
}

/// The provider keeps what calls reserve, and says nothing of it.
#[test]
fn a_refusal_by_tokens_says_so_and_when_to_come_back() {
    let account = Sdk::OPENAI
        .account()
        .any_model(Limits::new().tokens_per_minute(5_000))
        .charging(Charging::of(Dialect::OpenAi).kept_at_admission())
        .reporting(Reporting::Never);
    let provider = Provider::start(account);
    let settings = "tokens_per_minute = 5000\nmax_wait = \"1s\"";
    let gateway = Gateway::start(Sdk::OPENAI, &provider.url, settings);
    let caller = Caller::new(&gateway);
    let options = CallOptions { max_tokens: Some(4_000), ..CallOptions::default() };
    let replies: Vec<_> = (0..4).map(|_| caller.call(options)).collect();
    let statuses: Vec<_> = replies.iter().map(|reply| reply.status).collect();
    let log = gateway.stop().stderr;
    assert_eq!(statuses, [200, 429, 429, 429].map(Some), "{replies:#?}\n{log}");
    for refused in &replies[1..] {
        assert_eq!(refused.error()["type"], "tokens", "{replies:#?}\n{log}");
        let after = refused.number("retry-after");
        assert!(after.is_some_and(|seconds| seconds > 0), "{replies:#?}\n{log}");
    }
}
