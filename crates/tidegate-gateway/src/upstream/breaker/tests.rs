//! What opens the breaker of a provider, for which calls, and how it recovers.

use std::time::Duration;

use http::StatusCode;
use tidegate_core::breaker::{BreakerSettings, BreakerState};
use tidegate_llm::telemetry::tracing_observer;
use tidegate_llm::{CallError, ConnectionFailure};
use tidegate_providers::{Class, Failure};
use tokio::time::advance;

use super::{AdmittedAttempt, ProviderBreaker};

const KEY: &str = "default";
const SECOND: Duration = Duration::from_secs(1);
const FAILURES: u32 = 3;
const OPEN_FOR: Duration = Duration::from_secs(5);

fn breaker() -> ProviderBreaker {
    let settings = BreakerSettings::after_failures(FAILURES)
        .pause(OPEN_FOR, OPEN_FOR * 12)
        .keep_backoff_within(OPEN_FOR * 2);
    ProviderBreaker::new("openai".into(), Some(settings), tracing_observer())
}

/// An error response of `openai`.
fn provider_error(class: Class) -> CallError {
    let status = match class {
        Class::RateLimited { .. } | Class::ExhaustedQuota { .. } => StatusCode::TOO_MANY_REQUESTS,
        Class::CredentialRejected => StatusCode::UNAUTHORIZED,
        Class::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Class::BadRequest => StatusCode::BAD_REQUEST,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    Box::new(Failure::new("openai".into(), class, status)).into()
}

fn rate_limited() -> CallError {
    provider_error(Class::RateLimited { after: None, dimension: None })
}

fn server_error() -> CallError {
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    Box::new(Failure::new("openai".into(), Class::Transient, status)).into()
}

fn connection_refused() -> CallError {
    CallError::Connection {
        provider: "openai".into(),
        kind: ConnectionFailure::Refused,
        source: None,
    }
}

fn settle_failed(attempt: AdmittedAttempt, error: CallError) {
    attempt.settle(&Err::<(), _>(error));
}

fn settle_ok(attempt: AdmittedAttempt) {
    attempt.settle(&Ok(()));
}

/// Makes failing calls of a model, one after the other.
fn fail_calls(breaker: &ProviderBreaker, model: &str, calls: std::ops::Range<u64>) {
    for call in calls {
        settle_failed(breaker.admit(KEY, model, call).unwrap(), server_error());
    }
}

fn retry_after(refused: &Result<AdmittedAttempt, CallError>) -> Duration {
    let Err(CallError::CircuitOpen { after, .. }) = refused else { panic!("{refused:?}") };
    *after
}

#[tokio::test(start_paused = true)]
async fn failures_of_several_models_open_the_provider() {
    let breaker = breaker();
    fail_calls(&breaker, "a", 0..1);
    fail_calls(&breaker, "b", 1..3);
    assert_eq!(breaker.status().state, BreakerState::Open);
    assert_eq!(retry_after(&breaker.admit(KEY, "c", 9)), OPEN_FOR);
    assert!(breaker.check(KEY, "c").is_err());
    advance(OPEN_FOR).await;
    assert_eq!(breaker.status().state, BreakerState::HalfOpen);
    let trial = breaker.admit(KEY, "a", 10).unwrap();
    assert_eq!(retry_after(&breaker.admit(KEY, "b", 11)), SECOND, "one trial at a time");
    settle_failed(trial, server_error());
    assert_eq!(
        retry_after(&breaker.admit(KEY, "a", 12)),
        OPEN_FOR * 2,
        "each failed trial doubles the pause"
    );
}

#[tokio::test(start_paused = true)]
async fn a_failing_model_blocks_only_itself() {
    let breaker = breaker();
    fail_calls(&breaker, "Broken", 0..3);
    assert_eq!(retry_after(&breaker.admit(KEY, "broken", 3)), OPEN_FOR);
    let status = breaker.status();
    assert_eq!((status.state, status.open_models, status.opened), (BreakerState::Open, 1, 1));
    assert!(status.last_failure.unwrap().contains("openai answered 500"));
    for call in 10..20 {
        settle_ok(breaker.admit(KEY, "fine", call).unwrap());
    }
    advance(OPEN_FOR).await;
    settle_ok(breaker.admit(KEY, "broken", 20).unwrap());
    for call in 21..25 {
        settle_ok(breaker.admit(KEY, "broken", call).unwrap());
    }
    let status = breaker.status();
    assert_eq!((status.state, status.open_models), (BreakerState::Closed, 0));
}

/// A caller whose key never works does not block others, not even by its trials.
#[tokio::test(start_paused = true)]
async fn a_failing_key_blocks_only_itself() {
    let breaker = breaker();
    for call in 0..3 {
        settle_failed(breaker.admit("bad", "a", call).unwrap(), server_error());
    }
    assert_eq!(retry_after(&breaker.admit("bad", "a", 3)), OPEN_FOR);
    settle_ok(breaker.admit("good", "a", 4).unwrap());
    for call in 5..8 {
        let key = if call == 5 { "good" } else { "other" };
        settle_failed(breaker.admit(key, "a", call).unwrap(), server_error());
    }
    assert_eq!(
        retry_after(&breaker.admit("good", "a", 8)),
        OPEN_FOR,
        "now the provider breaker is open"
    );
    advance(OPEN_FOR).await;
    assert_eq!(
        retry_after(&breaker.admit("bad", "a", 9)),
        SECOND * 2,
        "the trial is reserved for other keys"
    );
    settle_ok(breaker.admit("good", "a", 10).unwrap());
    settle_failed(breaker.admit("bad", "a", 11).unwrap(), server_error());
    settle_ok(breaker.admit("good", "a", 12).unwrap());
}

/// If only failing models or keys call, one of them is the trial.
#[tokio::test(start_paused = true)]
async fn any_call_may_be_the_trial_after_the_grace_period() {
    let breaker = breaker();
    fail_calls(&breaker, "a", 0..3);
    fail_calls(&breaker, "b", 3..5);
    assert_eq!(retry_after(&breaker.admit(KEY, "c", 5)), OPEN_FOR);
    advance(OPEN_FOR + SECOND * 2).await;
    for call in 6..16 {
        settle_ok(breaker.admit(KEY, "a", call).unwrap());
    }
    assert_eq!(breaker.status().state, BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn connection_failures_are_not_blamed_on_a_model() {
    let breaker = breaker();
    for call in 0..3 {
        settle_failed(breaker.admit(KEY, "a", call).unwrap(), connection_refused());
    }
    assert_eq!(retry_after(&breaker.admit(KEY, "b", 3)), OPEN_FOR);
    assert_eq!(breaker.status().open_models, 0);
}

#[tokio::test(start_paused = true)]
async fn a_retried_call_counts_once() {
    let breaker = breaker();
    for _ in 0..20 {
        fail_calls(&breaker, "a", 7..8);
    }
    assert_eq!(breaker.status().state, BreakerState::Closed);
    fail_calls(&breaker, "a", 8..10);
    assert_eq!(breaker.status().state, BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn only_provider_failures_count() {
    let breaker = breaker();
    let conflict = || {
        let failure = Failure::new("openai".into(), Class::Transient, StatusCode::CONFLICT);
        CallError::from(Box::new(failure))
    };
    for call in 0..20 {
        for error in [
            rate_limited(),
            provider_error(Class::CredentialRejected),
            provider_error(Class::BadRequest),
            provider_error(Class::TooLarge),
            provider_error(Class::SlowDown),
            provider_error(Class::ExhaustedQuota { after: None }),
            conflict(),
        ] {
            settle_failed(breaker.admit(KEY, "a", call).unwrap(), error);
        }
        drop(breaker.admit(KEY, "a", call).unwrap());
    }
    assert_eq!(breaker.status().state, BreakerState::Closed);
}

/// Calls that are refused together because they were sent together do not show a failing provider.
#[tokio::test(start_paused = true)]
async fn simultaneous_overload_failures_count_once() {
    let breaker = breaker();
    let wave = |calls: std::ops::Range<u64>| {
        let attempts: Vec<_> = calls.map(|call| breaker.admit(KEY, "a", call).unwrap()).collect();
        attempts
    };
    for round in 0..2_u64 {
        let attempts = wave(round * 40..round * 40 + 40);
        advance(SECOND).await;
        attempts
            .into_iter()
            .for_each(|attempt| settle_failed(attempt, provider_error(Class::Overloaded)));
        advance(SECOND).await;
        assert_eq!(breaker.status().state, BreakerState::Closed, "{round}");
    }
    let attempts = wave(100..140);
    advance(SECOND).await;
    attempts
        .into_iter()
        .for_each(|attempt| settle_failed(attempt, provider_error(Class::Overloaded)));
    assert_eq!(breaker.status().state, BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn a_recovering_provider_gets_few_calls_at_first() {
    let breaker = breaker();
    for call in 0..3 {
        settle_failed(breaker.admit(KEY, "a", call).unwrap(), connection_refused());
    }
    advance(OPEN_FOR).await;
    settle_ok(breaker.admit(KEY, "a", 3).unwrap());
    assert_eq!(breaker.status().state, BreakerState::HalfOpen, "slow start");
    let mut allowed = Vec::new();
    for round in 0..4_u64 {
        let first = round * 100 + 10;
        let mut attempts: Vec<_> =
            (first..first + 100).map_while(|call| breaker.admit(KEY, "a", call).ok()).collect();
        allowed.push(attempts.len());
        breaker.check(KEY, "b").unwrap();
        settle_ok(attempts.pop().unwrap());
        drop(attempts);
    }
    assert_eq!(allowed, [2, 4, 8, 16]);
    assert_eq!(breaker.status().state, BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_failure_during_slow_start_reopens_for_longer() {
    let breaker = breaker();
    for call in 0..3 {
        settle_failed(breaker.admit(KEY, "a", call).unwrap(), connection_refused());
    }
    advance(OPEN_FOR).await;
    settle_ok(breaker.admit(KEY, "a", 3).unwrap());
    settle_failed(breaker.admit(KEY, "a", 4).unwrap(), connection_refused());
    assert_eq!(retry_after(&breaker.admit(KEY, "a", 5)), OPEN_FOR * 2);
}

#[tokio::test(start_paused = true)]
async fn a_disabled_breaker_admits_everything_and_resets() {
    let breaker = breaker();
    fail_calls(&breaker, "a", 0..3);
    breaker.configure(None);
    fail_calls(&breaker, "a", 3..20);
    let status = breaker.status();
    assert_eq!((status.state, status.is_enabled), (BreakerState::Closed, false));
    breaker.configure(Some(BreakerSettings::after_failures(1)));
    fail_calls(&breaker, "a", 20..21);
    assert_eq!(breaker.status().state, BreakerState::Open);
    breaker.reset();
    assert_eq!(breaker.status().state, BreakerState::Closed);
}
