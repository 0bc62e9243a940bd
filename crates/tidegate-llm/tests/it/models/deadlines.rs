//! Deadlines that end in our own queue, and those that end at the provider.

use std::convert::Infallible;
use std::time::Duration;

use http::Response;
use tidegate::pacer::AcquireError;
use tidegate_llm::mock::{Mock, Step};
use tidegate_llm::models::{Model, Models};
use tidegate_llm::settings::RetrySettings;
use tidegate_llm::{Call, CallError, ConnectionFailure};
use tidegate_providers::Class;
use tokio::time::{Instant, sleep};
use tower::service_fn;

use crate::log::Log;

use super::{SECOND, hello, limits, registry, wait};

/// A model at a provider with one slot. It answers the first call after `first`, and later ones at
/// once.
fn one_slot(first: Duration) -> (Mock, Model) {
    let mock = Mock::new("ollama").then(Step::reply("late").after(first));
    let models = Models::builder().backend("ollama", mock.clone()).build();
    let model = models.load_model("ollama", "a").rate_limit(true).retry(true).build().unwrap();
    (mock, model)
}

/// Starts a call that occupies the only slot.
async fn occupy(model: &Model) -> tokio::task::JoinHandle<Result<(), CallError>> {
    let model = model.clone();
    let call = tokio::spawn(async move { model.invoke(hello()).await.map(drop) });
    sleep(SECOND / 1_000).await;
    call
}

fn due_in(span: Duration) -> Call {
    hello().deadline(span)
}

/// Ten calls that never left our queue say nothing about the provider.
#[tokio::test(start_paused = true)]
async fn deadline_missed_in_the_queue_is_not_a_failure_of_the_provider() {
    let (mock, model) = one_slot(SECOND * 3_600);
    let busy = occupy(&model).await;
    let log = Log::default();
    let _listening = log.listen();
    for _ in 0..10 {
        let began = Instant::now();
        let error = model.invoke(due_in(SECOND * 30)).await.unwrap_err();
        assert_eq!(began.elapsed(), SECOND * 30);
        assert!(!error.was_sent());
        let CallError::NoPermit { source, limited_by, .. } = &error else { panic!("{error:?}") };
        assert!(matches!(source, AcquireError::TimedOut(_)), "{source}");
        assert_eq!(*limited_by, Some("concurrency"));
        assert_eq!(
            error.to_string(),
            "no permit in time for a call to ollama, nothing was sent: no permit within the \
             maximum wait of 30s (limited by concurrency); retry later, or allow a longer wait"
        );
    }
    assert_eq!(log.lines(), [""; 0], "for the caller to report, and no retries");
    assert_eq!(mock.call_count(), 1);
    busy.abort();
    let answer = model.invoke(due_in(SECOND)).await;
    assert!(answer.is_ok(), "the circuit is closed: {answer:?}");
    assert_eq!(mock.call_count(), 2);
}

/// A deadline that ends while the provider has the call is a failure of the provider.
#[tokio::test(start_paused = true)]
async fn deadline_missed_at_the_provider_opens_the_circuit() {
    let mock = Mock::new("ollama").always(Step::reply("late").after(SECOND * 3_600));
    let models = Models::builder().backend("ollama", mock.clone()).build();
    let model = models.load_model("ollama", "a").rate_limit(true).retry(true).build().unwrap();
    for _ in 0..5 {
        let error = model.invoke(due_in(SECOND * 30)).await.unwrap_err();
        let is_late =
            matches!(error, CallError::Connection { kind: ConnectionFailure::TimedOut, .. });
        assert!(is_late && error.was_sent(), "{error:?}");
    }
    let error = model.invoke(due_in(SECOND)).await.unwrap_err();
    assert!(matches!(error, CallError::CircuitOpen { .. }), "{error:?}");
    assert_eq!(mock.call_count(), 5);
}

/// The wait is part of the time of a call, and the provider has the rest.
#[tokio::test(start_paused = true)]
async fn provider_has_what_the_wait_left_of_the_deadline() {
    let mock = Mock::new("ollama").always(Step::reply("late").after(SECOND * 20));
    let models = Models::builder().backend("ollama", mock.clone()).build();
    let model = models.load_model("ollama", "a").rate_limit(true).retry(true).build().unwrap();
    let busy = occupy(&model).await;
    let began = Instant::now();
    let error = model.invoke(due_in(SECOND * 30)).await.unwrap_err();
    assert!(matches!(error, CallError::Connection { .. }), "{error:?}");
    assert_eq!((began.elapsed(), mock.call_count()), (SECOND * 30, 2));
    busy.await.unwrap().unwrap();
}

