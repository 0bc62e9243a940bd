//! Waiting times with changing rates, daily limits, odd reports and several accounts.

use std::sync::Arc;

use futures_util::future::join_all;
use tidegate::pacer::PoolSize;
use tidegate::{Engine, StoreHandle};
use tidegate_llm::CallError;
use tidegate_llm::mock::Step;
use tidegate_llm::plan::{ConstraintSource, RawConstraint};
use tidegate_providers::{Class, Dimension, Failure, ReportedLimits};
use tidegate_redis::RedisStore;
use tidegate_testkit::launch::{Flavor, RedisServer};
use tokio::time::{Instant, timeout};

use super::*;

fn throttled(after: Option<Duration>) -> CallError {
    let class = Class::RateLimited { after, dimension: None };
    Box::new(Failure::new("mistral".into(), class, http::StatusCode::TOO_MANY_REQUESTS)).into()
}

/// Returns when the last of `calls` concurrent calls is sent.
async fn time_of_last(account: &Account, calls: u64) -> Duration {
    let start = Instant::now();
    let calls = (0..calls).map(|_| async {
        reserve(account, &ask(1, 1)).await.complete(None);
    });
    join_all(calls).await;
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn ramp_continues_for_waiting_calls() {
    let account = requests("mistral", 600, 1).ramp_up(6, SECOND * 10).build().unwrap();
    let last = time_of_last(&account, 40).await;
    assert!(last < SECOND * 20, "six a minute, then ten a second: {last:?}");
}

#[tokio::test(start_paused = true)]
async fn push_back_ends_for_waiting_calls() {
    let account = account("mistral").concurrency(PoolSize::Unlimited).build().unwrap();
    let first = reserve(&account, &ask(1, 1)).await;
    first.failed(throttled(Some(SECOND)));
    let last = time_of_last(&account, 200).await;
    assert!(last < SECOND * 150, "{last:?}");
}

/// A continuously refilling daily bucket has another request long before it is full.
#[tokio::test(start_paused = true)]
async fn last_request_of_a_refilling_day_does_not_close_the_model_for_a_day() {
    let account = account("groq").build().unwrap();
    let mut day = ReportedLimits::new();
    let reading = LimitReading {
        limit: Some(14_400),
        remaining: Some(0),
        reset: Some(SECOND * 86_394),
        window: SECOND * 86_400,
    };
    day.add(Dimension::RequestsPerDay, reading);
    let mut first = reserve(&account, &ask(1, 1)).await;
    first.response_started(&day);
    first.complete(None);
    let waited = wait(&account, &ask(1, 1)).await;
    assert!((SECOND * 6..SECOND * 7).contains(&waited), "one every six seconds: {waited:?}");
}

/// Calls fail instead of waiting for a day, and nothing is sent meanwhile.
#[tokio::test(start_paused = true)]
async fn retry_after_of_a_day_is_an_error_for_all_callers() {
    let account = account("azure").build().unwrap();
    let waiting = reserve(&account, &ask(1, 1)).await;
    waiting.failed(throttled(Some(SECOND * 86_400)));
    let error = account.reserve(MODEL, &ask(1, 1)).await.unwrap_err();
    assert!(matches!(error, CallError::QuotaExhausted(_)), "{error:?}");
    assert_eq!(error.retry_after(), Some(SECOND * 86_400));
    tokio::time::sleep(SECOND * 86_400).await;
    reserve(&account, &ask(1, 1)).await.complete(None);
}

#[tokio::test(start_paused = true)]
async fn configured_daily_limit_fails_waiting_calls() {
    let raw = RawConstraint {
        requests_per_minute: Some(60),
        requests_per_day: Some(2),
        ..RawConstraint::default()
    };
    let builder =
        account("mistral").limits(constraint(&raw), ConstraintSource::Override).without_margin();
    let account = builder.build().unwrap();
    let call = ask(1, 1);
    let calls = (0..5).map(|_| account.reserve(MODEL, &call));
    let done = timeout(SECOND * 10, join_all(calls)).await.unwrap();
    let refused: Vec<_> = done.iter().filter_map(|one| one.as_ref().err()).collect();
    assert_eq!(refused.len(), 3);
    for error in refused {
        assert!(matches!(error.class(), Class::ExhaustedQuota { after: Some(_) }), "{error:?}");
    }
    // A call that was never sent is refunded.
    let (provider, kind) = ("mistral".into(), tidegate_llm::ConnectionFailure::NotConnected);
    let error = CallError::Connection { provider, kind, source: None };
    done.into_iter().find_map(Result::ok).unwrap().failed(error);
    reserve(&account, &call).await.complete(None);
}

/// A header that wrongly says one token per minute is corrected by the next response.
#[tokio::test(start_paused = true)]
async fn wrongly_reported_limit_does_not_lock_a_model() {
    let account = account("mistral").build().unwrap();
    for limit in [1, 60_000] {
        let mut call = timeout(SECOND * 60, reserve(&account, &ask(50, 50))).await.unwrap();
        call.response_started(&reported(Dimension::Tokens, limit, limit));
        call.complete(None);
    }
    assert!(wait(&account, &ask(50, 50)).await < SECOND * 2);
}

#[tokio::test(start_paused = true)]
async fn call_larger_than_the_limit_is_too_large_after_one_attempt() {
    let class = Class::RateLimited { after: Some(SECOND), dimension: Some(Dimension::Tokens) };
    let mut failure = Failure::new("openai".into(), class, http::StatusCode::TOO_MANY_REQUESTS);
    failure.reported_limits = reported(Dimension::Tokens, 1_000, 0);
    let mock = Mock::new("openai").always(Step::failure(failure));
    let account = account("openai").build().unwrap();
    let limited = limited(&account, &mock);
    let chat = Chat::user("hello").max_tokens(5_000);
    let error = limited.clone().oneshot(Call::new(chat)).await.unwrap_err();
    assert_eq!(error.class(), Class::TooLarge);
    let error = limited.oneshot(Call::new(Chat::user("hello").max_tokens(10))).await.unwrap_err();
    assert!(matches!(error.class(), Class::RateLimited { .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn deadline_limits_the_wait_without_a_retry_layer() {
    let account = requests("mistral", 1, 1).build().unwrap();
    reserve(&account, &ask(1, 1)).await.complete(None);
    let mut call = ask(1, 1);
    call.options.deadline = Some(SECOND * 5);
    let start = Instant::now();
    let error = account.reserve(MODEL, &call).await.unwrap_err();
    assert!(matches!(error, CallError::NoPermit { .. }), "{error:?}");
    assert!(start.elapsed() <= SECOND * 5);
}

#[tokio::test(start_paused = true)]
async fn refusal_names_the_limit_and_the_wait() {
    let short_wait = || {
        let mut call = ask(1, 1);
        call.options.max_wait = Some(SECOND);
        call
    };
    let known = |error: CallError| match error {
        CallError::NoPermit { limited_by, after, .. } => (limited_by, after),
        other => panic!("{other:?}"),
    };
    let account = requests("mistral", 1, 1).build().unwrap();
    reserve(&account, &ask(1, 1)).await.complete(None);
    let error = account.reserve(MODEL, &short_wait()).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(MINUTE));
    assert_eq!(known(error), (Some("requests"), Some(MINUTE)));
    let builder = super::account("mistral").concurrency(PoolSize::Fixed(1));
    let account = builder.build().unwrap();
    let _held = reserve(&account, &ask(1, 1)).await;
    let error = account.reserve(MODEL, &short_wait()).await.unwrap_err();
    assert_eq!(
        known(error),
        (Some("concurrency"), None),
        "the time until a slot is free is unknown"
    );
}

/// A burst of 60 to a provider that counts each second and reports nothing: afterwards calls are
/// sent one by one.
#[tokio::test(start_paused = true)]
async fn refused_burst_is_not_repeated() {
    let account = requests("mistral", 60, 60).concurrency(PoolSize::Unlimited).build().unwrap();
    let call = ask(1, 1);
    let burst: Vec<_> = join_all((0..60).map(|_| reserve(&account, &call))).await;
    for call in burst {
        call.failed(throttled(None));
    }
    tokio::time::sleep(SECOND * 120).await;
    let last = time_of_last(&account, 10).await;
    assert!(last >= SECOND * 9, "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn removed_limit_releases_waiting_calls() {
    let account = requests("mistral", 1, 1).build().unwrap();
    reserve(&account, &ask(1, 1)).await.complete(None);
    let start = Instant::now();
    let call = ask(1, 1);
    let waits = reserve(&account, &call);
    let change = async {
        tokio::time::sleep(SECOND).await;
        let raw = RawConstraint { tokens_per_minute: Some(60_000), ..RawConstraint::default() };
        account.reconfigure(constraint(&raw), ConstraintSource::Override).unwrap();
    };
    let (reservation, ()) = tokio::join!(waits, change);
    reservation.complete(None);
    assert!(start.elapsed() < SECOND * 2, "{:?}", start.elapsed());
}

/// An account opened earlier on the same engine leaves buckets behind that do not conflict.
#[tokio::test(start_paused = true)]
async fn account_can_be_opened_again() {
    let store =
        tidegate::MemoryStore::builder().clock(tidegate::clock::TokioClock::new()).build().unwrap();
    let engine = Engine::on(store);
    let first = requests("mistral", 60, 1).engine(&engine).build().unwrap();
    let mut call = reserve(&first, &ask(1, 1)).await;
    call.response_started(&reported(Dimension::Tokens, 60_000, 60_000));
    call.complete(None);
    drop(first);
    let second = requests("mistral", 6, 1).engine(&engine).build().unwrap();
    assert!(wait(&second, &ask(1, 1)).await > SECOND / 2, "charges are kept");
    assert_eq!(wait(&second, &ask(1, 1)).await, SECOND * 10);
}

/// The engine keeps no limits in use for evicted accounts.
#[tokio::test(start_paused = true)]
async fn retired_account_leaves_the_engine_and_keeps_its_charges() {
    let store =
        tidegate::MemoryStore::builder().clock(tidegate::clock::TokioClock::new()).build().unwrap();
    let engine = Engine::on(store);
    let first = requests("mistral", 6, 1).engine(&engine).build().unwrap();
    let mut call = reserve(&first, &ask(1, 1)).await;
    call.response_started(&reported(Dimension::Tokens, 60_000, 60_000));
    call.complete(None);
    let names: Vec<String> = engine.limits().iter().map(|limit| limit.name().to_owned()).collect();
    assert!(names.len() > 2, "configured and reported limits: {names:?}");
    first.retire();
    assert!(names.iter().all(|name| engine.find(name).is_none()), "{names:?}");
    assert_eq!(engine.limits().len(), names.len(), "their buckets are still there");
    let again = requests("mistral", 6, 1).engine(&engine).build().unwrap();
    assert_eq!(wait(&again, &ask(1, 1)).await, SECOND * 10, "charges are kept");
}

/// A process that has received no reports yet must not reset what others have learned.
#[tokio::test]
async fn new_process_on_a_shared_store_keeps_learned_limits() {
    let redis = RedisServer::start(Flavor::Redis);
    let join = async || {
        let store = RedisStore::builder(&redis.url()).open().unwrap();
        store.connected().await.unwrap();
        let engine = Engine::on(StoreHandle::shared(Arc::new(store)));
        let account = account("mistral").concurrency(PoolSize::Unlimited);
        account.engine(&engine).build().unwrap()
    };
    let old = join().await;
    let mut first = reserve(&old, &ask(1, 1)).await;
    first.response_started(&reported(Dimension::Requests, 300, 300));
    first.complete(None);
    let newcomer = join().await;
    reserve(&newcomer, &ask(1, 1)).await.complete(None);
    reserve(&old, &ask(1, 1)).await.complete(None);
    let waited = wait(&old, &ask(1, 1)).await;
    assert!(waited > SECOND / 10, "one every 203 ms: {waited:?}");
}
