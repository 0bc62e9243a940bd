//! Limits that nobody set: a provider tells them, and they are kept.

use std::sync::Arc;
use std::time::Duration;

use tidegate::Engine;
use tidegate::MemoryStore;
use tidegate::clock::TokioClock;
use tidegate_llm::mock::{Mock, Step};
use tidegate_providers::{Dimension, Reading, ReportedLimits};
use tokio::time::Instant;

use super::{
    MINUTE, SECOND, account, also, ask, call, departures, least_gap, limited, reserve, told, wait,
};

/// A mock whose first answer tells this.
fn telling(told: ReportedLimits) -> Mock {
    Mock::new("openai").then(Step::reply("yes").told(told))
}

#[tokio::test(start_paused = true)]
async fn what_an_answer_tells_paces_the_next_calls() {
    let account = account("openai").build().unwrap();
    let service = limited(&account, &telling(told(Dimension::Requests, 60, 59)));
    let first = departures(&service, 1).await;
    assert!(first[0].is_zero(), "nothing is known, and nothing is held back");
    let times = departures(&service, 6).await;
    assert!(least_gap(&times) >= SECOND, "{times:?}");
    assert!(*times.last().unwrap() <= SECOND * 7, "and nothing is wasted: {times:?}");
}

/// What is left, and when all of it is there again.
fn left(remaining: u64, reset: Duration) -> ReportedLimits {
    let mut told = ReportedLimits::nothing();
    let (limit, remaining, reset) = (Some(60), Some(remaining), Some(reset));
    told.add(Dimension::Requests, Reading { limit, remaining, reset, window: MINUTE });
    told
}

/// How long a call waits after two answers, of which the second one says this.
async fn wait_after(second: ReportedLimits) -> Duration {
    let account = account("openai").build().unwrap();
    for report in [left(59, SECOND), second] {
        let _ = call(&limited(&account, &telling(report))).await.unwrap();
        // Long enough that by our own count a call could go.
        tokio::time::sleep(SECOND * 2).await;
    }
    let service = limited(&account, &Mock::new("openai").then(Step::reply("yes")));
    let start = Instant::now();
    let _ = call(&service).await.unwrap();
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn what_others_have_used_is_waited_for() {
    assert!(wait_after(left(58, SECOND * 2)).await.is_zero());
    // One is in debt, two seconds of which have passed when it is asked for.
    let waited = wait_after(left(0, MINUTE)).await;
    assert!((SECOND / 100..SECOND).contains(&waited), "{waited:?}");
}

/// It may be of another window, or of nothing.
#[tokio::test(start_paused = true)]
async fn a_report_that_does_not_fit_together_is_not_waited_for() {
    assert!(wait_after(left(0, SECOND)).await.is_zero());
    assert!(wait_after(told(Dimension::Requests, 60, 0)).await.is_zero());
}

#[tokio::test(start_paused = true)]
async fn input_and_output_are_kept_to_apart() {
    let mut limits = told(Dimension::InputTokens, 6_000, 6_000);
    also(&mut limits, Dimension::OutputTokens, 600, 600);
    also(&mut limits, Dimension::Tokens, 1, 1);
    let account = account("anthropic").build().unwrap();
    let mut first = reserve(&account, &ask(1, 1)).await;
    first.heard(&limits);
    first.complete(None);
    // A hundred of input a second and ten of output, and a minute's worth of each to begin with.
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
async fn each_model_has_the_limits_that_it_told() {
    let account = account("openai").build().unwrap();
    let mut first = reserve(&account, &ask(1, 1)).await;
    first.heard(&told(Dimension::Requests, 60, 59));
    first.complete(None);
    for _ in 0..100 {
        let other = account.reserve("another", &ask(1, 1)).await.unwrap();
        assert!(other.waited().is_zero());
        other.complete(None);
    }
    assert!(wait(&account, &ask(1, 1)).await.is_zero(), "the first of the bucket");
    assert!(wait(&account, &ask(1, 1)).await >= SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_raised_is_used_at_once() {
    let account = account("openai").build().unwrap();
    let mock = telling(told(Dimension::Requests, 60, 59));
    let service = limited(&account, &mock);
    let _ = call(&service).await.unwrap();
    mock.push(Step::reply("yes").told(told(Dimension::Requests, 6_000, 5_999)));
    let _ = call(&service).await.unwrap();
    let times = departures(&service, 50).await;
    assert!(*times.last().unwrap() <= SECOND * 2, "{times:?}");
}

/// Names of models come from callers, and may be anything.
#[tokio::test(start_paused = true)]
async fn telling_of_many_models_takes_no_more_than_a_bound() {
    let store = MemoryStore::builder().clock(TokioClock::new()).build().unwrap();
    let store = Arc::new(store);
    let account = account("openai").engine(&Engine::on(store.clone())).build().unwrap();
    let mut limits = told(Dimension::Requests, 60_000, 60_000);
    also(&mut limits, Dimension::Tokens, 60_000_000, 60_000_000);
    let mut buckets = Vec::new();
    for number in 0..6_000 {
        let model = format!("model-{number}");
        let mut reservation = account.reserve(&model, &ask(1, 1)).await.unwrap();
        reservation.heard(&limits);
        reservation.complete(None);
        if number % 2_000 == 1_999 {
            buckets.push(store.len());
        }
    }
    assert_eq!(buckets[1], buckets[2], "{buckets:?}");
}