/// A refused attempt is no attempt, and the log says what is closed and until when.
#[tokio::test(start_paused = true)]
async fn refused_retry_is_not_counted_and_is_explained() {
    let quota = Class::ExhaustedQuota { after: Some(SECOND * 7_200) };
    let mock = Mock::new("openai")
        .then(Step::fail(Class::RateLimited { after: Some(SECOND), dimension: None }))
        .then(Step::fail(quota));
    let models = Models::builder().backend("openai", mock.clone()).build();
    let retry = RetrySettings::new().max_retries(8);
    let load = || models.load_model("openai", "a").rate_limit(true);
    let (retried, other) = (load().retry(retry).build().unwrap(), load().build().unwrap());
    let log = Log::default();
    let _listening = log.listen();
    // The model is closed by another call while this one waits for its retry.
    let (error, ()) = tokio::join!(retried.invoke(hello()), async {
        sleep(SECOND / 2).await;
        other.invoke(hello()).await.unwrap_err();
    });
    let error = error.unwrap_err();
    assert!(matches!(error, CallError::Exhausted { attempts: 1, .. }), "{error:?}");
    assert_eq!(mock.call_count(), 2, "one each");
    let text = "not sent: a quota of openai is exhausted (openai answered 429 to an earlier call); \
                calls are refused for another ";
    assert!(error.to_string().starts_with("1 attempt failed, and there was no other: "));
    assert!(error.to_string().contains(text), "{error}");
    assert!(error.to_string().ends_with("s; wait, raise the quota or use another key"), "{error}");
    let lines = log.lines();
    let gave_up: Vec<_> = lines.iter().filter(|line| line.starts_with("ERROR")).collect();
    let begin = "ERROR Gave up (attempt 1/9), the next attempt was not sent (function: openai): ";
    assert!(gave_up.len() == 1 && gave_up[0].starts_with(begin), "{lines:#?}");
    assert!(gave_up[0].contains(text), "{lines:#?}");
}

/// The limit of requests per day is ours, and no answer of the provider.
#[tokio::test(start_paused = true)]
async fn used_up_day_is_not_called_an_answer_of_the_provider() {
    let models = registry(&["openai"]).build();
    let daily = limits(60, 60).requests_per_day(1, "UTC");
    let model = models.load_model("openai", "a").rate_limit(daily).build().unwrap();
    assert!(wait(&model).await.is_zero());
    let error = model.invoke(hello()).await.unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("not sent: the configured requests per day for openai are used up; "));
    assert!(text.ends_with("s; wait, raise the limit or use another key"), "{text}");
}

/// All providers of a call share its maximum wait.
#[tokio::test(start_paused = true)]
async fn fallback_gets_what_is_left_of_the_maximum_wait() {
    let slow = |name| Mock::new(name).always(Step::reply("late").after(SECOND * 3_600));
    let models = Models::builder().backend("ollama", slow("ollama")).backend("vllm", slow("vllm"));
    let models = models.build();
    let load = |name: &str| models.load_model(name, "a").rate_limit(true);
    let other = load("vllm").build().unwrap();
    let model = load("ollama").fallback_to(["vllm/a"]).build().unwrap();
    let _busy = (occupy(&model).await, occupy(&other).await);
    let began = Instant::now();
    let error = model.invoke(hello().max_wait(SECOND * 30)).await.unwrap_err();
    assert!(matches!(error, CallError::NoPermit { .. }), "{error:?}");
    let waited = began.elapsed();
    assert!(waited < SECOND * 31, "{waited:?}: 30 seconds for both together");
}

/// A model at an HTTP service that never responds.
fn silent(retry: bool) -> Model {
    let http = service_fn(|_| std::future::pending::<Result<Response<String>, Infallible>>());
    let models = Models::builder().http(http).build();
    models.load_model("ollama", "a").rate_limit(true).retry(retry).build().unwrap()
}

/// The deadline does not depend on the retry module.
#[tokio::test(start_paused = true)]
async fn deadline_holds_without_retries() {
    for retry in [true, false] {
        let began = Instant::now();
        let error = silent(retry).invoke(due_in(SECOND)).await.unwrap_err();
        assert!(matches!(error, CallError::Connection { .. }), "{error:?}");
        assert_eq!((error.was_sent(), began.elapsed()), (true, SECOND), "retry({retry})");
    }
}

/// The wait, the provider and its fallback have one deadline together.
#[tokio::test(start_paused = true)]
async fn deadline_holds_with_a_fallback_and_without_retries() {
    let slow = |name| Mock::new(name).always(Step::reply("late").after(SECOND * 20));
    let models = Models::builder().backend("ollama", slow("ollama")).backend("vllm", slow("vllm"));
    let models = models.build();
    let load = models.load_model("ollama", "a").rate_limit(true).fallback_to(["vllm/a"]);
    let model = load.build().unwrap();
    let _busy = occupy(&model).await;
    let began = Instant::now();
    let error = model.invoke(due_in(SECOND * 30)).await.unwrap_err();
    assert!(error.was_sent(), "{error:?}");
    assert_eq!(began.elapsed(), SECOND * 30, "20 in the queue, 10 at the provider");
}
