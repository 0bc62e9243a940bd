//! Limits, exact to the instant under paused time.

use std::time::Duration;

use tidegate_sim::{
    Account, Delay, Dialect, Dimension, Fault, Limits, RefusalCause, Simulator, Zone,
};
use tokio::time::{advance, sleep};

use crate::client::{Call, account, simulator, with};

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

async fn status(simulator: &Simulator, call: &Call) -> u16 {
    call.send(simulator).await.status
}

fn last_refusal(simulator: &Simulator) -> Option<RefusalCause> {
    simulator.ledger().entries().last().and_then(|entry| entry.refusal)
}

#[tokio::test(start_paused = true)]
async fn requests_refill_continuously() {
    let simulator = simulator(Dialect::Mistral, Limits::new().requests_per_minute(60));
    let call = Call::new(Dialect::Mistral);
    for _ in 0..60 {
        assert_eq!(status(&simulator, &call).await, 200);
    }
    assert_eq!(status(&simulator, &call).await, 429);
    advance(SECOND - MILLI).await;
    assert_eq!(status(&simulator, &call).await, 429);
    assert_eq!(last_refusal(&simulator), Some(RefusalCause::Limit(Dimension::Requests)));
    advance(MILLI).await;
    assert_eq!(status(&simulator, &call).await, 200);
    assert_eq!(status(&simulator, &call).await, 429);
}

#[tokio::test(start_paused = true)]
async fn slice_allows_its_share_of_the_minute() {
    let limits = Limits::new().requests_per_minute(600).slice(SECOND).phase(MILLI * 250);
    let simulator = simulator(Dialect::AzureOpenAi, limits);
    let call = Call::new(Dialect::AzureOpenAi);
    for _ in 0..10 {
        assert_eq!(status(&simulator, &call).await, 200);
    }
    let refused = call.send(&simulator).await;
    assert_eq!((refused.status, refused.header("retry-after-ms")), (429, Some("750")));
    // The limit per minute is not exhausted: this is a 429 below the quota.
    assert_eq!(refused.header("x-ratelimit-remaining-requests"), Some("590"));
    assert_eq!(last_refusal(&simulator), Some(RefusalCause::Limit(Dimension::Slice)));
    advance(MILLI * 749).await;
    assert_eq!(status(&simulator, &call).await, 429);
    advance(MILLI).await;
    for _ in 0..10 {
        assert_eq!(status(&simulator, &call).await, 200);
    }
    assert_eq!(status(&simulator, &call).await, 429);
}

#[tokio::test(start_paused = true)]
async fn request_slices_do_not_limit_tokens() {
    let limits = Limits::new().requests_per_minute(60).tokens_per_minute(600).slice(SECOND);
    let simulator = simulator(Dialect::Mistral, limits);
    let call = Call::new(Dialect::Mistral).output(598);
    assert_eq!(status(&simulator, &call).await, 200, "request slices do not limit tokens");
    advance(SECOND).await;
    let small = call.header("x-sim-output-tokens", "8");
    assert_eq!(status(&simulator, &small).await, 200);
    advance(SECOND).await;
    assert_eq!(status(&simulator, &small).await, 200);
}

#[tokio::test(start_paused = true)]
async fn token_slice_allows_its_share_of_the_minute() {
    let limits = Limits::new().tokens_per_minute(600).slice_tokens(SECOND).phase(MILLI * 250);
    let simulator = simulator(Dialect::OpenAi, limits);
    let call = |output: u64| Call::new(Dialect::OpenAi).field("max_tokens", output);
    assert_eq!(status(&simulator, &call(4)).await, 200);
    let refused = call(3).send(&simulator).await;
    assert_eq!((refused.status, refused.header("retry-after-ms")), (429, Some("750")));
    // The limit per minute is not exhausted: this is a 429 below the quota.
    assert_eq!(refused.header("x-ratelimit-remaining-tokens"), Some("594"));
    assert_eq!(
        refused.json()["error"]["message"],
        "Rate limit reached for m in organization org-sim on tokens per min (TPM): Limit 600, Used \
         6, Requested 5. Please try again in 750ms."
    );
    assert_eq!(last_refusal(&simulator), Some(RefusalCause::Limit(Dimension::Tokens)));
    assert_eq!(status(&simulator, &call(2)).await, 200, "the slice is full now");
    advance(MILLI * 749).await;
    assert_eq!(status(&simulator, &call(1)).await, 429);
    advance(MILLI).await;
    assert_eq!(status(&simulator, &call(48)).await, 200, "an unused slice admits a larger call");
    assert_eq!(status(&simulator, &call(1)).await, 429);
    advance(SECOND).await;
    assert_eq!(status(&simulator, &call(1)).await, 200, "the excess is not carried over");
    assert_eq!(status(&simulator, &call(599)).await, 429);
    assert_eq!(last_refusal(&simulator), Some(RefusalCause::TooLarge(Dimension::Tokens)));
}

