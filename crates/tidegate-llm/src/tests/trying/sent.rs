//! Whether a request may have been sent in any attempt, whatever the last one came to.

use tidegate_llm::retry::RetryLayer;
use tidegate_llm::{CallError, ConnectionFailure};
use tidegate_providers::Class;
use tower::Layer as _;

use super::{SECOND, Script, ask, connection_failure, failed, hello, rate_limited};

/// Returns the error of a call whose first attempt fails with `first` and all others with `then`.
async fn error_of(first: fn() -> CallError, then: fn() -> CallError) -> CallError {
    let script = Script::new(move |before, _| Err(if before == 0 { first() } else { then() }));
    let layer = RetryLayer::new("openai").jitter_percent(0).deadline(SECOND * 100);
    let service = layer.layer(script.clone());
    let error = ask(&service, hello()).await.unwrap_err();
    assert!(script.calls() > 1 && matches!(error, CallError::Exhausted { .. }), "{error:?}");
    error
}

fn refused() -> CallError {
    connection_failure(ConnectionFailure::Refused)
}

fn server_error() -> CallError {
    failed(Class::Transient)
}

fn circuit_open() -> CallError {
    CallError::CircuitOpen { provider: "openai".into(), after: SECOND * 600 }
}

#[tokio::test(start_paused = true)]
async fn call_was_sent_if_any_attempt_was() {
    let error = error_of(server_error, refused).await;
    assert!(error.was_sent(), "{error}");
    assert_eq!(error.connection_reason().as_deref(), Some("connection refused"));
    assert!(error_of(rate_limited, circuit_open).await.was_sent());
    assert!(error_of(rate_limited, refused).await.was_sent());
}

#[tokio::test(start_paused = true)]
async fn call_was_not_sent_if_no_attempt_was() {
    let error = error_of(refused, refused).await;
    assert!(!error.was_sent(), "{error}");
    let error = error_of(refused, || connection_failure(ConnectionFailure::HostNotFound)).await;
    assert!(!error.was_sent(), "{error}");
}
