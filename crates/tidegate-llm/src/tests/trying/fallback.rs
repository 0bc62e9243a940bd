//! Which providers are tried when the primary fails.

use tidegate::pacer::AcquireError;
use tidegate_llm::fallback::FallbackLayer;
use tidegate_llm::retry::{RetryLayer, Retryable as _};
use tidegate_llm::{Call, CallError};
use tidegate_providers::Class;
use tower::Layer as _;

use super::{SECOND, Script, ask, failed, hello, rate_limited, rate_limited_for};

type Chain = FallbackLayer<Call, &'static str>;

/// A chain behind `openai`, with targets named `first`, `second` and `third`.
fn chain<const N: usize>(targets: [&Script; N]) -> Chain {
    let names = ["first", "second", "third"];
    let targets = names.into_iter().zip(targets.map(Clone::clone));
    FallbackLayer::new("openai", targets).unwrap()
}

fn answers(name: &'static str) -> Script {
    Script::new(move |_, _| Ok(name))
}

fn fails(error: fn() -> CallError) -> Script {
    Script::new(move |_, _| Err(error()))
}

fn no_permit(source: AcquireError) -> CallError {
    let (limited_by, after) = (None, source.retry_after());
    CallError::NoPermit { provider: "openai".into(), source, limited_by, after }
}

#[tokio::test]
async fn targets_are_tried_in_order_until_one_succeeds() {
    let (primary, first) = (fails(rate_limited), fails(|| failed(Class::Transient)));
    let (second, third) = (answers("second"), answers("third"));
    let layer = chain([&first, &second, &third]);
    let service = layer.layer(primary.clone());
    assert_eq!(ask(&service, hello()).await.unwrap(), "second");
    assert_eq!([&primary, &first, &second, &third].map(Script::calls), [1, 1, 1, 0]);
    let (turns, rescued) = (layer.fallbacks(), layer.rescued());
    assert_eq!((layer.calls(), turns, rescued, layer.failed()), (1, 2, 1, 0));
}

#[tokio::test]
async fn no_target_is_tried_when_the_primary_succeeds() {
    let target = answers("first");
    let layer = chain([&target]);
    let service = layer.layer(answers("openai"));
    assert_eq!(ask(&service, hello()).await.unwrap(), "openai");
    assert_eq!((target.calls(), layer.fallbacks()), (0, 0));
}

#[tokio::test]
async fn when_all_fail_the_error_is_that_of_the_primary() {
    let (first, second) = (fails(|| failed(Class::Transient)), fails(rate_limited));
    let layer = chain([&first, &second]);
    let error = ask(&layer.layer(fails(|| failed(Class::CredentialRejected))), hello()).await;
    assert_eq!(error.unwrap_err().class(), Class::CredentialRejected);
    assert_eq!((first.calls(), second.calls(), layer.failed()), (1, 1, 1));
}

#[tokio::test]
async fn only_errors_that_another_provider_may_not_have_fall_back() {
    let open = || CallError::CircuitOpen { provider: "openai".into(), after: SECOND };
    let words =
        || CallError::InvalidRequest { provider: "openai".into(), source: "no words".into() };
    let table: [(fn() -> CallError, usize); 15] = [
        (rate_limited, 1),
        (|| failed(Class::Transient), 1),
        (|| failed(Class::Overloaded), 1),
        (|| failed(Class::SlowDown), 1),
        (|| failed(Class::ExhaustedQuota { after: None }), 1),
        (|| failed(Class::CredentialRejected), 1),
        (|| failed(Class::TooLarge), 1),
        (open, 1),
        (words, 1),
        (|| no_permit(AcquireError::TooLong { projected: SECOND * 2, max_wait: SECOND }), 1),
        (|| no_permit(AcquireError::QueueFull(7)), 1),
        (|| no_permit(AcquireError::TimedOut(SECOND)), 1),
        (|| no_permit(AcquireError::NeverFits("tokens".into())), 1),
        (|| no_permit(AcquireError::OtherEngine), 0),
        (|| failed(Class::BadRequest), 0),
    ];
    for (error, expected) in table {
        let target = answers("first");
        let result = ask(&chain([&target]).layer(fails(error)), hello()).await;
        assert_eq!((target.calls(), result.is_ok()), (expected, expected == 1), "{}", error());
    }
}

#[tokio::test]
async fn bad_request_at_a_target_ends_the_chain() {
    let (first, second) = (fails(|| failed(Class::BadRequest)), answers("second"));
    let layer = chain([&first, &second]);
    let error = ask(&layer.layer(fails(rate_limited)), hello()).await.unwrap_err();
    assert_eq!(error.class(), rate_limited().class());
    assert_eq!(second.calls(), 0);
}

