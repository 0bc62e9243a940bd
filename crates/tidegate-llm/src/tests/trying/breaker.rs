//! The breaker opens when a provider keeps failing, and closes when it recovers.

use std::time::Duration;

use tidegate_core::breaker::{BreakerSettings, BreakerState};
use tidegate_llm::breaker::{Breaker, BreakerLayer, Breakers, Circuit};
use tidegate_llm::retry::RetryLayer;
use tidegate_llm::{CallError, ConnectionFailure, LimitScope};
use tidegate_providers::{Class, Credential};
use tokio::time::{advance, sleep, timeout};
use tower::Layer as _;

use super::{SECOND, Script, ask, connection_failure, failed, hello, rate_limited};

/// A breaker around a script, and its circuit.
fn guarded(script: &Script) -> (Breaker<Script>, Circuit) {
    let circuit = Circuit::new("openai", BreakerSettings::default());
    (BreakerLayer::new(circuit.clone()).layer(script.clone()), circuit)
}

fn refused_for(result: Result<&'static str, CallError>) -> Duration {
    match result {
        Err(CallError::CircuitOpen { provider, after }) if provider.as_str() == "openai" => after,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn breaker_opens_after_five_failures_and_closes_after_a_trial() {
    let script = Script::failing(6, || connection_failure(ConnectionFailure::NotConnected));
    let (service, circuit) = guarded(&script);
    for _ in 0..5 {
        assert_eq!(circuit.state(), BreakerState::Closed);
        assert!(matches!(ask(&service, hello()).await, Err(CallError::Connection { .. })));
    }
    assert_eq!(circuit.state(), BreakerState::Open);
    assert_eq!(refused_for(ask(&service, hello()).await), SECOND * 5);
    advance(SECOND * 4).await;
    assert_eq!(refused_for(ask(&service, hello()).await), SECOND);
    assert_eq!(script.calls(), 5, "nothing was sent");

    advance(SECOND).await;
    assert_eq!(circuit.state(), BreakerState::HalfOpen);
    ask(&service, hello()).await.unwrap_err();
    assert_eq!(refused_for(ask(&service, hello()).await), SECOND * 10);
    advance(SECOND * 10).await;
    assert_eq!(ask(&service, hello()).await.unwrap(), "answer");
    assert_eq!((circuit.state(), script.calls()), (BreakerState::Closed, 7));
    let stats = circuit.stats();
    assert_eq!((stats.opened, stats.closed, stats.refused), (2, 1, 3));
}

#[tokio::test(start_paused = true)]
async fn rate_limits_and_bad_requests_do_not_open_the_breaker() {
    let harmless: [fn() -> CallError; 5] = [
        rate_limited,
        || failed(Class::SlowDown),
        || failed(Class::BadRequest),
        || failed(Class::CredentialRejected),
        || CallError::InvalidRequest { provider: "openai".into(), source: "no words".into() },
    ];
    for error in harmless {
        let script = Script::failing(50, error);
        let (service, circuit) = guarded(&script);
        for _ in 0..50 {
            ask(&service, hello()).await.unwrap_err();
        }
        assert_eq!((script.calls(), circuit.state()), (50, BreakerState::Closed), "{}", error());
    }
}

/// Opens a circuit and waits until it admits a trial.
async fn open(service: &Breaker<Script>) {
    for _ in 0..5 {
        assert!(ask(service, hello()).await.is_err());
    }
    sleep(SECOND * 5).await;
}

#[tokio::test(start_paused = true)]
async fn only_one_of_many_calls_is_the_trial() {
    let script = Script::failing(5, || failed(Class::Overloaded)).lasting(SECOND);
    let (service, circuit) = guarded(&script);
    open(&service).await;
    let calls = (0..20).map(|_| ask(&service, hello()));
    let results = futures_util::future::join_all(calls).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    assert_eq!((script.calls(), circuit.stats().refused), (6, 19));
    assert_eq!(circuit.state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn cancelled_trial_makes_way_for_another() {
    let script = Script::failing(5, || failed(Class::Transient)).lasting(SECOND);
    let (service, circuit) = guarded(&script);
    open(&service).await;
    let trial = tokio::spawn({
        let service = service.clone();
        async move { ask(&service, hello()).await }
    });
    sleep(SECOND / 2).await;
    assert_eq!(refused_for(ask(&service, hello()).await), SECOND);
    trial.abort();
    assert!(trial.await.unwrap_err().is_cancelled());
    assert_eq!(circuit.state(), BreakerState::HalfOpen);
    assert_eq!(ask(&service, hello()).await.unwrap(), "answer");
    assert_eq!((circuit.state(), script.calls()), (BreakerState::Closed, 7));
}

#[tokio::test(start_paused = true)]
async fn calls_that_miss_their_deadline_count_as_failures() {
    let script = Script::failing(0, rate_limited).lasting(SECOND * 120);
    let (service, circuit) = guarded(&script);
    let model = RetryLayer::new("openai").layer(service.clone());
    for state in [BreakerState::Closed; 4].into_iter().chain([BreakerState::Open]) {
        let error = ask(&model, hello().deadline(SECOND * 30)).await.unwrap_err();
        assert!(
            matches!(error, CallError::Connection { kind: ConnectionFailure::TimedOut, .. }),
            "{error}"
        );
        assert_eq!(circuit.state(), state);
    }
    assert_eq!((script.calls(), circuit.stats().opened), (5, 1));
}

#[tokio::test(start_paused = true)]
async fn call_dropped_before_its_deadline_does_not_count() {
    let script = Script::failing(0, rate_limited).lasting(SECOND * 120);
    let (service, circuit) = guarded(&script);
    for call in [hello(), hello().deadline(SECOND * 30)] {
        for _ in 0..10 {
            let left = timeout(SECOND * 29, ask(&service, call.clone())).await;
            assert!(left.is_err(), "no answer yet");
        }
    }
    assert_eq!((script.calls(), circuit.state()), (20, BreakerState::Closed));
}

#[tokio::test(start_paused = true)]
async fn waiting_for_an_open_circuit_takes_no_retry_budget() {
    let script = Script::new(|_, at| match at < SECOND * 20 {
        true => Err(connection_failure(ConnectionFailure::NotConnected)),
        false => Ok("answer"),
    });
    let (service, circuit) = guarded(&script);
    let model = RetryLayer::new("openai").budget(100).layer(service);
    let calls = (0..60).map(|_| ask(&model, hello()));
    let results = futures_util::future::join_all(calls).await;
    assert!(results.iter().all(Result::is_ok), "20 seconds are within the schedule");
    let refused = circuit.stats().refused;
    assert!(refused > 100, "{refused} exceeds the budget");
}

#[tokio::test(start_paused = true)]
async fn waits_for_an_open_circuit_count_after_the_schedule_ends() {
    let open = || CallError::CircuitOpen { provider: "openai".into(), after: SECOND };
    let script = Script::new(move |_, _| Err(open()));
    let layer = RetryLayer::new("openai").max_retries(3).jitter_percent(0);
    let model = layer.layer(script.clone());
    let error = ask(&model, hello()).await.unwrap_err();
    assert!(matches!(error, CallError::Exhausted { attempts: 4, .. }), "{error}");
    let times = script.times();
    let waits = times.iter().filter(|at| **at < 7.0).count();
    assert!(waits >= 4, "{times:?}: nothing counts for 1 + 2 + 4 seconds");
    assert_eq!(times.len(), waits + 4);
}

#[tokio::test(start_paused = true)]
async fn each_scope_has_one_circuit() {
    let (breakers, key) = (Breakers::default(), Credential::new("sk-1"));
    let get = |scope: &LimitScope| breakers.get(scope, BreakerSettings::after_failures(1));
    let scope = LimitScope::new("openai", &key);
    let script = Script::failing(1, || failed(Class::Transient));
    let service = BreakerLayer::new(get(&scope)).layer(script.clone());
    ask(&service, hello()).await.unwrap_err();
    assert_eq!(get(&scope.clone()).state(), BreakerState::Open);
    assert_eq!(get(&scope.model("gpt-4o")).state(), BreakerState::Closed);
    let other = LimitScope::new("openai", &Credential::none());
    assert_eq!(get(&other).state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn rate_limit_does_not_reset_consecutive_failures() {
    let script = Script::new(|before, _| match before {
        2 => Err(rate_limited()),
        _ => Err(failed(Class::Transient)),
    });
    let (service, circuit) = guarded(&script);
    for _ in 0..6 {
        assert_eq!(circuit.state(), BreakerState::Closed);
        ask(&service, hello()).await.unwrap_err();
    }
    assert_eq!(circuit.state(), BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn unsent_trial_is_ignored_and_rate_limited_trial_closes_the_circuit() {
    let script = Script::new(|before, _| match before {
        5 => {
            Err(CallError::InvalidRequest { provider: "openai".into(), source: "no words".into() })
        }
        6 => Err(rate_limited()),
        _ => Err(failed(Class::Transient)),
    });
    let (service, circuit) = guarded(&script);
    open(&service).await;
    for state in [BreakerState::HalfOpen, BreakerState::Closed] {
        ask(&service, hello()).await.unwrap_err();
        assert_eq!(circuit.state(), state);
    }
}
