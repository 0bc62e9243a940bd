//! Token limits, under each rule by which providers charge for reserved output.

use std::time::Duration;

use tidegate_sim::{Account, Charging, Delay, Dialect, Limits, Output, Reporting};

use super::fixtures::{Gateway, Provider, Sdk};
use super::traffic::{CallOptions, Caller, ConcurrentCalls};

const TOKENS_PER_MINUTE: u64 = 90_000;

/// Makes forty concurrent calls that reserve 4,000 tokens each and use about 40. If reservations
/// were kept, they would need 160,000 tokens at 90,000 per minute: 47 s.
fn run_overreserving_calls(charging: Charging) -> (ConcurrentCalls, Provider, String) {
    let account = Sdk::OPENAI
        .account()
        .any_model(Limits::new().tokens_per_minute(TOKENS_PER_MINUTE))
        .charging(charging)
        .output(Output::fixed(36))
        .first_token(Delay::fixed(Duration::from_millis(500)));
    let provider = Provider::start(account);
    let settings = format!("tokens_per_minute = {TOKENS_PER_MINUTE}");
    let gateway = Gateway::start(Sdk::OPENAI, &provider.url, &settings);
    let calls = ConcurrentCalls::run(&gateway, 40, 4_000);
    (calls, provider, gateway.stop().stderr)
}

#[test]
fn refunded_reservations_do_not_delay_forty_callers() {
    let charging = Charging::of(Dialect::OpenAi).refund_unused();
    let (calls, provider, log) = run_overreserving_calls(charging);
    let throttled = provider.simulator.ledger().throttled();
    assert_eq!(calls.answered(), 40, "{calls}\n{log}");
    assert_eq!(throttled, 0, "the provider refused calls; {calls}\n{log}");
    assert!(calls.took() < Duration::from_secs(6), "{calls}\n{log}");
}

#[test]
fn output_charged_at_the_end_does_not_delay_forty_callers() {
    let charging = Charging::of(Dialect::OpenAi).charge_at_end();
    let (calls, provider, log) = run_overreserving_calls(charging);
    let throttled = provider.simulator.ledger().throttled();
    assert_eq!(calls.answered(), 40, "{throttled} throttled; {calls}\n{log}");
    assert!(calls.took() < Duration::from_secs(6), "{throttled} throttled; {calls}\n{log}");
}

/// Runs ten agents whose `max_tokens` exceeds the limit per minute, and that use 300 tokens.
fn assert_large_max_tokens_does_not_block(settings: &str) {
    let account = Sdk::ANTHROPIC
        .account()
        .any_model(Limits::new().output_tokens_per_minute(8_000))
        .charging(Charging::of(Dialect::Anthropic).charge_at_end())
        .reporting(Reporting::Rounded { step: 1_000 })
        .output(Output::fixed(300))
        .first_token(Delay::fixed(Duration::from_millis(500)));
    let provider = Provider::start(account);
    let gateway = Gateway::start(Sdk::ANTHROPIC, &provider.url, settings);
    let calls = ConcurrentCalls::run(&gateway, 10, 8_192);
    let (throttled, log) = (provider.simulator.ledger().throttled(), gateway.stop().stderr);
    assert_eq!(calls.answered(), 10, "{throttled} throttled; {calls}\n{log}");
    assert!(calls.took() < Duration::from_secs(30), "{throttled} throttled; {calls}\n{log}");
}

#[test]
fn max_tokens_above_a_configured_output_limit_does_not_delay_ten_agents() {
    assert_large_max_tokens_does_not_block("output_tokens_per_minute = 8000");
}

#[test]
fn max_tokens_above_a_learned_output_limit_does_not_delay_ten_agents() {
    assert_large_max_tokens_does_not_block("");
}

fn small_calls() -> Account {
    // Four input and 56 output tokens, which are charged at admission and not refunded.
    let limits = Limits::new().requests_per_minute(60).tokens_per_minute(6_000);
    Sdk::OPENAI
        .account()
        .any_model(limits)
        .output(Output::fixed(56))
        .first_token(Delay::fixed(Duration::from_millis(300)))
}

#[test]
fn forty_small_calls_within_learned_limits_succeed() {
    let provider = Provider::start(small_calls());
    let gateway = Gateway::start(Sdk::OPENAI, &provider.url, "");
    let calls = ConcurrentCalls::run(&gateway, 40, 56);
    let (throttled, log) = (provider.simulator.ledger().throttled(), gateway.stop().stderr);
    assert_eq!(calls.answered(), 40, "{throttled} throttled; {calls}\n{log}");
}

/// The provider does not refund reservations and reports nothing.
#[test]
fn token_rejection_has_its_type_and_retry_after() {
    let account = Sdk::OPENAI
        .account()
        .any_model(Limits::new().tokens_per_minute(5_000))
        .charging(Charging::of(Dialect::OpenAi).keep_reserved())
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
