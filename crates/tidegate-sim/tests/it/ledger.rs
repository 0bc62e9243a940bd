//! What the ledger records, and what it never contains.

use std::time::Duration;

use tidegate_sim::{
    CallEnding, Delay, Dialect, Dimension, Endpoint, Fault, Hint, Limits, RefusalCause, Simulator,
};
use tokio::time::{advance, sleep};

use crate::client::{Call, account, simulator, with};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn entry_describes_a_call() {
    let account = account(Dialect::Mistral, Limits::new().requests_per_minute(1))
        .first_token(Delay::fixed(SECOND * 3));
    let simulator = with(account);
    advance(SECOND * 2).await;
    Call::new(Dialect::Mistral).output(4).send(&simulator).await;
    Call::new(Dialect::Mistral).output(4).send(&simulator).await;
    let [answered, refused] = simulator.ledger().entries().try_into().unwrap();
    assert_eq!((answered.number, answered.at, answered.ended), (1, SECOND * 2, Some(SECOND * 5)));
    assert_eq!(answered.account.as_deref(), Some("main"));
    assert_eq!(answered.model.as_deref(), Some("m"));
    assert_eq!(answered.endpoint, Some(Endpoint::Chat));
    assert_eq!((answered.status, answered.refusal), (Some(200), None));
    assert_eq!((answered.charged.requests, answered.charged.total()), (1, 6));
    assert_eq!((answered.in_flight, answered.ending), (1, CallEnding::Complete));
    assert!(!answered.is_retry);
    assert_eq!((refused.number, refused.at, refused.status), (2, SECOND * 5, Some(429)));
    assert_eq!(refused.refusal, Some(RefusalCause::Limit(Dimension::Requests)));
    assert_eq!((refused.charged.requests, refused.in_flight), (0, 0));
    assert_eq!(refused.ending, CallEnding::Refused);
}

