//! The breaker of a provider: what opens it, for whom, and how it comes back.

use std::time::Duration;

use http::StatusCode;
use tidegate_core::breaker::{BreakerSettings, BreakerState};
use tidegate_llm::telemetry::tracing_observer;
use tidegate_llm::{Broken, CallError};
use tidegate_providers::{Class, Failure};
use tokio::time::advance;

use super::{BreakerPass, ProviderBreaker};

const KEY: &str = "default";
const SECOND: Duration = Duration::from_secs(1);
const FAILURES: u32 = 3;
const OPEN_FOR: Duration = Duration::from_secs(5);

fn breaker() -> ProviderBreaker {
    let settings = BreakerSettings::after_failures(FAILURES)
        .pause(OPEN_FOR, OPEN_FOR * 12)
        .relapse_within(OPEN_FOR * 2);
    ProviderBreaker::new("openai".into(), Some(settings), tracing_observer())
}

/// What `openai` answers.
fn failed(class: Class) -> CallError {
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
    failed(Class::RateLimited { after: None, dimension: None })
}

fn server_error() -> CallError {
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    Box::new(Failure::new("openai".into(), Class::Transient, status)).into()
}

fn refused() -> CallError {
    CallError::Connection { provider: "openai".into(), broken: Broken::Refused, source: None }
}

fn fails(pass: BreakerPass, error: CallError) {
    pass.settle(&Err::<(), _>(error));
}

fn answers(pass: BreakerPass) {
    pass.settle(&Ok(()));
}

/// So many calls of a model that fail, one after the other.
fn failing(breaker: &ProviderBreaker, model: &str, calls: std::ops::Range<u64>) {
    for call in calls {
        fails(breaker.admit(KEY, model, call).unwrap(), server_error());
    }
}

fn after(refused: &Result<BreakerPass, CallError>) -> Duration {
    let Err(CallError::Open { after, .. }) = refused else { panic!("{refused:?}") };
    *after
}