#[tokio::test(start_paused = true)]
async fn settlement_does_not_change_a_slice() {
    let limits = Limits::new()
        .input_tokens_per_minute(600)
        .output_tokens_per_minute(6_000)
        .slice_tokens(SECOND);
    let simulator = simulator(Dialect::Anthropic, limits);
    let call = Call::new(Dialect::Anthropic).field("max_tokens", 90).output(1);
    assert_eq!(status(&simulator, &call).await, 200);
    let refused = call.send(&simulator).await;
    // Of the 90 output tokens that the slice admitted, one was used.
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("anthropic-ratelimit-output-tokens-remaining"), Some("5999"));
    assert_eq!(last_refusal(&simulator), Some(RefusalCause::Limit(Dimension::OutputTokens)));
    assert_eq!(status(&simulator, &call.clone().field("max_tokens", 10)).await, 200);
    advance(SECOND).await;
    // A failed call that is free is refunded to its slice.
    simulator.inject("main", Fault::ServerError, 1).unwrap();
    assert_eq!(status(&simulator, &call).await, 500);
    assert_eq!(status(&simulator, &call).await, 200);
}

#[tokio::test(start_paused = true)]
async fn input_and_output_are_limited_separately() {
    let limits = Limits::new().input_tokens_per_minute(60).output_tokens_per_minute(120);
    let simulator = simulator(Dialect::Anthropic, limits);
    let text = "x".repeat(232);
    let long = Call::new(Dialect::Anthropic)
        .field("system", text.as_str())
        .field("max_tokens", 1)
        .output(1);
    assert_eq!(status(&simulator, &long).await, 200);
    assert_eq!(status(&simulator, &Call::new(Dialect::Anthropic)).await, 429);
    assert_eq!(last_refusal(&simulator), Some(RefusalCause::Limit(Dimension::InputTokens)));
    advance(SECOND * 2).await;
    assert_eq!(status(&simulator, &Call::new(Dialect::Anthropic).output(50)).await, 200);
    advance(SECOND * 2).await;
    let big = Call::new(Dialect::Anthropic).field("max_tokens", 100);
    assert_eq!(status(&simulator, &big).await, 429);
    assert_eq!(last_refusal(&simulator), Some(RefusalCause::Limit(Dimension::OutputTokens)));
    let larger = Call::new(Dialect::Anthropic).field("max_tokens", 121);
    assert_eq!(status(&simulator, &larger).await, 429);
    assert_eq!(last_refusal(&simulator), Some(RefusalCause::TooLarge(Dimension::OutputTokens)));
}

#[tokio::test(start_paused = true)]
async fn day_quota_resets_at_midnight_of_its_zone() {
    let limits = Limits::new().requests_per_day(2, Zone::hours(-8));
    let simulator = simulator(Dialect::Gemini, limits);
    let call = Call::new(Dialect::Gemini);
    assert_eq!(status(&simulator, &call).await, 200);
    assert_eq!(status(&simulator, &call).await, 200);
    assert_eq!(status(&simulator, &call).await, 429);
    advance(Duration::from_secs(8 * 3_600) - MILLI).await;
    assert_eq!(status(&simulator, &call).await, 429);
    assert_eq!(last_refusal(&simulator), Some(RefusalCause::Limit(Dimension::Day)));
    advance(MILLI).await;
    assert_eq!(status(&simulator, &call).await, 200);
}