#[tokio::test(start_paused = true)]
async fn calls_with_unknown_keys_are_recorded() {
    let simulator = simulator(Dialect::OpenAi, Limits::new());
    let call = Call::new(Dialect::OpenAi);
    call.clone().header("authorization", "Bearer other").send(&simulator).await;
    call.clone().model("other").send(&simulator).await;
    call.clone().path("/other").send(&simulator).await;
    call.clone().field("n", 3).send(&simulator).await;
    let seen: Vec<_> = simulator
        .ledger()
        .entries()
        .into_iter()
        .map(|entry| (entry.status, entry.refusal))
        .collect();
    assert_eq!(
        seen,
        [
            (Some(401), Some(RefusalCause::Credential)),
            (Some(404), Some(RefusalCause::Model)),
            (Some(404), Some(RefusalCause::Path)),
            (Some(400), Some(RefusalCause::Request)),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn full_ollama_counts_as_throttled_but_failure_does_not() {
    let limits = Limits::new().concurrency(1).queue(0);
    let account = account(Dialect::Ollama, limits).first_token(Delay::fixed(SECOND));
    let simulator = with(account);
    let call = Call::new(Dialect::Ollama);
    let (first, second) = tokio::join!(call.send(&simulator), call.send(&simulator));
    assert_eq!((first.status, second.status), (200, 503));
    assert_eq!(simulator.ledger().throttled(), 1);
    simulator.inject("main", Fault::Unavailable, 1).unwrap();
    assert_eq!(call.send(&simulator).await.status, 503);
    assert_eq!(simulator.ledger().throttled(), 1);
}

#[tokio::test(start_paused = true)]
async fn rejected_calls_do_not_count_as_usage() {
    let simulator = simulator(Dialect::OpenAi, Limits::new().requests_per_minute(60));
    let call = Call::new(Dialect::OpenAi);
    assert_eq!(call.send(&simulator).await.status, 200);
    simulator.lock_out("main", SECOND * 60, Hint::Sent).unwrap();
    for _ in 0..30 {
        assert_eq!(call.send(&simulator).await.status, 429);
        sleep(SECOND).await;
    }
    let usage = simulator.usage("main", "m", Duration::ZERO..SECOND * 60).unwrap();
    assert_eq!((usage.used, usage.allowed), (1, 60));
    let last = simulator.ledger().entries().pop().unwrap();
    assert_eq!(last.charged.requests, 1, "OpenAI counts rejected calls");
}

#[tokio::test(start_paused = true)]
async fn calls_in_flight_are_counted() {
    let account = account(Dialect::OpenAi, Limits::new()).first_token(Delay::fixed(SECOND * 10));
    let simulator = with(account);
    let mut running = Vec::new();
    for _ in 0..3 {
        let (simulator, call) = (simulator.clone(), Call::new(Dialect::OpenAi));
        running.push(tokio::spawn(async move { call.send(&simulator).await }));
        sleep(SECOND).await;
    }
    for task in running {
        task.await.unwrap();
    }
    let counts: Vec<u64> =
        simulator.ledger().entries().iter().map(|entry| entry.in_flight).collect();
    assert_eq!(counts, [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn usage_measures_the_binding_quota_in_a_window() {
    let limits = Limits::new().requests_per_minute(60).tokens_per_minute(6_000);
    let simulator = simulator(Dialect::Mistral, limits);
    // One call per second with 90 tokens: 100 % of the requests, 90 % of the tokens.
    for _ in 0..180 {
        Call::new(Dialect::Mistral).output(88).send(&simulator).await;
        advance(SECOND).await;
    }
    let usage = simulator.usage("main", "m", SECOND * 60..SECOND * 180).unwrap();
    assert_eq!((usage.dimension, usage.used, usage.allowed), (Dimension::Requests, 120, 120));
    assert!((usage.ratio() - 1.0).abs() < 1e-9);
    assert!(simulator.usage("main", "other", SECOND..SECOND * 2).is_none());
    assert!(simulator.usage("other", "m", SECOND..SECOND * 2).is_none());
}

#[tokio::test(start_paused = true)]
async fn retries_after_a_lock_out_are_recognized() {
    let simulator = simulator(Dialect::OpenAi, Limits::new());
    simulator.lock_out("main", SECOND * 60, Hint::Sent).unwrap();
    let calls: Vec<Call> = (0..4)
        .map(|worker| Call::new(Dialect::OpenAi).field("user", format!("worker {worker}")))
        .collect();
    for call in &calls {
        assert_eq!(call.send(&simulator).await.status, 429);
    }
    advance(SECOND * 60).await;
    for call in &calls {
        assert_eq!(call.send(&simulator).await.status, 200);
        advance(SECOND).await;
    }
    let spread = simulator.ledger().retry_distribution("main", SECOND * 60..SECOND * 120).unwrap();
    assert_eq!((spread.retries, spread.densest), (4, 1));
    assert_eq!((spread.first, spread.last, spread.closest), (SECOND * 60, SECOND * 63, SECOND));
    let ledger = simulator.ledger();
    assert_eq!((ledger.throttled(), ledger.count(|entry| entry.is_retry)), (4, 4));
}

#[tokio::test(start_paused = true)]
async fn ledger_evicts_the_oldest_entries() {
    let account = account(Dialect::OpenAi, Limits::new());
    let simulator = Simulator::builder().account(account).ledger_capacity(2).build().unwrap();
    for _ in 0..5 {
        Call::new(Dialect::OpenAi).output(1).send(&simulator).await;
    }
    let ledger = simulator.ledger();
    assert_eq!((ledger.seen(), ledger.evicted(), ledger.entries().len()), (5, 3, 2));
}

#[tokio::test(start_paused = true)]
async fn keys_and_prompts_are_never_shown() {
    let simulator = simulator(Dialect::OpenAi, Limits::new().requests_per_minute(1));
    let call = Call::new(Dialect::OpenAi)
        .field("messages", serde_json::json!([{ "content": "my private thoughts" }]));
    let mut limit_headers = Vec::new();
    for _ in 0..2 {
        limit_headers.push(call.send(&simulator).await.body);
    }
    simulator.inject("main", Fault::InsufficientQuota, 1).unwrap();
    limit_headers.push(call.clone().send(&simulator).await.body);
    let wrong = call.header("authorization", "Bearer wrong-key").send(&simulator).await;
    limit_headers.push(wrong.body);
    limit_headers.push(format!("{simulator:?} {:?}", simulator.ledger()));
    for text in limit_headers {
        for secret in ["secret-key", "wrong-key", "private"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}
