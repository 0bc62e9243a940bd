//! What observers of a handler see: providers, and hashes of keys that may name people.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_llm::pipeline::{Planned, RateLimitHandler, by_user};
use tidegate_llm::plan::{Inference, PlanRequest, RawConstraint};
use tidegate_llm::telemetry::{Acquired, Observer};
use tidegate_providers::Provider;

use super::{constraint, per_minute, plan, tokens};

/// Records providers and keys.
#[derive(Debug, Default)]
struct Labels(Mutex<Vec<(String, String)>>);

impl Observer for Labels {
    fn acquired(&self, acquired: &Acquired<'_>) {
        let labels = (acquired.provider.to_string(), acquired.limiter_key.to_owned());
        self.0.lock().unwrap().push(labels);
    }
}

/// Returns what an observer sees of a command of each user.
async fn observed(handler: RateLimitHandler, users: &[&str]) -> Vec<(String, String)> {
    let labels = Arc::new(Labels::default());
    let handler = handler.observer(labels.clone());
    let request = PlanRequest::new().model("gpt-4o");
    for user in users {
        handler
            .handle(Planned::new((), plan(per_minute(60))).with_request(&request).user(user))
            .await;
    }
    let observed = labels.0.lock().unwrap();
    observed.clone()
}

#[tokio::test(start_paused = true)]
async fn custom_keys_are_hashed_and_the_provider_is_not() {
    let by_name = |_: &Provider, planned: &Planned<()>| {
        vec![planned.request.user_name().unwrap_or("?").to_owned()]
    };
    let handler = RateLimitHandler::new().key_extractor(by_name);
    let labels =
        observed(handler, &["ann@example.com", "bob@example.com", "ann@example.com"]).await;
    let [ann, bob, again] = &*labels else { panic!("{labels:?}") };
    for (provider, key) in [ann, bob] {
        assert_eq!(provider, "openai");
        assert!(key.len() == 16 && key.chars().all(|digit| digit.is_ascii_hexdigit()), "{key}");
    }
    assert_ne!(ann, bob);
    assert_eq!(ann, again, "one key has one hash");
}

/// A second observer, such as one for metrics, does not replace the first.
#[tokio::test(start_paused = true)]
async fn all_observers_of_a_handler_are_notified() {
    let first = Arc::new(Labels::default());
    let handler = RateLimitHandler::new().observer(first.clone());
    let second = observed(handler, &["ann", "bob"]).await;
    assert_eq!(second.len(), 2);
    assert_eq!(*first.0.lock().unwrap(), second);
}

/// A permit says what its command waited for, and how many others wait or are in flight.
#[tokio::test(start_paused = true)]
async fn permits_name_the_limit_that_was_waited_for() {
    #[derive(Debug, Default)]
    struct Causes(Mutex<Vec<(Option<&'static str>, u64)>>);

    impl Observer for Causes {
        fn acquired(&self, acquired: &Acquired<'_>) {
            self.0.lock().unwrap().push((acquired.limited_by, acquired.in_flight));
        }
    }

    let causes = Arc::new(Causes::default());
    let handler = RateLimitHandler::new().observer(causes.clone());
    let first = handler.handle(Planned::new((), plan(per_minute(60)))).await;
    let second = handler.handle(Planned::new((), plan(per_minute(60)))).await;
    assert_eq!(*causes.0.lock().unwrap(), [(None, 1), (Some("requests"), 2)]);
    drop((first, second));
}

/// R97: 8 tokens take 800 ms of the second between two requests.
#[tokio::test(start_paused = true)]
async fn wait_for_tokens_and_requests_is_split() {
    type Split = Vec<(&'static str, Duration)>;

    #[derive(Debug, Default)]
    struct Parts(Mutex<Vec<(Duration, Duration, Split)>>);

    impl Observer for Parts {
        fn acquired(&self, acquired: &Acquired<'_>) {
            let parts = (acquired.wait, acquired.token_wait, acquired.waited_for.to_vec());
            self.0.lock().unwrap().push(parts);
        }
    }

    let parts = Arc::new(Parts::default());
    let handler = RateLimitHandler::new().observer(parts.clone());
    let both = RawConstraint {
        requests_per_minute: Some(60),
        tokens_per_minute: Some(60 * 10),
        ..RawConstraint::default()
    };
    // The first command takes the ten tokens of a second, and so each one waits for all of its own.
    for estimate in [10, 8] {
        let plan = plan(constraint(&both)).with_estimate(tokens(estimate));
        handler.handle(Planned::new((), plan)).await;
    }
    let of_tokens = Duration::from_millis(800);
    let of_requests = Duration::from_millis(200);
    let split = vec![("tokens", of_tokens), ("requests", of_requests)];
    let second = parts.0.lock().unwrap().pop();
    assert_eq!(second, Some((of_tokens + of_requests, of_tokens, split)));
}

#[tokio::test(start_paused = true)]
async fn show_keys_passes_keys_unhashed() {
    let handler = RateLimitHandler::new().key_extractor(by_user).show_keys();
    assert_eq!(observed(handler, &["ann"]).await, [("openai".to_owned(), "user/ann".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn default_keys_are_not_hashed() {
    let shown = ("openai".to_owned(), "openai/gpt-4o/unknown".to_owned());
    assert_eq!(observed(RateLimitHandler::new(), &["ann"]).await, [shown]);
}

#[tokio::test(start_paused = true)]
async fn any_function_can_derive_keys_from_the_inferred_provider() {
    let by_tier = |provider: &Provider, planned: &Planned<()>| {
        vec![provider.to_string(), format!("{:?}", planned.request.tier_name())]
    };
    let own = Inference::default().contains("gpt", "mine");
    let handler = RateLimitHandler::new().inference(own).key_extractor(by_tier).show_keys();
    assert_eq!(observed(handler, &["ann"]).await, [("mine".to_owned(), "mine/None".to_owned())]);
}