#[tokio::test(start_paused = true)]
async fn failures_of_several_models_open_it_for_all() {
    let breaker = breaker();
    failing(&breaker, "a", 0..1);
    failing(&breaker, "b", 1..3);
    assert_eq!(breaker.status().state, BreakerState::Open);
    assert_eq!(after(&breaker.admit(KEY, "c", 9)), OPEN_FOR);
    assert!(breaker.check(KEY, "c").is_err());
    advance(OPEN_FOR).await;
    assert_eq!(breaker.status().state, BreakerState::HalfOpen);
    let trial = breaker.admit(KEY, "a", 10).unwrap();
    assert_eq!(after(&breaker.admit(KEY, "b", 11)), SECOND, "one trial at a time");
    fails(trial, server_error());
    assert_eq!(
        after(&breaker.admit(KEY, "a", 12)),
        OPEN_FOR * 2,
        "longer with each trial that fails"
    );
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_broken_closes_nothing_but_itself() {
    let breaker = breaker();
    failing(&breaker, "Broken", 0..3);
    assert_eq!(after(&breaker.admit(KEY, "broken", 3)), OPEN_FOR);
    let status = breaker.status();
    assert_eq!((status.state, status.open_models, status.opened), (BreakerState::Open, 1, 1));
    assert!(status.last_failure.unwrap().contains("openai answered 500"));
    for call in 10..20 {
        answers(breaker.admit(KEY, "fine", call).unwrap());
    }
    advance(OPEN_FOR).await;
    answers(breaker.admit(KEY, "broken", 20).unwrap());
    for call in 21..25 {
        answers(breaker.admit(KEY, "broken", call).unwrap());
    }
    let status = breaker.status();
    assert_eq!((status.state, status.open_models), (BreakerState::Closed, 0));
}

/// A caller whose key never works does not keep others from the provider, also not by its trials.
#[tokio::test(start_paused = true)]
async fn a_key_that_always_fails_closes_nothing_but_itself() {
    let breaker = breaker();
    for call in 0..3 {
        fails(breaker.admit("bad", "a", call).unwrap(), server_error());
    }
    assert_eq!(after(&breaker.admit("bad", "a", 3)), OPEN_FOR);
    answers(breaker.admit("good", "a", 4).unwrap());
    for call in 5..8 {
        let key = if call == 5 { "good" } else { "other" };
        fails(breaker.admit(key, "a", call).unwrap(), server_error());
    }
    assert_eq!(after(&breaker.admit("good", "a", 8)), OPEN_FOR, "now the provider is to blame");
    advance(OPEN_FOR).await;
    assert_eq!(after(&breaker.admit("bad", "a", 9)), SECOND * 2, "the trial is left to others");
    answers(breaker.admit("good", "a", 10).unwrap());
    fails(breaker.admit("bad", "a", 11).unwrap(), server_error());
    answers(breaker.admit("good", "a", 12).unwrap());
}

/// If only those come that have failed by themselves, one of them is the trial.
#[tokio::test(start_paused = true)]
async fn a_provider_is_tried_by_whoever_comes() {
    let breaker = breaker();
    failing(&breaker, "a", 0..3);
    failing(&breaker, "b", 3..5);
    assert_eq!(after(&breaker.admit(KEY, "c", 5)), OPEN_FOR);
    advance(OPEN_FOR + SECOND * 2).await;
    for call in 6..16 {
        answers(breaker.admit(KEY, "a", call).unwrap());
    }
    assert_eq!(breaker.status().state, BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn no_connection_is_no_fault_of_a_model() {
    let breaker = breaker();
    for call in 0..3 {
        fails(breaker.admit(KEY, "a", call).unwrap(), refused());
    }
    assert_eq!(after(&breaker.admit(KEY, "b", 3)), OPEN_FOR);
    assert_eq!(breaker.status().open_models, 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_retried_counts_once() {
    let breaker = breaker();
    for _ in 0..20 {
        failing(&breaker, "a", 7..8);
    }
    assert_eq!(breaker.status().state, BreakerState::Closed);
    failing(&breaker, "a", 8..10);
    assert_eq!(breaker.status().state, BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn only_the_fault_of_the_provider_counts() {
    let breaker = breaker();
    let conflict = || {
        let failure = Failure::new("openai".into(), Class::Transient, StatusCode::CONFLICT);
        CallError::from(Box::new(failure))
    };
    for call in 0..20 {
        for error in [
            rate_limited(),
            failed(Class::CredentialRejected),
            failed(Class::BadRequest),
            failed(Class::TooLarge),
            failed(Class::SlowDown),
            failed(Class::ExhaustedQuota { after: None }),
            conflict(),
        ] {
            fails(breaker.admit(KEY, "a", call).unwrap(), error);
        }
        drop(breaker.admit(KEY, "a", call).unwrap());
    }
    assert_eq!(breaker.status().state, BreakerState::Closed);
}

/// Calls that are refused together because they came together are no sign of a provider that fails.
#[tokio::test(start_paused = true)]
async fn an_overload_of_calls_that_left_together_counts_once() {
    let breaker = breaker();
    let wave = |calls: std::ops::Range<u64>| {
        let passes: Vec<_> = calls.map(|call| breaker.admit(KEY, "a", call).unwrap()).collect();
        passes
    };
    for round in 0..2_u64 {
        let passes = wave(round * 40..round * 40 + 40);
        advance(SECOND).await;
        passes.into_iter().for_each(|pass| fails(pass, failed(Class::Overloaded)));
        advance(SECOND).await;
        assert_eq!(breaker.status().state, BreakerState::Closed, "{round}");
    }
    let passes = wave(100..140);
    advance(SECOND).await;
    passes.into_iter().for_each(|pass| fails(pass, failed(Class::Overloaded)));
    assert_eq!(breaker.status().state, BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_is_back_gets_few_calls_at_first() {
    let breaker = breaker();
    for call in 0..3 {
        fails(breaker.admit(KEY, "a", call).unwrap(), refused());
    }
    advance(OPEN_FOR).await;
    answers(breaker.admit(KEY, "a", 3).unwrap());
    assert_eq!(breaker.status().state, BreakerState::HalfOpen, "slow mode");
    let mut allowed = Vec::new();
    for round in 0..4_u64 {
        let first = round * 100 + 10;
        let mut passes: Vec<_> =
            (first..first + 100).map_while(|call| breaker.admit(KEY, "a", call).ok()).collect();
        allowed.push(passes.len());
        breaker.check(KEY, "b").unwrap();
        answers(passes.pop().unwrap());
        drop(passes);
    }
    assert_eq!(allowed, [2, 4, 8, 16]);
    assert_eq!(breaker.status().state, BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_failure_in_slow_mode_opens_it_again_for_longer() {
    let breaker = breaker();
    for call in 0..3 {
        fails(breaker.admit(KEY, "a", call).unwrap(), refused());
    }
    advance(OPEN_FOR).await;
    answers(breaker.admit(KEY, "a", 3).unwrap());
    fails(breaker.admit(KEY, "a", 4).unwrap(), refused());
    assert_eq!(after(&breaker.admit(KEY, "a", 5)), OPEN_FOR * 2);
}

#[tokio::test(start_paused = true)]
async fn switched_off_it_lets_everything_through_and_forgets() {
    let breaker = breaker();
    failing(&breaker, "a", 0..3);
    breaker.configure(None);
    failing(&breaker, "a", 3..20);
    let status = breaker.status();
    assert_eq!((status.state, status.is_enabled), (BreakerState::Closed, false));
    breaker.configure(Some(BreakerSettings::after_failures(1)));
    failing(&breaker, "a", 20..21);
    assert_eq!(breaker.status().state, BreakerState::Open);
    breaker.reset();
    assert_eq!(breaker.status().state, BreakerState::Closed);
}