#[tokio::test(start_paused = true)]
async fn concurrency_slot_is_held_until_the_last_byte() {
    let account = account(Dialect::OpenAi, Limits::new().concurrency(1))
        .first_token(Delay::fixed(SECOND))
        .per_token(Delay::fixed(SECOND));
    let simulator = with(account);
    let call = Call::new(Dialect::OpenAi).field("stream", true).output(5);
    let (first, other) = (call.clone(), simulator.clone());
    let running = tokio::spawn(async move { first.send(&other).await });
    for _ in 0..4 {
        sleep(SECOND).await;
        assert_eq!(status(&simulator, &call).await, 429);
        assert_eq!(last_refusal(&simulator), Some(RefusalCause::Concurrency));
    }
    assert!(running.await.unwrap().is_complete);
    assert_eq!(status(&simulator, &call).await, 200);
}

#[tokio::test(start_paused = true)]
async fn sharp_rise_is_rejected() {
    let simulator = simulator(Dialect::Anthropic, Limits::new().acceleration(2, 3));
    let call = Call::new(Dialect::Anthropic);
    for allowed in [2, 6, 18] {
        for _ in 0..allowed {
            assert_eq!(status(&simulator, &call).await, 200);
        }
        let refused = call.send(&simulator).await;
        assert_eq!((refused.status, refused.header("retry-after")), (429, Some("60")));
        let message = &refused.json()["error"]["message"];
        assert_eq!(message, "Your use has grown too fast; raise it gradually.");
        assert_eq!(last_refusal(&simulator), Some(RefusalCause::Limit(Dimension::Acceleration)));
        advance(SECOND * 60).await;
    }
}

#[tokio::test(start_paused = true)]
async fn models_have_their_own_limits_and_groups_share_theirs() {
    let one = Limits::new().requests_per_minute(1);
    let account = Account::new(Dialect::Mistral, "main", "secret-key")
        .key("second-key")
        .models(["large", "large-latest"], one.clone())
        .any_model(one);
    let simulator = with(account);
    let call = |model| Call::new(Dialect::Mistral).model(model);
    assert_eq!(status(&simulator, &call("large")).await, 200);
    assert_eq!(status(&simulator, &call("large-latest")).await, 429);
    assert_eq!(status(&simulator, &call("small")).await, 200);
    assert_eq!(status(&simulator, &call("tiny")).await, 200);
    let second = call("small").header("authorization", "Bearer second-key");
    assert_eq!(status(&simulator, &second).await, 429, "keys of an account share its limits");
}

#[tokio::test(start_paused = true)]
async fn accounts_share_nothing() {
    let limits = || Limits::new().requests_per_minute(1);
    let simulator = Simulator::builder()
        .account(Account::new(Dialect::OpenAi, "a", "key-a").model("m", limits()))
        .account(Account::new(Dialect::Mistral, "b", "key-b").model("m", limits()))
        .account(Account::new(Dialect::Anthropic, "c", "key-c").model("m", limits()))
        .build()
        .unwrap();
    for (dialect, header, key) in [
        (Dialect::OpenAi, "authorization", "Bearer key-a"),
        (Dialect::Mistral, "authorization", "Bearer key-b"),
        (Dialect::Anthropic, "x-api-key", "key-c"),
    ] {
        let call = Call::new(dialect).header(header, key);
        assert_eq!(status(&simulator, &call).await, 200);
        assert_eq!(status(&simulator, &call).await, 429);
    }
}

#[tokio::test(start_paused = true)]
async fn number_of_unnamed_models_is_limited() {
    let simulator =
        with(Account::new(Dialect::OpenAi, "main", "secret-key").any_model(Limits::new()));
    for model in 0..1_024 {
        let call = Call::new(Dialect::OpenAi).model(&format!("model-{model}")).output(0);
        assert_eq!(status(&simulator, &call).await, 200);
    }
    assert_eq!(status(&simulator, &Call::new(Dialect::OpenAi).model("one-more")).await, 404);
    assert_eq!(status(&simulator, &Call::new(Dialect::OpenAi).model("model-7")).await, 200);
}
