//! Holds after refusals: whom they affect and how they end.

use std::time::Duration;

use futures_util::future::join_all;
use tidegate_llm::mock::{Mock, Step};
use tidegate_llm::{CallError, OutgoingCall as _};
use tidegate_providers::Class;
use tokio::time::{Instant, sleep};

use super::{
    MODEL, SECOND, account, ask, call, limited, requests, reserve, response_times, shortest_gap,
    wait,
};

const HOUR: Duration = Duration::from_secs(3_600);

fn throttled(seconds: u32) -> Step {
    Step::fail(Class::RateLimited { after: Some(SECOND * seconds), dimension: None })
}

fn exhausted(after: Option<Duration>) -> Step {
    Step::fail(Class::ExhaustedQuota { after })
}

#[tokio::test(start_paused = true)]
async fn throttle_holds_the_model_for_all_callers_and_reopens_paced() {
    let account = account("together").build().unwrap();
    let mock = Mock::new("together").then(throttled(7));
    let handles = [limited(&account, &mock), limited(&account.clone(), &mock)];
    call(&handles[0]).await.unwrap_err();
    sleep(SECOND).await;
    let times = response_times(&handles[1], 5).await;
    assert_eq!(mock.call_count(), 6);
    assert!(times[0] >= SECOND * 6, "{times:?}");
    assert!(times[0] <= SECOND * 8, "{times:?}");
    assert!(shortest_gap(&times) >= SECOND / 2, "not all at once: {times:?}");
}

#[tokio::test(start_paused = true)]
async fn throttled_model_does_not_delay_other_models() {
    let account = requests("openai", 6_000, 100).build().unwrap();
    let mock = Mock::new("openai").then(throttled(7));
    call(&limited(&account, &mock)).await.unwrap_err();
    let waiting = tokio::spawn({
        let account = account.clone();
        async move { wait(&account, &ask(1, 1)).await }
    });
    sleep(SECOND).await;
    for _ in 0..20 {
        let other = account.reserve("another", &ask(1, 1)).await.unwrap();
        assert!(other.waited() < SECOND / 10, "{:?}", other.waited());
        other.complete(None);
    }
    assert!(waiting.await.unwrap() >= SECOND * 6);
}

#[tokio::test(start_paused = true)]
async fn exhausted_quota_closes_the_model_for_all_callers_until_it_resets() {
    let account = account("gemini").build().unwrap();
    let mock = Mock::new("gemini").then(exhausted(Some(HOUR)));
    let handles = [limited(&account, &mock), limited(&account.clone(), &mock)];
    call(&handles[0]).await.unwrap_err();
    sleep(SECOND * 600).await;
    let before = Instant::now();
    for handle in &handles {
        let error = call(handle).await.unwrap_err();
        assert!(matches!(error, CallError::QuotaExhausted(_)), "{error:?}");
        assert_eq!(error.retry_after(), Some(HOUR - SECOND * 600));
        assert!(!error.was_sent());
    }
    assert!(before.elapsed().is_zero(), "calls fail immediately");
    assert_eq!(mock.call_count(), 1);
    assert!(account.reserve("another", &ask(1, 1)).await.is_ok());
    sleep(HOUR - SECOND * 600).await;
    let _ = call(&handles[1]).await.unwrap();
    assert_eq!(mock.call_count(), 2);
}

#[tokio::test(start_paused = true)]
async fn exhausted_quota_without_a_reset_time_is_retried_after_a_minute() {
    let account = account("openai").build().unwrap();
    let mock = Mock::new("openai").then(exhausted(None));
    let service = limited(&account, &mock);
    call(&service).await.unwrap_err();
    sleep(SECOND * 59).await;
    let error = call(&service).await.unwrap_err();
    assert!(matches!(error, CallError::QuotaExhausted(_)), "{error:?}");
    sleep(SECOND).await;
    let _ = call(&service).await.unwrap();
}

/// Calls waiting when the model closes fail when they are admitted, without a charge.
#[tokio::test(start_paused = true)]
async fn calls_waiting_when_a_model_closes_fail_and_are_not_charged() {
    let account = requests("openai", 60, 1).build().unwrap();
    let mock = Mock::new("openai").then(exhausted(Some(HOUR)).after(SECOND / 2));
    let service = limited(&account, &mock);
    let start = Instant::now();
    let results = join_all((0..50).map(|_| call(&service))).await;
    let closed = |result: &Result<_, _>| matches!(result, Err(CallError::QuotaExhausted(_)));
    assert_eq!(results.iter().filter(|result| closed(result)).count(), 49);
    assert_eq!(mock.call_count(), 1);
    assert_eq!(start.elapsed(), SECOND, "all fail when the first is admitted");
    let other = account.reserve("another", &ask(1, 1)).await.unwrap();
    assert!(other.waited().is_zero(), "{:?}", other.waited());
}

/// Sends calls one after another for `span` and returns their number.
async fn sent(service: &tidegate_llm::rate_limit::RateLimit<Mock>, span: Duration) -> u32 {
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed() < span {
        let _ = call(service).await.unwrap();
        count += 1;
    }
    count
}

#[tokio::test(start_paused = true)]
async fn slow_down_lowers_the_rate_for_a_while() {
    let account = requests("openai", 600, 1).build().unwrap();
    let mock = Mock::new("openai");
    let service = limited(&account, &mock);
    let before = sent(&service, SECOND * 20).await;
    assert!((199..=202).contains(&before), "{before}");
    mock.push(Step::fail(Class::SlowDown));
    call(&service).await.unwrap_err();
    let slowed = sent(&service, SECOND * 5).await;
    assert!((30..=45).contains(&slowed), "{slowed}");
    sent(&service, SECOND * 60).await;
    let recovered = sent(&service, SECOND * 20).await;
    assert!((199..=202).contains(&recovered), "{recovered}");
}

#[tokio::test(start_paused = true)]
async fn ramp_restarts_after_a_pause() {
    let account = requests("anthropic", 600, 1).ramp_up(60, SECOND * 60).build().unwrap();
    let service = limited(&account, &Mock::new("anthropic"));
    for _ in 0..2 {
        let mut sent_in = Vec::new();
        for _ in 0..8 {
            sent_in.push(sent(&service, SECOND * 10).await);
        }
        assert!(sent_in[0] <= 25, "{sent_in:?}");
        assert!(sent_in.is_sorted_by(|one, next| *one <= next + 2), "{sent_in:?}");
        assert!((98..=102).contains(&sent_in[7]), "{sent_in:?}");
        sleep(HOUR).await;
    }
}

#[tokio::test(start_paused = true)]
async fn call_that_would_wait_too_long_is_refused_at_once() {
    let account = requests("openai", 1, 1).build().unwrap();
    reserve(&account, &ask(1, 1)).await.complete(None);
    let mut hasty = ask(1, 1);
    hasty.options_mut().max_wait = Some(SECOND * 5);
    let before = Instant::now();
    let error = account.reserve(MODEL, &hasty).await.unwrap_err();
    assert!(matches!(error, CallError::NoPermit { .. }), "{error:?}");
    assert!(before.elapsed().is_zero());
}
