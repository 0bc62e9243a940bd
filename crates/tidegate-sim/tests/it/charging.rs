//! What calls are charged: at admission, after the response, on failure, and when cut.

use std::time::Duration;

use tidegate_sim::{
    CallEnding, Charging, Delay, Dialect, FailedCalls, Fault, Limits, OutputReserve,
    SettlementRule, Simulator,
};

use crate::client::{Call, account, simulator, with};

const SECOND: Duration = Duration::from_secs(1);

fn last_charge(simulator: &Simulator) -> (u64, u64, u64) {
    let entry = simulator.ledger().entries().pop().unwrap();
    (entry.charged.requests, entry.charged.input, entry.charged.output)
}

fn tokens_left(response: &crate::client::ReceivedResponse) -> u64 {
    response.header("x-ratelimit-remaining-tokens").unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn openai_keeps_the_charge_of_the_estimate() {
    let simulator = simulator(Dialect::OpenAi, Limits::new().tokens_per_minute(10_000));
    let call = Call::new(Dialect::OpenAi).output(7).header("x-sim-input-tokens", "50");
    let response = call.clone().field("max_tokens", 1_000).send(&simulator).await;
    assert_eq!(last_charge(&simulator), (1, 2, 1_000));
    assert_eq!(tokens_left(&response), 8_998);
    assert_eq!(
        response.json()["usage"]["prompt_tokens"],
        50,
        "the response reports the actual usage"
    );
    let response = call.send(&simulator).await;
    assert_eq!(last_charge(&simulator), (1, 2, 16));
    assert_eq!(tokens_left(&response), 8_980);
}

#[tokio::test(start_paused = true)]
async fn tools_count_as_input() {
    let tools = serde_json::json!([{ "name": "t".repeat(400) }]);
    for dialect in [Dialect::OpenAi, Dialect::Anthropic, Dialect::Gemini, Dialect::Ollama] {
        let simulator = simulator(dialect, Limits::new());
        Call::new(dialect).field("tools", tools.clone()).send(&simulator).await;
        // Eight characters of prompt, 400 of a name and 13 of JSON around it.
        assert_eq!(last_charge(&simulator).1, 106, "{dialect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn azure_multiplies_the_charge_by_best_of() {
    let simulator = simulator(Dialect::AzureOpenAi, Limits::new().tokens_per_minute(10_000));
    let call = Call::new(Dialect::AzureOpenAi).field("max_tokens", 100).field("best_of", 3);
    call.send(&simulator).await;
    assert_eq!(last_charge(&simulator), (1, 2, 300));
}

#[tokio::test(start_paused = true)]
async fn anthropic_reserves_settles_and_ignores_cached_tokens() {
    let limits = Limits::new().input_tokens_per_minute(1_000).output_tokens_per_minute(1_000);
    let account = account(Dialect::Anthropic, limits).per_token(Delay::fixed(SECOND / 100));
    let simulator = with(account);
    let call = Call::new(Dialect::Anthropic)
        .field("max_tokens", 900)
        .field("stream", true)
        .output(100)
        .header("x-sim-input-tokens", "60")
        .header("x-sim-cached-tokens", "40");
    let response = call.send(&simulator).await;
    // The headers were sent when 900 were reserved.
    assert_eq!(response.header("anthropic-ratelimit-output-tokens-remaining"), Some("100"));
    assert_eq!(last_charge(&simulator), (1, 20, 100));
    let whole = call.field("stream", false).send(&simulator).await;
    // Both calls took 0.99 s, in which 33 tokens were refilled, and each used 100.
    let left = whole.header("anthropic-ratelimit-output-tokens-remaining").unwrap();
    assert_eq!(left, "833");
}

#[tokio::test(start_paused = true)]
async fn gemini_charges_only_input() {
    let simulator = simulator(Dialect::Gemini, Limits::new().input_tokens_per_minute(4));
    let call = Call::new(Dialect::Gemini).output(5_000);
    assert_eq!(call.send(&simulator).await.status, 200);
    assert_eq!(call.send(&simulator).await.status, 200);
    assert_eq!(call.send(&simulator).await.status, 429);
}

#[tokio::test(start_paused = true)]
async fn settlement_above_the_reserve_leaves_a_debt() {
    let simulator = simulator(Dialect::Mistral, Limits::new().tokens_per_minute(600));
    let call = Call::new(Dialect::Mistral).output(1_198);
    assert_eq!(call.send(&simulator).await.status, 200);
    let refused = call.send(&simulator).await;
    // 600 below zero, and the call needs two.
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("61")));
}

#[tokio::test(start_paused = true)]
async fn cut_stream_is_charged_for_what_was_sent() {
    let simulator = simulator(Dialect::Groq, Limits::new().tokens_per_minute(10_000));
    simulator.inject("main", Fault::Cut { after: 30 }, 1).unwrap();
    let call = Call::new(Dialect::Groq).field("stream", true).field("max_tokens", 500).output(100);
    call.send(&simulator).await;
    assert_eq!(last_charge(&simulator), (1, 2, 30));
}

#[tokio::test(start_paused = true)]
async fn disconnected_caller_is_charged_for_what_was_sent() {
    let account = account(Dialect::Mistral, Limits::new().concurrency(1))
        .first_token(Delay::fixed(SECOND))
        .per_token(Delay::fixed(SECOND));
    let simulator = with(account);
    let call = Call::new(Dialect::Mistral).field("stream", true).output(100);
    let sent = call.send(&simulator);
    let left = tokio::time::timeout(SECOND * 7 + SECOND / 2, sent).await;
    assert!(left.is_err());
    // The connection ends when its driver notices the disconnect.
    while simulator.ledger().entries()[0].ending == CallEnding::Open {
        tokio::time::sleep(SECOND / 10).await;
    }
    let entry = simulator.ledger().entries().remove(0);
    assert_eq!((entry.ending, entry.status), (CallEnding::Abandoned, Some(200)));
    assert_eq!((entry.charged.input, entry.charged.output), (2, 7));
    assert_eq!(Call::new(Dialect::Mistral).output(0).send(&simulator).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn failed_calls_count_for_some_providers() {
    let limits = || Limits::new().requests_per_minute(60).tokens_per_minute(6_000);
    for (dialect, requests, tokens) in [(Dialect::OpenAi, 58, 5_982), (Dialect::Mistral, 59, 5_998)]
    {
        let simulator = simulator(dialect, limits());
        simulator.inject("main", Fault::ServerError, 1).unwrap();
        assert_eq!(Call::new(dialect).send(&simulator).await.status, 500);
        let response = Call::new(dialect).output(0).header("x-sim-input-tokens", "2");
        let response = response.send(&simulator).await;
        let left = |names: [&str; 2]| -> u64 {
            names.iter().find_map(|name| response.header(name)).unwrap().parse().unwrap()
        };
        let names = ["x-ratelimit-remaining-requests", "x-ratelimit-remaining-req-minute"];
        assert_eq!(left(names), requests, "{dialect}");
        let names = ["x-ratelimit-remaining-tokens", "x-ratelimit-remaining-tokens-minute"];
        // OpenAI keeps 18 for the failed call and charges 18 for the next one.
        let expected = if dialect == Dialect::OpenAi { tokens - 18 } else { tokens };
        assert_eq!(left(names), expected, "{dialect}");
    }
}

#[tokio::test(start_paused = true)]
async fn retry_storm_starves_openai_but_not_others() {
    let limits = || Limits::new().requests_per_minute(60);
    for (dialect, admitted) in [(Dialect::OpenAi, 0), (Dialect::Mistral, 9)] {
        let simulator = simulator(dialect, limits());
        let call = Call::new(dialect).output(0);
        for _ in 0..60 {
            assert_eq!(call.send(&simulator).await.status, 200);
        }
        let mut admissions = 0;
        for _ in 0..18 {
            tokio::time::advance(SECOND / 2).await;
            admissions += u32::from(call.send(&simulator).await.status == 200);
        }
        assert_eq!(admissions, admitted, "{dialect}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_charging_rule_can_be_changed() {
    let rule = Charging::of(Dialect::OpenAi)
        .output(OutputReserve::Nothing)
        .settlement(SettlementRule::ToUsage)
        .failed_calls(FailedCalls::Free);
    let account = account(Dialect::OpenAi, Limits::new().tokens_per_minute(1_000)).charging(rule);
    let simulator = with(account);
    let response =
        Call::new(Dialect::OpenAi).field("max_tokens", 900).output(8).send(&simulator).await;
    assert_eq!(last_charge(&simulator), (1, 2, 8));
    assert_eq!(tokens_left(&response), 990);
    simulator.inject("main", Fault::Unavailable, 1).unwrap();
    Call::new(Dialect::OpenAi).send(&simulator).await;
    assert_eq!(last_charge(&simulator), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn named_rules_determine_the_cost_of_a_short_response() {
    let rule = Charging::of(Dialect::OpenAi);
    for (rule, while_open, at_end) in [
        (rule.keep_reserved(), 98, 98),
        (rule.refund_unused(), 98, 8),
        (rule.charge_at_end(), 0, 8),
    ] {
        let account = account(Dialect::OpenAi, Limits::new().tokens_per_minute(1_000));
        let simulator = with(account.charging(rule));
        let call = Call::new(Dialect::OpenAi).field("max_tokens", 98).output(8);
        // Headers of a stream are sent before the call ends, those of a whole response after it.
        let streamed = call.clone().field("stream", true).send(&simulator).await;
        assert_eq!(tokens_left(&streamed), 998 - while_open);
        assert_eq!(last_charge(&simulator), (1, 2, at_end));
        let whole = call.send(&simulator).await;
        assert_eq!(tokens_left(&whole), 996 - 2 * at_end);
    }
}
