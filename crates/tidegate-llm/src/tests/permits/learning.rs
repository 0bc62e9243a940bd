//! Limits that are not configured but reported by the provider.

use std::sync::Arc;
use std::time::Duration;

use tidegate::Engine;
use tidegate::MemoryStore;
use tidegate::clock::TokioClock;
use tidegate_llm::mock::{Mock, Step};
use tidegate_providers::{Dimension, LimitReading, ReportedLimits, Usage};
use tokio::time::Instant;

use super::{
    MINUTE, SECOND, TestCall, account, add_limit, ask, call, limited, reported, reserve,
    response_times, shortest_gap, wait,
};

/// A mock whose first response reports these limits.
fn reporting_mock(reported: ReportedLimits) -> Mock {
    Mock::new("openai").then(Step::reply("yes").reported_limits(reported))
}

#[tokio::test(start_paused = true)]
async fn reported_limit_paces_the_next_calls() {
    let account = account("openai").build().unwrap();
    let service = limited(&account, &reporting_mock(reported(Dimension::Requests, 60, 59)));
    let first = response_times(&service, 1).await;
    assert!(first[0].is_zero(), "an unknown limit delays nothing");
    let times = response_times(&service, 6).await;
    assert!(shortest_gap(&times) >= SECOND, "{times:?}");
    assert!(*times.last().unwrap() <= SECOND * 7, "no quota is wasted: {times:?}");
}

/// A report of the remaining amount and the reset time.
fn left(remaining: u64, reset: Duration) -> ReportedLimits {
    let mut reported = ReportedLimits::new();
    let (limit, remaining, reset) = (Some(60), Some(remaining), Some(reset));
    reported.add(Dimension::Requests, LimitReading { limit, remaining, reset, window: MINUTE });
    reported
}

/// Returns how long a call waits after two responses, the second with this report.
async fn wait_after_report(second: ReportedLimits) -> Duration {
    let account = account("openai").build().unwrap();
    for report in [left(59, SECOND), second] {
        let _ = call(&limited(&account, &reporting_mock(report))).await.unwrap();
        // Long enough for another call by our own count.
        tokio::time::sleep(SECOND * 2).await;
    }
    let service = limited(&account, &Mock::new("openai").then(Step::reply("yes")));
    let start = Instant::now();
    let _ = call(&service).await.unwrap();
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn usage_by_other_clients_is_waited_for() {
    assert!(wait_after_report(left(58, SECOND * 2)).await.is_zero());
    // The bucket is one in debt, and two seconds have passed.
    let waited = wait_after_report(left(0, MINUTE)).await;
    assert!((SECOND / 100..SECOND).contains(&waited), "{waited:?}");
}

/// Such a report may describe another window, or nothing.
#[tokio::test(start_paused = true)]
async fn inconsistent_report_is_not_waited_for() {
    assert!(wait_after_report(left(0, SECOND)).await.is_zero());
    assert!(wait_after_report(reported(Dimension::Requests, 60, 0)).await.is_zero());
}

#[tokio::test(start_paused = true)]
async fn input_and_output_limits_apply_separately() {
    let mut limits = reported(Dimension::InputTokens, 6_000, 6_000);
    add_limit(&mut limits, Dimension::OutputTokens, 600, 600);
    add_limit(&mut limits, Dimension::Tokens, 1, 1);
    let account = account("anthropic").build().unwrap();
    let mut first = reserve(&account, &ask(1, 1)).await;
    first.response_started(&limits);
    first.complete(None);
    // 100 input and 10 output tokens per second, and a minute's worth of each to start with.
    drop(reserve(&account, &ask(50, 600)).await);
    let next = reserve(&account, &ask(50, 30)).await;
    let waits = next.waited_for();
    assert_eq!(waits[0].0, "output_tokens", "{waits:?}");
    assert!(next.waited() >= SECOND * 3, "{waits:?}");
    next.complete(None);
    tokio::time::sleep(SECOND * 60).await;
    drop(reserve(&account, &ask(6_000, 1)).await);
    let next = reserve(&account, &ask(50, 1)).await;
    assert_eq!(next.waited_for()[0].0, "input_tokens", "{:?}", next.waited_for());
}

#[tokio::test(start_paused = true)]
async fn each_model_has_its_own_reported_limits() {
    let account = account("openai").build().unwrap();
    let mut first = reserve(&account, &ask(1, 1)).await;
    first.response_started(&reported(Dimension::Requests, 60, 59));
    first.complete(None);
    for _ in 0..100 {
        let other = account.reserve("another", &ask(1, 1)).await.unwrap();
        assert!(other.waited().is_zero());
        other.complete(None);
    }
    assert!(wait(&account, &ask(1, 1)).await.is_zero(), "the first token of the bucket");
    assert!(wait(&account, &ask(1, 1)).await >= SECOND);
}

#[tokio::test(start_paused = true)]
async fn raised_limit_is_used_at_once() {
    let account = account("openai").build().unwrap();
    let mock = reporting_mock(reported(Dimension::Requests, 60, 59));
    let service = limited(&account, &mock);
    let _ = call(&service).await.unwrap();
    mock.push(Step::reply("yes").reported_limits(reported(Dimension::Requests, 6_000, 5_999)));
    let _ = call(&service).await.unwrap();
    let times = response_times(&service, 50).await;
    assert!(*times.last().unwrap() <= SECOND * 2, "{times:?}");
}

/// Callers choose the names of models.
#[tokio::test(start_paused = true)]
async fn many_models_take_bounded_space() {
    let store = MemoryStore::builder().clock(TokioClock::new()).build().unwrap();
    let store = Arc::new(store);
    let account = account("openai").engine(&Engine::on(store.clone())).build().unwrap();
    let mut limits = reported(Dimension::Requests, 60_000, 60_000);
    add_limit(&mut limits, Dimension::Tokens, 60_000_000, 60_000_000);
    let mut buckets = Vec::new();
    for number in 0..6_000 {
        let model = format!("model-{number}");
        let mut reservation = account.reserve(&model, &ask(1, 1)).await.unwrap();
        reservation.response_started(&limits);
        reservation.complete(None);
        if number % 2_000 == 1_999 {
            buckets.push(store.len());
        }
    }
    assert_eq!(buckets[1], buckets[2], "{buckets:?}");
}

/// Before the tokenizer is ready, calls are estimated: by how much is no property of the model.
#[tokio::test(start_paused = true)]
async fn estimated_input_neither_teaches_nor_follows_the_correction() {
    let account = account("openai").build().unwrap();
    let counted = ask(100, 10);
    let estimated = TestCall { is_input_estimated: true, ..counted.clone() };
    let expected = async |call: &TestCall| {
        let reservation = reserve(&account, call).await;
        let (input, _) = reservation.expected_tokens();
        (reservation, input)
    };
    let usage = Usage { input: 300, output: 10, ..Usage::default() };
    let (first, input) = expected(&estimated).await;
    assert_eq!(input, 100);
    first.complete(Some(usage));
    let (second, input) = expected(&counted).await;
    assert_eq!(input, 100, "nothing was learned from the estimate");
    second.complete(Some(usage));
    let (third, input) = expected(&counted).await;
    assert_eq!(input, 300);
    third.complete(None);
    let (_, input) = expected(&estimated).await;
    assert_eq!(input, 100, "the correction is one of counts");
}