#[test]
fn chain_must_have_one_to_ten_targets() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _inside = runtime.enter();
    let target = |_| ("first", answers("first"));
    let chain = |targets| Chain::new("openai", (0..targets).map(target)).map(|_| ());
    let error = chain(0).unwrap_err().to_string();
    assert_eq!(error, "chain = []: must be set when the module is enabled");
    let error = chain(11).unwrap_err().to_string();
    assert!(error.ends_with(": must have at most 10 items"), "{error}");
    assert_eq!((chain(1), chain(10)), (Ok(()), Ok(())));
}

#[tokio::test(start_paused = true)]
async fn waiting_does_not_cause_a_fallback() {
    let (target, primary) = (answers("first"), answers("openai").lasting(SECOND * 5));
    let layer = chain([&target]);
    assert_eq!(ask(&layer.layer(primary.clone()), hello()).await.unwrap(), "openai");
    assert_eq!((primary.begin.elapsed(), target.calls()), (SECOND * 5, 0));
}

#[tokio::test(start_paused = true)]
async fn retry_starts_with_the_primary_again() {
    let (primary, target) = (Script::failing(1, rate_limited), fails(rate_limited));
    let layer = RetryLayer::new("openai").jitter_percent(0);
    let service = layer.layer(chain([&target]).layer(primary.clone()));
    assert_eq!(ask(&service, hello()).await.unwrap(), "answer");
    assert_eq!((primary.times(), target.times()), (vec![0.0, 1.0], vec![0.0]));
}

#[tokio::test(start_paused = true)]
async fn overloaded_target_is_retried_although_the_primary_failed_for_good() {
    let primary = fails(|| failed(Class::ExhaustedQuota { after: Some(SECOND * 86_400) }));
    let target = Script::failing(1, || failed(Class::Overloaded));
    let layer = RetryLayer::new("openai");
    let service = layer.layer(chain([&target]).layer(primary.clone()));
    assert_eq!(ask(&service, hello()).await.unwrap(), "answer");
    assert_eq!((primary.calls(), target.calls()), (2, 2));
}

#[tokio::test]
async fn error_of_the_primary_is_shown_even_if_a_target_is_worth_a_retry() {
    let quota = || failed(Class::ExhaustedQuota { after: None });
    let (first, second) = (fails(|| rate_limited_for(9)), fails(|| rate_limited_for(3)));
    let error = ask(&chain([&first, &second]).layer(fails(quota)), hello()).await.unwrap_err();
    assert_eq!(error.class(), Class::ExhaustedQuota { after: None });
    assert_eq!(error.failure().unwrap().class, error.class());
    assert_eq!((error.retry_after(), error.was_sent()), (Some(SECOND * 3), true), "the soonest");
    assert!(error.is_retryable() && error.is_rate_limit() && !error.is_wait());
    assert_eq!(
        error.to_string(),
        "openai answered 429; the fallback failed too: openai answered 429"
    );
    let gone = fails(|| failed(Class::CredentialRejected));
    let error = ask(&chain([&gone]).layer(fails(quota)), hello()).await.unwrap_err();
    assert!(matches!(error, CallError::Provider(_)) && !error.is_retryable());
}

#[tokio::test(start_paused = true)]
async fn retry_that_calls_targets_takes_retry_budget() {
    let open = || CallError::CircuitOpen { provider: "openai".into(), after: SECOND };
    let target = fails(|| failed(Class::Overloaded));
    let layer = RetryLayer::new("openai").budget(3);
    let service = layer.layer(chain([&target]).layer(fails(open)));
    let error = ask(&service, hello().deadline(SECOND * 10)).await.unwrap_err();
    assert_eq!(error.class(), open().class());
    assert!(target.calls() <= 5, "{} calls of the target", target.calls());
    let idle = fails(open);
    let service = layer.layer(chain([&idle]).layer(fails(open)));
    ask(&service, hello().deadline(SECOND * 10)).await.unwrap_err();
    assert!(idle.calls() > 5, "waits of open circuits take no budget: {}", idle.calls());
}

#[tokio::test(start_paused = true)]
async fn targets_get_the_time_left_until_the_deadline() {
    let slow = || fails(rate_limited).lasting(SECOND * 4);
    let (primary, first, second, third) = (slow(), slow(), slow(), answers("third"));
    let service = chain([&first, &second, &third]).layer(primary.clone());
    ask(&service, hello().deadline(SECOND * 12).max_wait(SECOND * 5)).await.unwrap_err();
    let received = [&primary, &first, &second].map(|script| {
        let options = script.seen.lock().unwrap()[0].1.clone();
        (options.deadline.unwrap(), options.max_wait.unwrap())
    });
    let seconds = [(12, 5), (8, 5), (4, 4)];
    assert_eq!(received, seconds.map(|(deadline, wait)| (SECOND * deadline, SECOND * wait)));
    assert_eq!(third.calls(), 0, "the deadline has passed");
}
