//! The modules combined: when tokens are taken, and which provider is called.

use tidegate_llm::mock::{Mock, Step};
use tidegate_llm::models::{Model, Models, Profile};
use tidegate_llm::settings::RetrySettings;
use tidegate_providers::{Class, Credential};

use super::{SECOND, at_once, hello, limits, per_minute, wait};

/// Two providers at one request per minute each; the second is the fallback of the first.
fn pair(first: &Mock, second: &Mock, burst: u32) -> (Models, Model) {
    let models = Models::builder()
        .backend("openai", first.clone())
        .backend("groq", second.clone())
        .rate_limit(limits(1, burst))
        .build();
    let model = models.load_model("openai", "a").rate_limit(true).fallback_to(["groq/b"]);
    let model = model.build().unwrap();
    (models, model)
}

#[tokio::test(start_paused = true)]
async fn every_attempt_takes_its_own_token() {
    let failed = || Step::fail(Class::Transient);
    let mock = Mock::new("openai").then(failed()).then(failed());
    let models = Models::builder().backend("openai", mock.clone()).rate_limit(limits(1, 10));
    let models = models.build();
    let model = models.load_model("openai", "a").rate_limit(true).retry(true).build().unwrap();
    model.invoke(hello()).await.unwrap();
    assert_eq!(mock.call_count(), 3);
    assert_eq!(at_once(&model).await, 7);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_permit_does_not_cause_a_fallback() {
    let (first, second) = (Mock::new("openai"), Mock::new("groq"));
    let (_models, model) = pair(&first, &second, 1);
    assert!(wait(&model).await.is_zero());
    assert_eq!(wait(&model).await, SECOND * 60);
    assert_eq!((first.call_count(), second.call_count()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn fallback_takes_a_token_of_the_target() {
    let first = Mock::new("openai").then(Step::fail(Class::Overloaded));
    let second = Mock::new("groq");
    let (models, model) = pair(&first, &second, 3);
    model.invoke(hello()).await.unwrap();
    assert_eq!((first.call_count(), second.call_count()), (1, 1));
    let target = models.load_model("groq", "b").rate_limit(true).build().unwrap();
    assert_eq!(at_once(&target).await, 2, "one of three is gone");
}

#[tokio::test(start_paused = true)]
async fn wait_above_the_maximum_causes_a_fallback() {
    let (first, second) = (Mock::new("openai"), Mock::new("groq"));
    let (_models, model) = pair(&first, &second, 1);
    assert!(wait(&model).await.is_zero());
    model.invoke(hello().max_wait(SECOND)).await.unwrap();
    assert_eq!((first.call_count(), second.call_count()), (1, 1));
}

/// Another model of the same provider shares the key and the limits.
#[tokio::test(start_paused = true)]
async fn model_can_fall_back_to_another_model_of_its_provider() {
    let mock = Mock::new("openai").then(Step::fail(Class::Overloaded));
    let registered = Profile::new().credential(Credential::new("sk-registered"));
    let models = Models::builder().backend("openai", mock.clone()).provider("openai", registered);
    let models = models.rate_limit(limits(60, 5)).strict().build();
    let load = models.load_model("openai", "large").credential(Credential::new("sk-own"));
    let model = load.rate_limit(per_minute(1)).fallback_to(["openai/small"]).build().unwrap();
    assert_eq!(models.account_count(), 1);
    model.invoke(hello()).await.unwrap();
    assert_eq!(mock.call_count(), 2);
    assert_eq!(at_once(&model).await, 3, "two of five are gone");
}

/// A call holds no slot while it waits for a retry.
#[tokio::test(start_paused = true)]
async fn slot_is_released_during_a_retry_delay() {
    let mock = Mock::new("ollama")
        .then(Step::fail(Class::Transient))
        .always(Step::reply("yes").after(SECOND / 100));
    let models = Models::builder().backend("ollama", mock.clone()).build();
    let retry = RetrySettings::new().base_delay(SECOND * 60);
    let load = || models.load_model("ollama", "a").rate_limit(true);
    let (retried, other) = (load().retry(retry).build().unwrap(), load().build().unwrap());
    let account = other.account().unwrap().clone();
    assert_eq!(account.gauges("a").unwrap().concurrency, Some(1));
    let sleeping = tokio::spawn(async move { retried.invoke(hello()).await });
    tokio::time::sleep(SECOND / 10).await;
    assert_eq!((mock.call_count(), account.gauges("a").unwrap().in_flight), (1, 0));
    assert_eq!(wait(&other).await, SECOND / 100, "the duration of the response");
    assert!(!sleeping.is_finished());
    sleeping.await.unwrap().unwrap();
    assert_eq!(mock.call_count(), 3);
    assert_eq!(account.gauges("a").unwrap().in_flight, 0);
}
