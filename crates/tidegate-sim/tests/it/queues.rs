//! Providers with queues: DeepSeek sends keep-alives, Ollama does not.

use std::time::Duration;

use tidegate_sim::{CallEnding, Delay, Dialect, Limits, RefusalCause, Simulator};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::client::{Call, ReceivedResponse, account, with};

const SECOND: Duration = Duration::from_secs(1);

fn slow(dialect: Dialect, limits: Limits, seconds: u32) -> Simulator {
    with(account(dialect, limits).first_token(Delay::fixed(SECOND * seconds)))
}

/// Sends a call and waits until the simulator has received it.
async fn begin(simulator: &Simulator, call: &Call) -> JoinHandle<(ReceivedResponse, Duration)> {
    let seen = simulator.ledger().seen();
    let (simulator, call) = (simulator.clone(), call.clone());
    let ledger = simulator.ledger();
    let task = tokio::spawn(async move {
        let began = Instant::now();
        (call.send(&simulator).await, began.elapsed())
    });
    while ledger.seen() == seen {
        tokio::task::yield_now().await;
    }
    task
}

#[tokio::test(start_paused = true)]
async fn deepseek_sends_keep_alives_while_queued() {
    let simulator = slow(Dialect::DeepSeek, Limits::new().concurrency(1), 25);
    let streamed = Call::new(Dialect::DeepSeek).field("stream", true).output(1);
    let plain = Call::new(Dialect::DeepSeek).output(1);
    let first = begin(&simulator, &streamed).await;
    let second = begin(&simulator, &streamed).await;
    let third = begin(&simulator, &plain).await;
    let (first, took) = first.await.unwrap();
    assert!(!first.body.contains("keep-alive"));
    assert_eq!(took, SECOND * 25);
    let (second, took) = second.await.unwrap();
    assert_eq!(took, SECOND * 50);
    assert!(second.body.starts_with(": keep-alive\n\n: keep-alive\n\ndata: "), "{}", second.body);
    assert!(second.body.ends_with("data: [DONE]\n\n"));
    let (third, took) = third.await.unwrap();
    assert_eq!(took, SECOND * 75);
    assert!(third.body.starts_with("\n\n\n\n{"), "{}", third.body);
    assert_eq!(third.json()["usage"]["completion_tokens"], 1);
    assert_eq!(third.header("content-type"), Some("application/json"));
}

#[tokio::test(start_paused = true)]
async fn deepseek_closes_connections_queued_for_ten_minutes() {
    let simulator = slow(Dialect::DeepSeek, Limits::new().concurrency(1), 700);
    let call = Call::new(Dialect::DeepSeek).field("stream", true).output(1);
    let first = begin(&simulator, &call).await;
    let second = begin(&simulator, &call).await;
    let (second, took) = second.await.unwrap();
    assert_eq!((second.status, second.is_complete, took), (200, false, SECOND * 600));
    assert!(!second.body.contains("data:"));
    let entry = simulator.ledger().entries().remove(1);
    assert_eq!((entry.ending, entry.charged.output), (CallEnding::Cut, 0));
    assert!(first.await.unwrap().0.is_complete);
}

#[tokio::test(start_paused = true)]
async fn ollama_queues_calls_and_then_is_busy() {
    let simulator = slow(Dialect::Ollama, Limits::new().queue(2), 10);
    let call = Call::new(Dialect::Ollama).output(1);
    let mut running = Vec::new();
    for _ in 0..3 {
        running.push(begin(&simulator, &call).await);
    }
    let refused = call.send(&simulator).await;
    assert_eq!(refused.status, 503);
    let entry = simulator.ledger().entries().pop().unwrap();
    assert_eq!((entry.refusal, entry.in_flight), (Some(RefusalCause::Concurrency), 3));
    for (place, task) in (1..).zip(running) {
        let (response, took) = task.await.unwrap();
        assert_eq!((response.status, took), (200, SECOND * 10 * place));
    }
}

#[tokio::test(start_paused = true)]
async fn leaving_the_queue_frees_its_slot() {
    let simulator = slow(Dialect::Ollama, Limits::new().queue(1), 30);
    let call = Call::new(Dialect::Ollama).output(1);
    let first = begin(&simulator, &call).await;
    let second = begin(&simulator, &call).await;
    assert_eq!(call.send(&simulator).await.status, 503);
    second.abort();
    while simulator.ledger().entries()[1].ending == CallEnding::Open {
        sleep(SECOND / 10).await;
    }
    let third = begin(&simulator, &call).await;
    assert_eq!(first.await.unwrap().0.status, 200);
    assert_eq!(third.await.unwrap().0.status, 200);
    assert_eq!(simulator.ledger().entries()[1].ending, CallEnding::Abandoned);
}
