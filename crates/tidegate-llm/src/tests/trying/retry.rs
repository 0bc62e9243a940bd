//! Which failures are retried, when and how often.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate::pacer::AcquireError;
use tidegate_llm::retry::{Budget, Reason, RetryLayer, Retryable, TimeBudget, run_within};
use tidegate_llm::{Call, CallError, ConnectionFailure};
use tidegate_providers::Class;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};
use tower::{Layer as _, service_fn};

use super::{
    SECOND, Script, ask, connection_failure, failed, hello, rate_limited, rate_limited_for,
};

/// A layer without jitter.
fn exact() -> RetryLayer {
    RetryLayer::new("openai").jitter_percent(0)
}

/// Returns the result of a call through a layer, and the times of its attempts.
async fn attempts(
    script: &Script,
    layer: RetryLayer,
) -> (Result<&'static str, CallError>, Vec<f64>) {
    let service = layer.layer(script.clone());
    (ask(&service, hello()).await, script.times())
}

#[tokio::test(start_paused = true)]
async fn eight_retries_double_their_delays_up_to_a_minute() {
    let script = Script::failing(9, rate_limited);
    let (result, times) = attempts(&script, exact()).await;
    assert_eq!(times, [0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 63.0, 123.0, 183.0]);
    let error = result.unwrap_err();
    assert!(matches!(error, CallError::Exhausted { attempts: 9, .. }), "{error}");
    assert_eq!(error.failure().unwrap().status, 429);
    let cause = std::error::Error::source(&error).unwrap();
    assert_eq!(
        (error.to_string(), cause.to_string()),
        of("9 attempts failed, the last one: openai answered 429", "openai answered 429")
    );
}

fn of(error: &str, cause: &str) -> (String, String) {
    (error.into(), cause.into())
}

#[tokio::test(start_paused = true)]
async fn local_provider_is_retried_three_times() {
    let layer = RetryLayer::new("ollama").max_retries(3).base_delay(SECOND / 2).jitter_percent(0);
    let script = Script::failing(3, rate_limited);
    let (result, times) = attempts(&script, layer).await;
    assert_eq!((result.unwrap(), times), ("answer", vec![0.0, 0.5, 1.5, 3.5]));
}

fn no_permit() -> CallError {
    CallError::NoPermit {
        provider: "openai".into(),
        source: AcquireError::TooLong { projected: SECOND, max_wait: SECOND / 2 },
        limited_by: None,
        after: Some(SECOND),
    }
}

#[tokio::test(start_paused = true)]
async fn retry_without_a_permit_returns_the_earlier_error() {
    let script = Script::new(|number, _| {
        Err(if number == 0 { failed(Class::Transient) } else { no_permit() })
    });
    let (result, times) = attempts(&script, exact()).await;
    let error = result.unwrap_err();
    assert_eq!(times.len(), 2);
    assert_eq!(error.class(), Class::Transient, "{error:?}");
    assert!(error.failure().is_some(), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn permanent_errors_are_not_retried() {
    let quota = || failed(Class::ExhaustedQuota { after: Some(SECOND) });
    let request =
        || CallError::InvalidRequest { provider: "openai".into(), source: "no words".into() };
    let permanent: [fn() -> CallError; 6] = [
        quota,
        || failed(Class::CredentialRejected),
        || failed(Class::BadRequest),
        || failed(Class::TooLarge),
        no_permit,
        request,
    ];
    for error in permanent {
        let (script, begin) = (Script::failing(1, error), Instant::now());
        let (result, times) = attempts(&script, exact()).await;
        assert_eq!((times, begin.elapsed()), (vec![0.0], Duration::ZERO), "{}", error());
        assert_eq!(result.unwrap_err().to_string(), error().to_string(), "unchanged");
    }
}

#[tokio::test(start_paused = true)]
async fn transient_errors_are_retried() {
    let transient: [fn() -> CallError; 6] = [
        || connection_failure(ConnectionFailure::TimedOut),
        || connection_failure(ConnectionFailure::Closed),
        || failed(Class::Transient),
        || failed(Class::Overloaded),
        || failed(Class::SlowDown),
        || CallError::CircuitOpen { provider: "openai".into(), after: SECOND / 2 },
    ];
    for error in transient {
        let script = Script::failing(1, error);
        let (result, times) = attempts(&script, exact()).await;
        assert_eq!((result.unwrap(), times), ("answer", vec![0.0, 1.0]), "{}", error());
    }
}

#[tokio::test(start_paused = true)]
async fn server_delay_is_honoured() {
    let script = Script::failing(2, || rate_limited_for(20));
    let (result, times) = attempts(&script, exact()).await;
    assert_eq!((result.unwrap(), times), ("answer", vec![0.0, 20.0, 40.0]));

    let open = || CallError::CircuitOpen { provider: "openai".into(), after: SECOND * 30 };
    let script = Script::failing(1, open);
    let (result, times) = attempts(&script, exact()).await;
    assert_eq!((result.unwrap(), times), ("answer", vec![0.0, 30.0]));
}

#[tokio::test(start_paused = true)]
async fn server_delay_above_the_maximum_fails_the_call() {
    let script = Script::failing(1, || rate_limited_for(601));
    let (result, times) = attempts(&script, exact()).await;
    assert_eq!(times, [0.0]);
    assert_eq!(result.unwrap_err().retry_after(), Some(SECOND * 601));
    let script = Script::failing(1, || rate_limited_for(601));
    let (result, times) = attempts(&script, exact().max_server_delay(SECOND * 700)).await;
    assert_eq!((result.is_ok(), times), (true, vec![0.0, 601.0]));
}

#[tokio::test(start_paused = true)]
async fn no_attempt_starts_after_the_deadline() {
    let layer = exact().deadline(SECOND * 60);
    let script = Script::failing(9, rate_limited);
    let error = ask(&layer.layer(script.clone()), hello().deadline(SECOND * 7)).await.unwrap_err();
    // After the attempt at 3 s the next one would be at 7 s.
    assert_eq!((script.times(), script.begin.elapsed()), (vec![0.0, 1.0, 3.0], SECOND * 3));
    assert!(matches!(error, CallError::Exhausted { attempts: 3, .. }), "{error}");

    let script = Script::failing(9, rate_limited);
    ask(&layer.layer(script.clone()), hello()).await.unwrap_err();
    assert_eq!(script.calls(), 6, "the deadline of the layer");
    assert_eq!(layer.out_of_time(), 2);

    let script = Script::failing(9, || rate_limited_for(120));
    let error = ask(&layer.layer(script.clone()), hello()).await.unwrap_err();
    assert_eq!((script.calls(), script.begin.elapsed()), (1, Duration::ZERO));
    assert_eq!(error.retry_after(), Some(SECOND * 120));
}

/// A provider that is unreachable for seconds is usually down for longer.
#[tokio::test(start_paused = true)]
async fn unreachable_provider_is_retried_twice_with_shorter_delays() {
    let unreachable = || connection_failure(ConnectionFailure::NotConnected);
    let (result, times) = attempts(&Script::failing(2, unreachable), exact()).await;
    assert_eq!((result.unwrap(), times), ("answer", vec![0.0, 0.25, 0.75]));
    let layer = exact();
    let script = Script::failing(9, unreachable);
    let error = ask(&layer.layer(script.clone()), hello()).await.unwrap_err();
    assert!(matches!(error, CallError::Exhausted { attempts: 3, .. }), "{error}");
    assert_eq!(layer.unreachable(), 1);
    // A provider that sometimes responds is not unreachable.
    let script = Script::new(|call, _| {
        Err(if call % 2 == 0 {
            connection_failure(ConnectionFailure::NotConnected)
        } else {
            failed(Class::Transient)
        })
    });
    ask(&layer.layer(script.clone()), hello()).await.unwrap_err();
    assert_eq!(script.calls(), 9);
}

/// Waits in inner layers count, and those layers receive the time left.
#[tokio::test(start_paused = true)]
async fn waits_for_permits_and_delays_share_the_maximum_wait() {
    let script = Script::new(|_, _| Err(rate_limited())).lasting(SECOND * 2);
    let service = exact().layer(script.clone());
    let limits = async |call: Call| {
        script.seen.lock().unwrap().clear();
        let start = Instant::now();
        ask(&service, call).await.unwrap_err();
        let seen = script.seen.lock().unwrap().clone();
        let seen: Vec<_> = seen.iter().map(|(_, options)| options.max_wait.unwrap()).collect();
        (seen, start.elapsed())
    };
    let (seen, took) = limits(hello().max_wait(SECOND * 12)).await;
    // Attempts take 2 s, after delays of 1 s, 2 s and a shortened one of 4 s.
    assert_eq!(seen, [SECOND * 12, SECOND * 9, SECOND * 5, SECOND * 3 / 4], "{took:?}");
    assert!(took <= SECOND * 14, "the last attempt begins in time: {took:?}");
    let (seen, _) = limits(hello().deadline(SECOND * 10).max_wait(SECOND * 60)).await;
    assert_eq!(seen, [SECOND * 10, SECOND * 7, SECOND * 3]);
    let (seen, _) = limits(hello().max_wait(SECOND)).await;
    assert_eq!(seen, [SECOND]);
}

#[tokio::test(start_paused = true)]
async fn attempt_is_cancelled_at_the_deadline() {
    let script = Script::failing(0, rate_limited).lasting(SECOND * 100);
    let service = exact().layer(script.clone());
    let error = ask(&service, hello().deadline(SECOND * 10)).await.unwrap_err();
    assert_eq!((script.calls(), script.begin.elapsed()), (1, SECOND * 10));
    assert!(
        matches!(error, CallError::Connection { kind: ConnectionFailure::TimedOut, .. }),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn spent_budget_ends_all_retries_of_its_provider() {
    let budget = Budget::new(3);
    let layers = [(); 2].map(|()| exact().with_budget(&budget));
    let script = Script::new(|_, _| Err(failed(Class::Transient)));
    let calls = layers.iter().cycle().take(20).map(|layer| {
        let service = layer.layer(script.clone());
        async move { ask(&service, hello().deadline(SECOND * 2)).await }
    });
    let errors = futures_util::future::join_all(calls).await;
    // The budget had three retries, and fifteen of the later calls added three more.
    assert_eq!(script.calls(), 26);
    let single = errors.iter().filter(|error| matches!(error, Err(CallError::Provider(_))));
    assert_eq!(single.count(), 14);
    assert_eq!(layers.iter().map(RetryLayer::budget_denials).sum::<u64>(), 14);
    sleep(SECOND * 10).await;
    assert_eq!(budget.remaining(), 3);
}

#[tokio::test(start_paused = true)]
async fn call_cancelled_during_a_delay_does_nothing_more() {
    let (layer, script) = (exact(), Script::failing(9, rate_limited));
    let service = layer.layer(script.clone());
    let call = tokio::spawn(async move { ask(&service, hello()).await });
    sleep(SECOND * 2).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    sleep(SECOND * 600).await;
    assert_eq!(script.times(), [0.0, 1.0]);
    assert_eq!((layer.attempts(), layer.retries()), (2, 1));
    assert_eq!((layer.total_delay(), layer.exhausted()), (SECOND, 0));
}

#[tokio::test(start_paused = true)]
async fn retry_holds_no_permit_during_its_delay() {
    let (permits, script) = (Arc::new(Semaphore::new(1)), Script::failing(2, rate_limited));
    let (inner, held) = (script.lasting(SECOND), permits.clone());
    let limited = service_fn(move |call| {
        let (inner, permits) = (inner.clone(), held.clone());
        async move {
            let _permit = permits.acquire().await.unwrap();
            ask(&inner, call).await
        }
    });
    let service = exact().layer(limited);
    let call = tokio::spawn(async move { ask(&service, hello()).await });
    // 1 s of work, 1 s of delay, 1 s of work, 2 s of delay, 1 s of work.
    sleep(SECOND / 2).await;
    let mut available = Vec::new();
    for _ in 0..6 {
        available.push(permits.available_permits());
        sleep(SECOND).await;
    }
    assert_eq!(available, [0, 1, 0, 1, 1, 0]);
    assert!(call.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn nested_retries_do_not_multiply() {
    let script = Script::new(|_, _| Err(failed(Class::Transient)));
    let inner = exact().layer(script.clone());
    let error = ask(&exact().layer(inner), hello()).await.unwrap_err();
    assert_eq!(script.calls(), 9);
    assert!(matches!(error, CallError::Exhausted { attempts: 9, .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn layer_counts_calls_attempts_and_outcomes() {
    let layer = exact();
    for failures in [0, 1, 1, 3, 9] {
        let script = Script::failing(failures, rate_limited);
        let _ = ask(&layer.layer(script.clone()), hello()).await;
    }
    let _ =
        ask(&layer.layer(Script::failing(1, || failed(Class::CredentialRejected))), hello()).await;
    assert_eq!((layer.calls(), layer.attempts(), layer.retries()), (6, 19, 13));
    assert_eq!(layer.recovered()[..4], [2, 0, 1, 0]);
    assert_eq!((layer.exhausted(), layer.not_retryable(), layer.rate_limit_hits()), (1, 1, 14));
    assert_eq!(layer.total_delay(), SECOND * (1 + 1 + 7 + 183));
}

#[derive(Clone, Debug, PartialEq)]
enum CustomError {
    Soon,
    Never,
}

impl fmt::Display for CustomError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl Retryable for CustomError {
    fn class(&self) -> Class {
        match self {
            Self::Soon => Class::Transient,
            Self::Never => Class::BadRequest,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn any_function_can_be_retried() {
    let (begin, layer) = (Instant::now(), exact());
    let time = TimeBudget { deadline: Some(SECOND * 4), max_wait: None };
    let mut numbers = Vec::new();
    let gave_up = run_within(&layer.policy, time, |attempt| {
        numbers.push((attempt.number, attempt.left.unwrap()));
        async move {
            Err::<(), _>(if attempt.number < 3 { CustomError::Soon } else { CustomError::Never })
        }
    });
    let gave_up = gave_up.await.unwrap_err();
    assert_eq!((gave_up.attempts, gave_up.reason), (3, Reason::NotRetryable));
    assert_eq!((gave_up.error, begin.elapsed()), (CustomError::Never, SECOND * 3));
    assert_eq!(numbers, [(1, SECOND * 4), (2, SECOND * 3), (3, SECOND)]);
}

#[test]
fn blocking_functions_are_retried_without_a_runtime() {
    let base = Duration::from_millis(1);
    let layer = exact().base_delay(base);
    for last in [Ok("done"), Err(CustomError::Never)] {
        let mut script = [Err(CustomError::Soon), Err(CustomError::Soon), last.clone()].into_iter();
        // Outside a runtime this is the clock of the machine.
        let begin = Instant::now();
        let result = layer.retry_blocking(Retryable::class, || script.next().unwrap());
        assert_eq!((result, script.len()), (last, 0));
        let took = begin.elapsed();
        assert!(took >= base + 2 * base, "two waits took {took:?}");
    }
}
